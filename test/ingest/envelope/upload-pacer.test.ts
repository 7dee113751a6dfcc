import { rmSync } from 'node:fs';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { Holding } from '../../../src/ingest/envelope/budget.ts';
import { InflationQueue, type QueuedBody } from '../../../src/ingest/envelope/inflate/inflation-queue.ts';
import { systemClock } from '../../../src/lib/clock.ts';
import { Slotted } from '../../../src/lib/slots.ts';
import {
  INFLATED_AT_ONCE_BYTES_MAX,
  INFLATING_BYTES_MAX,
  INFLATION_WAIT_MS_MAX,
  QUEUED_BYTES_MAX,
  SPOOL_BLOCK_BYTES,
  SWOLLEN_FREE_MIB,
  SWOLLEN_REST_MS_PER_MIB,
  SYNC_INFLATE_BYTES_MAX,
  WHOLE_UPLOADS_BYTES_MAX,
} from '../../../src/limits.ts';
import { temporaryFolder } from '../../support/servers.ts';
import {
  cutEvery,
  eventBody,
  feedAll,
  payloadBytes,
  startUpload,
  testBudget,
  type UploadRun,
} from './bodies.ts';
import { RUNTIME_HAS_ZSTD, zstdBlocks } from './zstd-bytes.ts';

/** As fast as it goes: how well it compresses is of no interest here. */
const brotli = (body: Uint8Array): Buffer =>
  brotliCompressSync(body, { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } });

describe('an upload that is spooled', () => {
  let spoolDir: string;
  beforeAll(() => {
    spoolDir = temporaryFolder('spool');
  });
  afterAll(() => rmSync(spoolDir, { recursive: true }));

  test('is paused while the pacer is full, and resumed after', async () => {
    const budget = testBudget({ spoolDir });
    const { upload, pressure, result } = startUpload('', budget);
    budget.pacer.addWhole(WHOLE_UPLOADS_BYTES_MAX);
    const pieces = cutEvery(eventBody(300_000), 200_000);
    upload.feed(pieces[0] as Buffer);
    expect(pressure).toEqual([true]);
    budget.pacer.addWhole(-WHOLE_UPLOADS_BYTES_MAX);
    await nextTurn();
    expect(pressure).toEqual([true, false]);
    upload.feed(pieces[1] as Buffer);
    upload.end();
    expect((await result).ok).toBe(true);
    upload.dispose();
  });

  test('counts as whole from its last byte until it is disposed of, and not at all where it fails', async () => {
    const budget = testBudget({ spoolDir });
    const { upload, result } = startUpload('', budget);
    upload.feed(eventBody(300_000));
    expect(budget.pacer.wholeBytes).toBe(0);
    upload.end();
    const verdict = await result;
    expect(budget.pacer.wholeBytes).toBe(verdict.ok && payloadBytes(verdict.envelope));
    expect(budget.pacer.wholeBytes).toBeGreaterThan(290_000);
    upload.dispose();
    expect(budget.pacer.wholeBytes).toBe(0);
    const failing = startUpload('', budget);
    feedAll(failing.upload, [Buffer.from(`{}\n{"type":"event","length":300001}\n${'x'.repeat(300_000)}`)]);
    expect([(await failing.result).ok, budget.pacer.wholeBytes]).toEqual([false, 0]);
  });

  test('is paused as well while others wait for the disk, and counts what itself waits', async () => {
    const budget = testBudget({ spoolDir });
    const other = new Holding(budget, new Slotted());
    const { upload, pressure, result } = startUpload('', budget);
    upload.feed(eventBody(300_000));
    expect(pressure).toEqual([]);
    // What of it waits fills the rest.
    other.queue(QUEUED_BYTES_MAX - SPOOL_BLOCK_BYTES);
    expect(pressure).toEqual([true]);
    other.close();
    await nextTurn();
    expect(pressure).toEqual([true, false]);
    upload.end();
    await result;
    upload.dispose();
  });

  test.each(['gzip', 'br', ...(RUNTIME_HAS_ZSTD ? ['zstd'] : [])])(
    'in %s leaves nothing in the sums, however it ends',
    async (encoding) => {
      const budget = testBudget({ spoolDir });
      const compress = { gzip: gzipSync, br: brotli, zstd: zstdBlocks }[encoding] as typeof gzipSync;
      const body = compress(eventBody(3_000_000));
      const whole = startUpload(encoding, budget);
      feedAll(whole.upload, cutEvery(body, 1 + (body.length >> 1)));
      expect((await whole.result).ok).toBe(true);
      const left = startUpload(encoding, budget);
      left.upload.feed(body.subarray(0, body.length >> 1));
      left.upload.feed(body.subarray(body.length >> 1, -1));
      for (const { upload } of [whole, left]) upload.dispose();
      expect([budget.pacer.wholeBytes, budget.pacer.queuedBytes, budget.heldBytes]).toEqual([0, 0, 0]);
    },
  );

  test('and a small one never wait for it', async () => {
    const budget = testBudget({ spoolDir });
    budget.pacer.addWhole(WHOLE_UPLOADS_BYTES_MAX);
    const { upload, pressure, result } = startUpload('', budget);
    upload.feed(eventBody(1_000));
    upload.end();
    expect((await result).ok).toBe(true);
    expect(pressure).toEqual([]);
    upload.dispose();
  });
});

describe('small bodies that inflate to much', () => {
  const LARGEST = 20 * 1024 * 1024;
  const told: string[] = [];
  let queue: InflationQueue;
  beforeEach(() => {
    vi.useFakeTimers();
    told.length = 0;
    queue = new InflationQueue(systemClock);
  });
  afterEach(() => vi.useRealTimers());

  function add(name: string, project: Slotted, bytes = LARGEST, swells = false): QueuedBody {
    const start = () => void told.push(`${name} starts`);
    const refuse = () => void told.push(`${name} is refused`);
    const inflation = { project, bytes, swells, inflated: () => bytes, start, refuse };
    queue.note(project, performance.now());
    queue.add(inflation);
    return inflation;
  }
  const addBomb = (name: string, project: Slotted): QueuedBody => add(name, project, LARGEST, true);
  const REST_MS = (LARGEST / 1024 / 1024) * SWOLLEN_REST_MS_PER_MIB;
  /** All that is free has swollen by now. */
  function useUp(project: Slotted): void {
    queue.leave(add('first', project, SWOLLEN_FREE_MIB * 1024 * 1024, true));
    told.length = 0;
  }

  test('are inflated a few at a time; the next is one of the project that has the fewest in work', () => {
    const [greedy, modest] = [new Slotted(), new Slotted()];
    const first = add('a1', greedy);
    add('a2', greedy);
    const other = add('b1', modest);
    expect(told).toEqual(['a1 starts']);
    queue.leave(first);
    expect(told).toEqual(['a1 starts', 'a2 starts']);
    add('small', modest, INFLATED_AT_ONCE_BYTES_MAX - LARGEST);
    expect(told).toEqual(['a1 starts', 'a2 starts']); // in its turn
    queue.leave(other);
    expect(told).toEqual(['a1 starts', 'a2 starts', 'small starts']);
  });

  test('are refused at once beyond the share of their project, and others still find room', () => {
    const [greedy, modest] = [new Slotted(), new Slotted()];
    for (let count = 0; count < 50; count++) add('a', greedy);
    expect(told.filter((one) => one === 'a is refused')).toHaveLength(46);
    expect(queue.share.of(greedy)).toBe(4 * LARGEST);
    add('b', modest);
    expect(told.at(-1)).not.toBe('b is refused');
    expect(queue.share.of(greedy) + queue.share.of(modest)).toBeLessThanOrEqual(INFLATING_BYTES_MAX);
  });

  test('that wait too long are refused while there is time to say so, and make room', () => {
    const project = new Slotted();
    const first = add('a1', project);
    add('a2', project);
    vi.advanceTimersByTime(INFLATION_WAIT_MS_MAX);
    expect(told).toEqual(['a1 starts', 'a2 is refused']);
    queue.leave(first);
    queue.leave(first);
    expect(queue.share.of(project)).toBe(0);
    expect(told).toHaveLength(2);
  });

  test('rest after one that swells, while other projects send: those that swell are refused meanwhile', () => {
    const [greedy, modest] = [new Slotted(), new Slotted()];
    useUp(greedy);
    const first = addBomb('bomb 1', greedy);
    addBomb('bomb 2', greedy);
    queue.note(modest, performance.now());
    queue.leave(first);
    addBomb('bomb 3', greedy);
    expect(told).toEqual(['bomb 1 starts', 'bomb 3 is refused']);
    queue.leave(add('ordinary', greedy));
    queue.leave(addBomb('of another', modest));
    expect(told.slice(2)).toEqual(['ordinary starts', 'of another starts']);
    vi.advanceTimersByTime(REST_MS - 1);
    addBomb('bomb 4', greedy);
    vi.advanceTimersByTime(1);
    addBomb('bomb 5', greedy);
    expect(told.slice(4)).toEqual(['bomb 2 is refused', 'bomb 4 is refused', 'bomb 5 starts']);
  });

  test.each([
    ['just before', 0, ['bomb 1 starts', 'bomb 2 is refused']],
    ['long before', 2_001, ['bomb 1 starts', 'bomb 2 starts']],
  ])('rest after one that swells when another project sent something %s', (_, ms, expected) => {
    const project = new Slotted();
    useUp(project);
    queue.note(new Slotted(), performance.now());
    vi.advanceTimersByTime(ms);
    for (let count = 1; count <= 2; count++) queue.leave(addBomb(`bomb ${count}`, project));
    expect(told).toEqual(expected);
  });

  test('do not rest while no other project sends, and rest after one of them when another one begins', () => {
    const project = new Slotted();
    useUp(project);
    for (let count = 1; count <= 3; count++) queue.leave(addBomb(`bomb ${count}`, project));
    expect(told).toEqual(['bomb 1 starts', 'bomb 2 starts', 'bomb 3 starts']);
    queue.note(new Slotted(), performance.now());
    addBomb('bomb 4', project);
    vi.advanceTimersByTime(REST_MS);
    addBomb('bomb 5', project);
    expect(told.slice(3)).toEqual(['bomb 4 is refused', 'bomb 5 starts']);
  });

  test('swell without a rest until so much of them is used up, and again later', () => {
    const [project, other] = [new Slotted(), new Slotted()];
    const bombs = (): string[] => {
      told.length = 0;
      for (let count = 1; count <= 5; count++) {
        queue.note(other, performance.now());
        queue.leave(addBomb(`bomb ${count}`, project));
      }
      return told.filter((one) => one.endsWith('starts'));
    };
    const free = Math.floor(SWOLLEN_FREE_MIB / (LARGEST / 1024 / 1024)) + 1;
    expect(bombs()).toHaveLength(free);
    vi.advanceTimersByTime(free * REST_MS);
    expect(bombs()).toHaveLength(free);
  });

  test('earn nothing by the time since their debt was paid, when its timer is late', () => {
    let now = 0;
    queue = new InflationQueue({ monotonic: () => now });
    const [greedy, modest] = [new Slotted(), new Slotted()];
    queue.leave(addBomb('first', greedy));
    now = 10 * REST_MS;
    queue.leave(add('second', greedy, (SWOLLEN_FREE_MIB + 10) * 1024 * 1024, true));
    queue.note(modest, now + 1);
    addBomb('third', greedy);
    expect(told.at(-1)).toBe('third is refused');
  });

  test('that swell without saying so rest too, and end where their project rests', () => {
    const [greedy, modest] = [new Slotted(), new Slotted()];
    useUp(greedy);
    const [first, second] = [add('a1', greedy, 1024 * 1024), add('a2', greedy, 1024 * 1024)];
    expect(queue.swell(first)).toBe(true);
    queue.note(modest, performance.now());
    queue.leave(first);
    expect(queue.swell(second)).toBe(false);
    addBomb('bomb', greedy);
    expect(told.at(-1)).toBe('bomb is refused');
  });

  test('that say less than they inflate to count in full from then on, and end where there is no room', () => {
    const project = new Slotted();
    const liars = Array.from({ length: 20 }, (_, at) => add(`${at}`, project, 1024 * 1024));
    expect(liars.map((liar) => queue.grow(liar, LARGEST)).filter(Boolean)).toHaveLength(1);
    for (const liar of liars) queue.leave(liar);
    expect(queue.share.of(project)).toBe(0);
  });
});

describe('bombs', () => {
  const bomb = gzipSync(`{}\n{"type":"event"}\n"${'x'.repeat(19 * 1024 * 1024)}"`);

  test.each([
    ['in one piece', bomb.length],
    ['in many pieces', 1_000],
  ])(
    'that come %s wait compressed for their turn, and the one too many is refused at once',
    async (_, piece) => {
      const budget = testBudget();
      // Each is of another project: what ends it is the bound of all.
      const count = Math.floor(INFLATING_BYTES_MAX / (19 * 1024 * 1024)) + 1;
      const runs = Array.from({ length: count }, () => startUpload('gzip', budget));
      for (const { upload } of runs) feedAll(upload, cutEvery(bomb, piece));
      const last = runs.at(-1) as UploadRun;
      expect(await last.result).toMatchObject({ ok: false, failure: { kind: 'overloaded' } });
      expect(budget.spooledBytes).toBeLessThan(20 * 1024 * 1024);
      expect((await (runs[0] as UploadRun).result).ok).toBe(true);
      for (const { upload } of runs) upload.dispose();
      expect([budget.heldBytes, budget.spooledBytes]).toEqual([0, 0]);
    },
  );

  test('that do not say their size end when they turn out to be many; ordinary bodies do not', async () => {
    const whole = `{}\n{"type":"event"}\n"${'x'.repeat(19 * 1024 * 1024)}"`;
    const budget = testBudget();
    const ordinary = brotli(eventBody(250_000));
    expect(ordinary.length).toBeGreaterThan(SYNC_INFLATE_BYTES_MAX);
    const honest = Array.from({ length: 8 }, () => startUpload('br', budget));
    for (const { upload } of honest) feedAll(upload, cutEvery(ordinary, 10_000));
    for (const { upload, result } of honest) {
      expect((await result).ok).toBe(true);
      upload.dispose();
    }
    const silent = brotli(Buffer.from(whole));
    const bombs = Array.from({ length: 8 }, () => startUpload('br', budget));
    for (const { upload } of bombs) feedAll(upload, [silent]);
    const results = await Promise.all(bombs.map(({ result }) => result));
    expect(results.filter(({ ok }) => ok).length).toBeLessThanOrEqual(3);
    for (const { upload } of bombs) upload.dispose();
    expect([budget.heldBytes, budget.spooledBytes]).toEqual([0, 0]);
  });
});
