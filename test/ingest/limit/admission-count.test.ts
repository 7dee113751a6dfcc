import { afterAll, describe, expect, it } from 'vitest';
import type { Admission, CountDecision } from '../../../src/ingest/limit/admission.ts';
import { readUsage, setUsage } from '../../../src/ingest/limit/month-count.ts';
import type { ProjectState } from '../../../src/projects/project-state.ts';
import {
  admissionOn,
  connected,
  count,
  elsewhere,
  MemoryCheckpoints,
  pause,
  projectOf,
  type TestAdmission,
} from './limit-fixture.ts';
import { STORES, useStore } from './stores.ts';

describe.each(STORES)('on $name', (kind) => {
  const store = useStore(kind, 3);
  let project = 0;
  const toClose: Admission[] = [];
  afterAll(() => {
    for (const admission of toClose) admission.close();
  });

  type Options = { checkpoints?: MemoryCheckpoints; scriptNow?: () => number };

  function counters({ checkpoints = new MemoryCheckpoints(), ...rest }: Options = {}): TestAdmission[] {
    return store.workers().map((redis) => {
      const admission = admissionOn(redis, { store: checkpoints, ...rest });
      toClose.push(admission);
      return admission;
    });
  }
  const scope = (quota: number | undefined): ProjectState => projectOf({ id: `quota-${++project}`, quota });
  const positions = (decisions: CountDecision[]): number[] =>
    decisions.flatMap((d) => (d.kind === 'counted' ? [d.position] : [])).sort((a, b) => a - b);
  const firstPositions = (n: number): number[] => Array.from({ length: n }, (_, i) => i + 1);
  const month = (): string => new Date().toISOString().slice(0, 7);

  /** Counts `total` over all counters, in bursts of `size` each. */
  async function burst(all: Admission[], of: ProjectState, total: number): Promise<CountDecision[]> {
    let left = total;
    const one = async (counter: Admission): Promise<CountDecision[]> => {
      const own = elsewhere(of);
      const decisions: CountDecision[] = [];
      while (left > 0) {
        const n = Math.min(left, 9);
        left -= n;
        decisions.push(...(await Promise.all(Array.from({ length: n }, () => count(counter, own)))));
      }
      return decisions;
    };
    return (await Promise.all(all.map(one))).flat();
  }

  describe('positions', () => {
    it('counts by the record that is in force when the call leaves', async () => {
      const [counter] = counters() as [TestAdmission];
      const of = scope(3);
      await count(counter, of);
      const decisions = [1, 2, 3, 4].map(() => count(counter, of));
      of.update({ ...of.record, quota: 5 }, 2, undefined);
      expect(positions(await Promise.all(decisions))).toEqual([2, 3, 4, 5]);
    });

    it('knows the UTC month of any moment', async () => {
      let now = 0;
      const [counter] = counters({ scriptNow: () => now }) as [TestAdmission];
      const moments = [
        Date.UTC(1970, 0, 1),
        Date.UTC(2000, 1, 29, 23, 59, 59, 999),
        Date.UTC(2000, 2, 1),
        Date.UTC(2100, 1, 28, 12),
        Date.UTC(2100, 2, 1),
      ];
      for (let month = 0; month < 36; month++)
        moments.push(Date.UTC(2026, month, 1), Date.UTC(2026, month, 1) - 1);
      for (now of moments)
        expect(await count(counter, scope(undefined))).toMatchObject({
          month: new Date(now).toISOString().slice(0, 7),
        });
    });

    it('counts exactly far beyond 2^32', async () => {
      const start = 4_503_599_627_370_000;
      const checkpoints = new MemoryCheckpoints();
      const of = scope(undefined);
      checkpoints.write(0, month(), new Map([[of.id, start]]));
      expect(positions(await burst(counters({ checkpoints }), of, 2))).toEqual([start + 1, start + 2]);
    });

    it('resumes from the checkpoint when the count is missing, over all workers together', async () => {
      const checkpoints = new MemoryCheckpoints();
      const of = scope(1100);
      checkpoints.write(0, month(), new Map([[of.id, 1000]]));
      const decisions = await burst(counters({ checkpoints }), of, 150);
      expect(positions(decisions)).toEqual(firstPositions(100).map((n) => n + 1000));
      expect(checkpoints.reads).toBeLessThanOrEqual(3);
    });

    it('reads a checkpoint once for all that wait for it, in whichever turn they came', async () => {
      const checkpoints = new MemoryCheckpoints();
      const read = checkpoints.read.bind(checkpoints);
      checkpoints.read = async (projectId, of) => {
        await pause(50);
        return read(projectId, of);
      };
      const [counter] = counters({ checkpoints }) as [TestAdmission];
      const of = scope(undefined);
      const decisions: Promise<CountDecision>[] = [];
      for (let turn = 0; turn < 10; turn++) {
        decisions.push(count(counter, of), count(counter, of));
        await new Promise((resolve) => setImmediate(resolve));
      }
      const given = (await Promise.all(decisions)).map((d) => (d.kind === 'counted' ? d.position : d.kind));
      expect([...given].sort((a, b) => Number(a) - Number(b))).toEqual(firstPositions(20));
      expect(checkpoints.reads).toBe(1);
    });

    it('does not count while the checkpoint cannot be read', async () => {
      const checkpoints = new MemoryCheckpoints();
      checkpoints.read = () => Promise.reject(new Error('the bucket is away'));
      const [counter] = counters({ checkpoints }) as [TestAdmission];
      const of = scope(10);
      expect(await Promise.all([count(counter, of), count(counter, of)])).toEqual([
        { kind: 'unavailable' },
        { kind: 'unavailable' },
      ]);
      expect(await readUsage(store.redis(), of.id)).toEqual({
        month: month(),
        count: undefined,
      });
    });

    it('gives up a checkpoint that does not come', async () => {
      const checkpoints = new MemoryCheckpoints();
      checkpoints.read = () => new Promise(() => undefined);
      const [counter] = counters({ checkpoints }) as [TestAdmission];
      expect(await count(counter, scope(10))).toEqual({ kind: 'unavailable' });
    });

    it('takes an increment back once, and its position is given again', async () => {
      const [counter] = counters() as [TestAdmission];
      const of = scope(2);
      await burst([counter], of, 2);
      counter.refund(of, month());
      expect(await count(counter, of)).toMatchObject({ kind: 'counted', position: 2 });
      expect(await count(counter, of)).toMatchObject({ kind: 'exceeded', current: 2 });
    });
  });

  describe('usage', () => {
    it('is read without counting and set only as seen', async () => {
      const redis = store.redis();
      const [counter] = counters() as [TestAdmission];
      const of = scope(undefined);
      await burst([counter], of, 4);
      expect(await readUsage(redis, of.id)).toEqual({ month: month(), count: 4 });
      const change = { projectId: of.id, month: month(), count: 9 };
      expect(await setUsage(redis, { ...change, seen: 3 })).toEqual({ set: false, count: 4 });
      expect(await setUsage(redis, { ...change, seen: 4 })).toEqual({ set: true, count: 9 });
      expect(await count(counter, of)).toMatchObject({ position: 10 });
    });

    it('rejects when Redis does not answer', async () => {
      const closed = await connected(...store.server().urls);
      await closed.close();
      await expect(readUsage(closed, 'p')).rejects.toThrow('Redis does not answer');
    });
  });
});
