import { describe, expect, it } from 'vitest';
import { Gate } from '../../src/processor/gate.ts';

/** Work that ends when it is told to. */
function task(gate: Gate, kind: 'shared' | 'alone') {
  let end = (): void => undefined;
  const state = { begun: false, end: () => end(), done: Promise.resolve() };
  state.done = gate[kind](async () => {
    state.begun = true;
    await new Promise<void>((resolve) => {
      end = resolve;
    });
  });
  return state;
}
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('a gate', () => {
  it('lets many share it', async () => {
    const gate = new Gate();
    const [one, two] = [task(gate, 'shared'), task(gate, 'shared')];
    await turn();
    expect([one.begun, two.begun]).toEqual([true, true]);
  });

  it('lets one alone in when the others are out, and nobody beside it', async () => {
    const gate = new Gate();
    const before = task(gate, 'shared');
    const alone = task(gate, 'alone');
    const after = task(gate, 'shared');
    await turn();
    expect([before.begun, alone.begun, after.begun]).toEqual([true, false, false]);
    before.end();
    await before.done;
    await turn();
    expect([alone.begun, after.begun]).toEqual([true, false]);
    alone.end();
    await alone.done;
    await turn();
    expect(after.begun).toBe(true);
  });

  it('opens again after work that failed', async () => {
    const gate = new Gate();
    await expect(gate.alone(() => Promise.reject(new Error('failed')))).rejects.toThrow('failed');
    expect(await gate.alone(async () => 'next')).toBe('next');
  });
});
