/** Keys and categories with limits of their own: exact in their windows and in the project's, over all workers, by one call. */
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { Admission, AdmissionResult } from '../../../src/ingest/limit/admission.ts';
import { categoryBit } from '../../../src/lib/item-types.ts';
import { keyId } from '../../../src/projects/project.ts';
import type { ProjectState, RateScope } from '../../../src/projects/project-state.ts';
import { ASK, admissionOn, admit, callAdmit, clock, elsewhere, projectOf } from './limit-fixture.ts';
import { STORES, useStore } from './stores.ts';

const T = 1_700_000_000_000;
const BOTH = { token: true, count: true } as const;

describe.each(STORES)('on $name', (kind) => {
  const store = useStore(kind, 2);
  let admissions: Admission[] = [];
  let project = 0;
  afterEach(() => {
    for (const admission of admissions) admission.close();
    admissions = [];
    vi.restoreAllMocks();
  });

  const onWorkers = (count: number): Admission[] => {
    admissions = store
      .workers()
      .slice(0, count)
      .map((redis) => admissionOn(redis));
    return admissions;
  };
  const withKeys = (limit: number | undefined, ...limits: number[]): ProjectState => {
    const limited = limits.map((rateLimit, i) => ({ key: `k${i}`, enabled: true, rateLimit }));
    const keys = [{ key: 'k', enabled: true }, ...limited];
    return projectOf({ id: `keys-${++project}`, limit, keys });
  };
  const scopeOf = (of: ProjectState, key: string): RateScope => {
    const access = of.authenticate(key, clock);
    if (!access) throw new Error('the key is not valid');
    return access.scope;
  };
  const admitted = (all: readonly AdmissionResult[]): number =>
    all.filter(({ rate }) => rate?.kind === 'admitted').length;
  /** Each worker asks so often at once, in waves, by the key that it knows. */
  const ask = async (of: ProjectState, key: string, times: number): Promise<AdmissionResult[]> => {
    const all = admissions.map(async (admission) => {
      const scope = scopeOf(elsewhere(of), key);
      const decisions: AdmissionResult[] = [];
      for (let left = times; left > 0; left -= 5)
        decisions.push(...(await Promise.all([1, 2, 3, 4, 5].map(() => admit(admission, scope, BOTH)))));
      return decisions;
    });
    return (await Promise.all(all)).flat();
  };

  it('uses up nothing of the project when it is refused, and nothing of its own when the project is full', async () => {
    const [admission] = onWorkers(1) as [Admission];
    const of = withKeys(10, 3);
    expect(admitted(await ask(of, 'k0', 50))).toBe(3);
    const rest = await admit(admission, of, BOTH);
    expect(rest.rate).toMatchObject({ kind: 'admitted', remaining: 6 });
    const other = withKeys(4, 6);
    expect(admitted(await ask(other, 'k', 10))).toBe(4);
    const full = await admit(admission, scopeOf(other, 'k0'), BOTH);
    expect(full).toMatchObject({ rate: { kind: 'refused', windowNumber: 2 }, count: undefined });
    other.update({ ...other.record }, 2, 100);
    const after = await admit(admission, scopeOf(other, 'k0'), BOTH);
    expect(after.rate).toMatchObject({ kind: 'admitted', remaining: 5 });
  });

  it('says the figures of its own window', async () => {
    const [admission] = onWorkers(1) as [Admission];
    const scope = scopeOf(withKeys(60, 5), 'k0');
    const all = await Promise.all([1, 2, 3, 4, 5, 6].map(() => admit(admission, scope, BOTH)));
    expect(all.map(({ rate }) => (rate?.kind === 'admitted' ? rate.remaining : rate?.kind))).toEqual([
      4,
      3,
      2,
      1,
      0,
      'refused',
    ]);
    expect(admission.knownRefusal(scope)).toMatchObject({ kind: 'refused', windowNumber: 1 });
  });

  it('has a limit where its project has none', async () => {
    onWorkers(2);
    const of = withKeys(undefined, 7);
    expect(admitted(await ask(of, 'k0', 20))).toBe(7);
    expect((await ask(of, 'k', 20)).every(({ rate, count }) => !rate && count?.kind === 'counted')).toBe(
      true,
    );
  });

  it('is one call for all requests of a turn with this key, and none for a flood over its limit', async () => {
    const [admission] = onWorkers(1) as [Admission];
    const redis = store.redis();
    const scope = scopeOf(withKeys(60, 5), 'k0');
    const call = vi.spyOn(redis, 'call');
    await Promise.all(Array.from({ length: 50 }, () => admit(admission, scope, BOTH)));
    const counts = call.mock.calls.filter(([{ args }]) => String(args[1]).startsWith('c')).length;
    expect(call.mock.calls.length - counts).toBe(1);
    const before = call.mock.calls.length;
    for (let i = 0; i < 1_000; i++) await admit(admission, scope, BOTH);
    expect(call.mock.calls.length).toBe(before);
  });

  it('keeps its window, by the key, when the record changes; a changed limit holds at once', async () => {
    const [admission] = onWorkers(1) as [Admission];
    const of = withKeys(60, 5);
    const [, limited] = of.record.keys ?? [];
    expect(admitted(await ask(of, 'k0', 10))).toBe(5);
    const raised = {
      ...of.record,
      keys: [
        { key: 'k', enabled: true },
        { ...limited, key: 'k0', enabled: true, rateLimit: 8 },
      ],
    };
    of.update(raised, 2, 60);
    const scope = scopeOf(of, 'k0');
    const all = await Promise.all([1, 2, 3, 4, 5].map(() => admit(admission, scope, BOTH)));
    expect(admitted(all)).toBe(3);
    expect(await store.server().fields(`sluice:rate:{${of.id}}:key:${keyId('k0')}`)).toBeGreaterThan(0);
  });

  describe('a category with a limit', () => {
    const REPLAYS = categoryBit('replays');
    type Window = { name: string; limit: number };
    const limited = (limit: number | undefined, replays: number): ProjectState =>
      projectOf({ id: `keys-${++project}`, limit, rateLimits: { replays } });

    it('has a limit where its project has none, and for requests that have their token already', async () => {
      const [admission] = onWorkers(1) as [Admission];
      const of = limited(undefined, 3);
      const alone = of.withCategories(of, REPLAYS, true);
      const all = await Promise.all([1, 2, 3, 4].map(() => admit(admission, alone, BOTH)));
      expect([admitted(all), alone.hasOwnWindow]).toEqual([3, false]);
      expect((await admit(admission, of, BOTH)).rate).toBeUndefined();
    });

    it('is booked in the windows of key, project and category, or in none', async () => {
      const [admission] = onWorkers(1) as [Admission];
      const keys = [{ key: 'k', enabled: true, rateLimit: 4 }];
      const of = projectOf({
        id: `keys-${++project}`,
        limit: 60,
        keys,
        rateLimits: { replays: 2, errors: 3 },
      });
      const key = scopeOf(of, 'k');
      const both = of.withCategories(key, REPLAYS + categoryBit('errors'), false);
      expect(both.further.map(({ name }) => name)).toEqual(['', 'errors', 'replays']);
      const first = await Promise.all([1, 2, 3].map(() => admit(admission, both, BOTH)));
      expect(first.map(({ rate }) => rate?.kind)).toEqual(['admitted', 'admitted', 'refused']);
      const refused = first[2] as { rate: { windowNumber: number } };
      expect(both.refusingCategory(refused.rate.windowNumber)).toBe('replays');
      const errors = of.withCategories(key, categoryBit('errors'), false);
      const rest = await Promise.all([1, 2].map(() => admit(admission, errors, BOTH)));
      expect(rest.map(({ rate }) => rate?.kind)).toEqual(['admitted', 'refused']);
      expect(admitted(await Promise.all([admit(admission, key, BOTH), admit(admission, key, BOTH)]))).toBe(1);
    });

    it('does not hold up the project, nor another category, by being full for longer', async () => {
      const redis = store.redis();
      const id = `keys-${++project}`;
      const [replays, logs] = ['replays', 'logs'].map((name) => ({ name, limit: 1 })) as [Window, Window];
      const call = async (at: number, ...further: Window[]) => {
        const ask = { ...ASK, need: 1 };
        const { window } = await callAdmit(redis, id, { wishes: 't', limit: 3, ask, now: T + at, further });
        return window;
      };
      await call(0, logs);
      await call(30_000, replays);
      const both = await call(31_000, logs, replays);
      expect(both).toMatchObject({ granted: 0, refusingWindow: 2, admitsAt: T + 60_250 });
      await call(40_000);
      const all = await call(41_000, replays);
      expect(all).toMatchObject({ granted: 0, refusingWindow: 1, admitsAt: T + 60_250 });
      expect(await call(61_000, replays)).toMatchObject({
        granted: 0,
        refusingWindow: 2,
        admitsAt: T + 90_250,
      });
    });

    it('is refused from memory while it is full', async () => {
      const [admission] = onWorkers(1) as [Admission];
      const redis = store.redis();
      const of = limited(60, 3);
      const scope = of.withCategories(of, REPLAYS, false);
      await Promise.all([1, 2, 3, 4, 5].map(() => admit(admission, scope, BOTH)));
      await admit(admission, scope, BOTH);
      const call = vi.spyOn(redis, 'call');
      for (let i = 0; i < 1_000; i++) await admit(admission, scope, BOTH);
      expect(call.mock.calls).toHaveLength(0);
    });
  });
});
