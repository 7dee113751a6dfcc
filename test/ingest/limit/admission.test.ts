/** A token and a position by one call: who is counted, who learns what, and what becomes of a late reply. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { AdmissionResult } from '../../../src/ingest/limit/admission.ts';
import { readUsage } from '../../../src/ingest/limit/month-count.ts';
import { quotaKey } from '../../../src/ingest/limit/scripts.ts';
import type { ProjectState } from '../../../src/projects/project-state.ts';
import {
  admissionOn,
  admit,
  clock,
  count,
  MemoryCheckpoints,
  projectOf,
  type TestAdmission,
} from './limit-fixture.ts';
import { STORES, useStore } from './stores.ts';

const BOTH = { token: true, count: true } as const;
const TOKEN = { token: true, count: false } as const;

describe.each(STORES)('on $name', (kind) => {
  const store = useStore(kind);
  let checkpoints: MemoryCheckpoints;
  let admission: TestAdmission;
  let project = 0;
  /** From the first of these calls on, each reply comes so much after its call by the admission's clock. */
  let late = { first: Number.POSITIVE_INFINITY, calls: 0, ms: 0 };

  beforeAll(async () => {
    checkpoints = new MemoryCheckpoints();
    admission = admissionOn(store.redis(), {
      store: checkpoints,
      monotonic: () => clock.monotonic() + late.ms * lateCalls(),
    });
  });
  afterEach(() => {
    late = { first: Number.POSITIVE_INFINITY, calls: 0, ms: 0 };
  });
  afterAll(async () => {
    admission?.close();
    await admission?.checkpoints.close();
  });

  const month = (): string => new Date().toISOString().slice(0, 7);
  /** With a count of one in this month. */
  async function counted(limit: number | undefined, quota: number | undefined): Promise<ProjectState> {
    const of = projectOf({ id: `admit-${++project}`, limit, quota });
    await count(admission, of);
    return of;
  }
  const used = async ({ id }: ProjectState): Promise<number | undefined> =>
    (await readUsage(store.redis(), id)).count;
  const calls = () => ({ ...store.redis().stats.calls });
  const positions = (all: readonly AdmissionResult[]): unknown[] =>
    all.map(({ count: decision }) => (decision?.kind === 'counted' ? decision.position : decision?.kind));
  const rates = (all: readonly AdmissionResult[]): unknown[] => all.map(({ rate }) => rate?.kind);

  const lateCalls = (): number => Math.min(late.calls, Math.max(0, calls().admit - late.first));
  const nextCallsAreLate = (n: number, ms: number): void => {
    late = { first: calls().admit, calls: n, ms };
  };

  it('is one call for all of a turn and project, which gives token and position', async () => {
    const of = await counted(60, 100);
    const before = calls();
    const all = await Promise.all([1, 2, 3].map(() => admit(admission, of, BOTH)));
    expect(positions(all)).toEqual([2, 3, 4]);
    expect(all.map(({ rate }) => rate)).toMatchObject([59, 58, 57].map((remaining) => ({ remaining })));
    expect(calls()).toEqual({ ...before, admit: before.admit + 1 });
    expect(await used(of)).toBe(4);
  });

  it('counts those that ask for it and have a token, in their order', async () => {
    const of = await counted(3, 100);
    const wants = [BOTH, TOKEN, { token: false, count: true }, BOTH, BOTH];
    const all = await Promise.all(wants.map((wanted) => admit(admission, of, wanted)));
    expect(rates(all)).toEqual(['admitted', 'admitted', undefined, 'admitted', 'refused']);
    expect(positions(all)).toEqual([2, undefined, 3, 4, undefined]);
    expect(await used(of)).toBe(4);
  });

  it('touches no count for tokens alone, and no window for a project without a limit', async () => {
    const of = projectOf({ id: `admit-${++project}`, limit: 60 });
    await admit(admission, of, TOKEN);
    expect(await used(of)).toBeUndefined();
    const free = await counted(undefined, undefined);
    expect(await admit(admission, free, BOTH)).toEqual({
      rate: undefined,
      count: { kind: 'counted', position: 2, month: month() },
    });
    const before = calls();
    expect(await admit(admission, free, TOKEN)).toEqual({ rate: undefined, count: undefined });
    expect(calls()).toEqual(before);
  });

  it('gives the token and refuses the count at the quota, and counts on with overage', async () => {
    const of = await counted(60, 2);
    const all = await Promise.all([admit(admission, of, BOTH), admit(admission, of, BOTH)]);
    expect(rates(all)).toEqual(['admitted', 'admitted']);
    expect(all.map(({ count: decision }) => decision)).toEqual([
      { kind: 'counted', position: 2, month: month() },
      { kind: 'exceeded', current: 2, month: month() },
    ]);
    of.update({ ...of.record, overage: true }, 2, 60);
    expect(positions([await admit(admission, of, BOTH)])).toEqual([3]);
  });

  it('counts on from the checkpoint when the month has no count; who comes meanwhile waits and joins', async () => {
    const of = projectOf({ id: `admit-${++project}`, limit: 60, quota: 2_000 });
    checkpoints.write(0, month(), new Map([[of.id, 1_000]]));
    const read = checkpoints.read.bind(checkpoints);
    let open = (): void => undefined;
    const readable = new Promise<void>((resolve) => {
      open = resolve;
    });
    let isAsked = (): void => undefined;
    const asked = new Promise<void>((resolve) => {
      isAsked = resolve;
    });
    checkpoints.read = (...which) => {
      isAsked();
      return readable.then(() => read(...which));
    };
    const first = admit(admission, of, BOTH);
    await asked;
    const rest = [admit(admission, of, BOTH), admit(admission, of, TOKEN)];
    open();
    checkpoints.read = read;
    const all = await Promise.all([first, ...rest]);
    expect(positions(all)).toEqual([1_001, 1_002, undefined]);
    expect(rates(all)).toEqual(['admitted', 'admitted', 'admitted']);
    expect(await used(of)).toBe(1_002);
  });

  it('serves who asks again in the flush that needs no call for it any more', async () => {
    const [of, other] = [await counted(60, 100), await counted(60, 100)];
    const again = new Promise<AdmissionResult>((resolve) =>
      admission.admit(of, TOKEN, () => admission.admit(other, TOKEN, resolve)),
    );
    of.limit = undefined;
    expect(rates([await again])).toEqual(['admitted']);
  });

  it('keeps the position of a request whose token came too late, and asks for another token once', async () => {
    const of = await counted(60, 100);
    nextCallsAreLate(1, 300);
    const all = await Promise.all([admit(admission, of, BOTH), admit(admission, of, TOKEN)]);
    expect(positions(all)).toEqual([2, undefined]);
    expect(rates(all)).toEqual(['admitted', 'admitted']);
    expect(calls().admit).toBe(late.first + 2);
    expect(await used(of)).toBe(2);
  });

  it('gives void tokens back with the next call, so that the limit is still used in full', async () => {
    const of = await counted(2, 100);
    nextCallsAreLate(1, 300);
    const all = await Promise.all([1, 2, 3].map(() => admit(admission, of, BOTH)));
    expect(rates(all)).toEqual(['admitted', 'admitted', 'refused']);
    expect(positions(all)).toEqual([2, 3, undefined]);
  });

  it('leases for longer while replies are slow, so that each request waits for one call', async () => {
    const of = await counted(60, 100);
    nextCallsAreLate(3, 600);
    const sent = calls().admit;
    expect(rates([await admit(admission, of, BOTH)])).toEqual(['admitted']);
    expect(rates([await admit(admission, of, BOTH)])).toEqual(['admitted']);
    expect(calls().admit - sent).toBe(3);
    expect(await used(of)).toBe(3);
  });

  it('takes the position back when the second token comes too late as well', async () => {
    const of = await counted(60, 100);
    nextCallsAreLate(2, 800);
    expect(await admit(admission, of, BOTH)).toEqual({ rate: { kind: 'unavailable' }, count: undefined });
    await expect.poll(() => used(of)).toBe(1);
  });

  it('does not wait again for a checkpoint that could not be read', async () => {
    const of = projectOf({ id: `admit-${++project}`, limit: 3 });
    const read = checkpoints.read.bind(checkpoints);
    let reads = 0;
    let fail = (_: Error): void => undefined;
    checkpoints.read = () => {
      reads++;
      return new Promise((_, reject) => {
        fail = reject;
      });
    };
    const first = [1, 2, 3, 4].map(() => admit(admission, of, BOTH));
    // The refused one knows at once, although the others wait for the checkpoint.
    expect((await first[3])?.rate).toMatchObject({ kind: 'refused' });
    fail(new Error('the bucket is away'));
    expect(positions(await Promise.all(first))).toEqual([
      'unavailable',
      'unavailable',
      'unavailable',
      undefined,
    ]);
    const free = projectOf({ ...of.record, id: of.id });
    Object.assign(free.slots, of.slots);
    expect(positions([await admit(admission, free, { token: false, count: true })])).toEqual(['unavailable']);
    expect(reads).toBe(1);
    checkpoints.read = read;
  });

  it('is one call for many projects of a turn, of which one may fail for itself', async () => {
    const all = await Promise.all(Array.from({ length: 70 }, () => counted(60, 100)));
    const broken = all[7] as ProjectState;
    await store.server().set(quotaKey(broken.id), 'foreign');
    const told = await Promise.all(
      all.map((of) => Promise.all([admit(admission, of, BOTH), admit(admission, of, TOKEN)])),
    );
    told.forEach((pair, i) => {
      expect(rates(pair)).toEqual(['admitted', 'admitted']);
      expect(positions(pair)).toEqual([all[i] === broken ? 'unavailable' : 2, undefined]);
    });
    expect(store.redis().available).toBe(true);
  });
});
