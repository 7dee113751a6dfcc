import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Checkpoints } from '../../../src/ingest/usage/checkpoints.ts';
import { CHECKPOINT_MS_MAX } from '../../../src/limits.ts';
import { log, MemoryCheckpoints, projectOf } from '../limit/limit-fixture.ts';

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
    const project = projectOf({ id: 'p' });
    checkpoints.note(project, '2026-02', 1);
    checkpoints.note(project, '2026-02', 7);
    checkpoints.note(project, '2026-02', 6);
    await vi.advanceTimersByTimeAsync(CHECKPOINT_MS_MAX);
    expect(store.figures.get('p 2026-02')).toBe(7);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(store.writes).toBe(1);
  });

  it('writes a busy project no more than once in nine seconds', async () => {
    const { store, checkpoints } = make();
    const project = projectOf({ id: 'p' });
    for (let i = 0; i < 180; i++) {
      checkpoints.note(project, '2026-02', i);
      await vi.advanceTimersByTimeAsync(500);
    }
    expect(store.writes).toBeGreaterThanOrEqual(9);
    expect(store.writes).toBeLessThanOrEqual(10);
  });

  it('writes a thousand projects in ten seconds, by as many writes as there are groups', async () => {
    const { store, checkpoints } = make();
    for (let i = 0; i < 1_000; i++) checkpoints.note(projectOf({ id: `p${i}` }), '2026-02', i);
    await vi.advanceTimersByTimeAsync(CHECKPOINT_MS_MAX);
    expect(store.figures.size).toBe(1_000);
    expect(store.writes).toBe(store.groups);
  });

  it('notes a loss of counts at once, and others within nine seconds together', async () => {
    const { store, checkpoints } = make();
    await vi.advanceTimersByTimeAsync(1_000);
    for (let i = 0; i < 80; i++) {
      checkpoints.noteLoss();
      await vi.advanceTimersByTimeAsync(100);
    }
    expect(store.losses).toBe(1);
    await vi.advanceTimersByTimeAsync(2_000);
    expect(store.losses).toBe(2);
  });

  it('takes a count that is lower than one of its own for a loss', async () => {
    const { store, checkpoints } = make();
    const project = projectOf({ id: 'p' });
    checkpoints.note(project, '2026-02', 7, 6);
    checkpoints.note(project, '2026-02', 8, 7);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(store.losses).toBe(0);
    checkpoints.note(project, '2026-02', 6, 5);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(store.losses).toBe(1);
  });

  it('reads what it has not written yet, where that is larger', async () => {
    const { store, checkpoints } = make();
    const project = projectOf({ id: 'p' });
    expect(await checkpoints.read(project, '2026-02')).toBeUndefined();
    checkpoints.note(project, '2026-02', 7);
    expect(await checkpoints.read(project, '2026-02')).toBe(7);
    expect(await checkpoints.read(project, '2026-01')).toBeUndefined();
    store.figures.set('p 2026-02', 9);
    expect(await checkpoints.read(project, '2026-02')).toBe(9);
  });

  it('notes a loss later where it cannot be noted at once', async () => {
    const { store, checkpoints } = make();
    const noteLoss = vi.spyOn(store, 'noteLoss').mockRejectedValueOnce(new Error('NATS is away'));
    checkpoints.noteLoss();
    await vi.advanceTimersByTimeAsync(20_000);
    expect(noteLoss).toHaveBeenCalledTimes(2);
  });

  it('writes the larger figure when there are two states of a project, as after a record that could not be read', async () => {
    const { store, checkpoints } = make();
    const [before, after] = [projectOf({ id: 'p' }), projectOf({ id: 'p' })];
    checkpoints.note(before, '2026-02', 5);
    checkpoints.note(after, '2026-02', 6);
    checkpoints.note(before, '2026-02', 7);
    checkpoints.note(after, '2026-02', 9);
    await checkpoints.close();
    expect([store.figures, store.writes]).toEqual([new Map([['p 2026-02', 9]]), 1]);
  });

  it('keeps what a store that is away did not take, and newer figures over it', async () => {
    const { store, checkpoints } = make();
    const project = projectOf({ id: 'p' });
    const away = vi.spyOn(store, 'write').mockRejectedValue(new Error('away'));
    checkpoints.note(project, '2026-02', 5);
    checkpoints.note(projectOf({ id: 'q' }), '2026-02', 8);
    await vi.advanceTimersByTimeAsync(CHECKPOINT_MS_MAX);
    expect(store.figures.size).toBe(0);
    checkpoints.note(project, '2026-02', 6);
    away.mockRestore();
    await vi.advanceTimersByTimeAsync(CHECKPOINT_MS_MAX);
    expect(Object.fromEntries(store.figures)).toEqual({ 'p 2026-02': 6, 'q 2026-02': 8 });
  });

  it('forgets what a store that is away did not take when the project is deleted', async () => {
    const { store, checkpoints } = make();
    const project = projectOf({ id: 'p' });
    const away = vi.spyOn(store, 'write').mockRejectedValue(new Error('away'));
    checkpoints.note(project, '2026-01', 5);
    checkpoints.note(project, '2026-02', 1);
    await vi.advanceTimersByTimeAsync(CHECKPOINT_MS_MAX);
    expect(away).toHaveBeenCalled();
    project.markDeleted();
    away.mockRestore();
    await checkpoints.close();
    expect(store.figures.size).toBe(0);
  });

  it('does not begin a write beside one of the same group, and waits for it at the end', async () => {
    const { store, checkpoints } = make();
    const project = projectOf({ id: 'p' });
    let finish = (): void => undefined;
    const slow = vi.spyOn(store, 'write').mockImplementationOnce(
      () =>
        new Promise((resolve) => {
          finish = resolve;
        }),
    );
    checkpoints.note(project, '2026-02', 5);
    await vi.advanceTimersByTimeAsync(CHECKPOINT_MS_MAX);
    checkpoints.note(project, '2026-02', 6);
    await vi.advanceTimersByTimeAsync(30_000);
    expect(slow).toHaveBeenCalledTimes(1);
    const closed = checkpoints.close();
    finish();
    await closed;
    expect(slow).toHaveBeenCalledTimes(2);
    expect(store.figures.get('p 2026-02')).toBe(6);
  });

  it('keeps the newer figure when a write fails that was under way as it was noted', async () => {
    const { store, checkpoints } = make();
    const project = projectOf({ id: 'p' });
    let fail = (): void => undefined;
    vi.spyOn(store, 'write').mockImplementationOnce(
      () =>
        new Promise((_, reject) => {
          fail = () => reject(new Error('away'));
        }),
    );
    checkpoints.note(project, '2026-02', 5);
    await vi.advanceTimersByTimeAsync(CHECKPOINT_MS_MAX);
    checkpoints.note(project, '2026-02', 6);
    fail();
    await vi.advanceTimersByTimeAsync(0);
    await checkpoints.close();
    expect(store.figures).toEqual(new Map([['p 2026-02', 6]]));
  });

  it('goes on with the next count and the next loss after a minute without any', async () => {
    const { store, checkpoints } = make();
    const project = projectOf({ id: 'p' });
    for (const count of [1, 2]) {
      checkpoints.note(project, '2026-02', count);
      checkpoints.noteLoss();
      await vi.advanceTimersByTimeAsync(CHECKPOINT_MS_MAX);
      expect([store.figures.get('p 2026-02'), store.losses]).toEqual([count, count]);
      await vi.advanceTimersByTimeAsync(60_000);
    }
  });

  it('makes good for a stall with one round', async () => {
    const store = new MemoryCheckpoints();
    let now = 0;
    const stalled = { now: () => now, monotonic: () => now };
    const checkpoints = new Checkpoints({ store, clock: stalled, log });
    for (let i = 0; i < 8; i++) checkpoints.note(projectOf({ id: `${i}` }), '2026-02', 1);
    now = 3_600_000;
    await vi.advanceTimersByTimeAsync(300);
    expect(store.figures.size).toBe(8);
    expect(store.writes).toBe(store.groups);
  });
});
