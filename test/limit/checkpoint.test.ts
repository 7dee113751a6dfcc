import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Checkpoints } from '../../src/limit/checkpoint.ts';
import { CHECKPOINT_MS_MAX } from '../../src/limits.ts';
import { log, MemoryCheckpoints } from './limit-fixture.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const clock = { now: () => Date.now(), monotonic: () => Date.now() };
const make = (store = new MemoryCheckpoints()) => ({
  store,
  checkpoints: new Checkpoints({ store, clock, log }),
});

describe('Checkpoints', () => {
  it('writes the newest figure within ten seconds of the first note, and once', async () => {
    const { store, checkpoints } = make();
    checkpoints.note('p', '2026-02', 1);
    await vi.advanceTimersByTimeAsync(5_000);
    expect(store.writes).toBe(0);
    checkpoints.note('p', '2026-02', 7);
    checkpoints.note('p', '2026-02', 6);
    await vi.advanceTimersByTimeAsync(CHECKPOINT_MS_MAX - 5_000);
    expect(store.figures.get('p 2026-02')).toBe(7);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(store.writes).toBe(1);
  });

  it('writes a busy project no more than once in nine seconds', async () => {
    const { store, checkpoints } = make();
    for (let i = 0; i < 900; i++) {
      checkpoints.note('p', '2026-02', i);
      await vi.advanceTimersByTimeAsync(100);
    }
    expect(store.writes).toBeGreaterThanOrEqual(9);
    expect(store.writes).toBeLessThanOrEqual(10);
  });

  it('writes the last figure of a month that turned', async () => {
    const { store, checkpoints } = make();
    checkpoints.note('p', '2026-01', 5);
    checkpoints.note('p', '2026-02', 1);
    await checkpoints.close();
    expect([...store.figures]).toEqual([
      ['p 2026-01', 5],
      ['p 2026-02', 1],
    ]);
  });

  it('outlives a store that is away, and writes the next note', async () => {
    const { store, checkpoints } = make();
    const write = vi.spyOn(store, 'write').mockRejectedValueOnce(new Error('away'));
    checkpoints.note('p', '2026-02', 5);
    await vi.advanceTimersByTimeAsync(CHECKPOINT_MS_MAX);
    expect(write).toHaveBeenCalledTimes(1);
    expect(store.writes).toBe(0);
    checkpoints.note('p', '2026-02', 6);
    await vi.advanceTimersByTimeAsync(CHECKPOINT_MS_MAX);
    expect(store.figures.get('p 2026-02')).toBe(6);
  });
});
