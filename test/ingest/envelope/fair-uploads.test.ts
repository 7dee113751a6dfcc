/** What projects share of a worker while bodies arrive: memory, requests, the spool, and the places of large uploads. */

import { randomBytes } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import zlib, { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { newParser } from '../../../src/ingest/envelope/parser.ts';
import {
  DISTRUST,
  Upload,
  type UploadBudget,
  type UploadResult,
} from '../../../src/ingest/envelope/upload.ts';
import { Slotted } from '../../../src/lib/slots.ts';
import {
  HELD_BYTES_MAX,
  HELD_BYTES_SCARCE,
  INFLATING_BYTES_MAX,
  INLINE_BYTES_MAX,
  REQUESTS_IN_FLIGHT_MAX,
  SWOLLEN_FREE_MIB,
  SYNC_INFLATE_BYTES_MAX,
  UNPACED_BYTES_MAX,
  UPLOADS_MAX,
} from '../../../src/limits.ts';
import { testBudget } from './bodies.ts';

const MIB = 1024 * 1024;
/** As fast as it goes: how well a bomb compresses is of no interest here. */
const quickBrotli = (body: Uint8Array | string): Buffer =>
  brotliCompressSync(body, { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 1 } });
const BEGIN = Buffer.from('{}\n{"type":"event"}\n');
const uploads: Upload[] = [];
let budget: UploadBudget;
let greedy: Slotted;
let modest: Slotted;
beforeEach(() => {
  budget = testBudget();
  [greedy, modest] = [new Slotted(), new Slotted()];
});
afterEach(() => {
  for (const upload of uploads.splice(0)) upload.dispose();
  vi.useRealTimers();
  vi.restoreAllMocks();
});

/** @returns the upload, and what has been told of it */
function start(project: Slotted, encoding = '') {
  let told: UploadResult | undefined;
  let paused = false;
  const upload = new Upload({
    encoding,
    newReader: newParser,
    budget,
    project,
    onResult: (result) => {
      told = result;
    },
    onPressure: (is) => {
      paused = is;
    },
    onWaitsForLeave: () => upload.proceed(),
  });
  uploads.push(upload);
  return { upload, told: () => told, paused: () => paused };
}

/** @returns what has been told of an upload of so many bytes that never ends */
function begin(project: Slotted, bytes: number): Told {
  const { upload, told } = start(project);
  upload.feed(BEGIN);
  for (let at = 0; at < bytes; at += 64 * 1024) upload.feed(Buffer.alloc(Math.min(64 * 1024, bytes - at)));
  return told;
}

type Told = () => UploadResult | undefined;
/** @returns what has been told of an upload of this body */
function send(project: Slotted, encoding: string, body: Uint8Array, isWhole = false): Told {
  const { upload, told } = start(project, encoding);
  upload.feed(body, isWhole);
  upload.end();
  return told;
}

const overloaded = { ok: false, failure: { kind: 'overloaded' } };

it('a project that has half of the spool is refused more, and others go on', () => {
  budget = testBudget({ spoolBytesMax: 16 * MIB });
  const first = [begin(greedy, 4 * MIB), begin(greedy, 3 * MIB)];
  const over = begin(greedy, 4 * MIB);
  expect(over()).toMatchObject(overloaded);
  expect(begin(modest, 4 * MIB)()).toBeUndefined();
  expect(first.map((told) => told())).toEqual([undefined, undefined]);
  for (const upload of uploads.splice(0)) upload.dispose();
  expect([budget.spooledBytes, budget.shares.spooled.of(greedy), budget.shares.spooled.of(modest)]).toEqual([
    0, 0, 0,
  ]);
  expect(begin(greedy, 4 * MIB)()).toBeUndefined();
});

it('a project that has half of the places for large uploads is refused more, and others go on', () => {
  for (let count = 0; count < UPLOADS_MAX / 2; count++) budget.shares.uploads.add(greedy, 1);
  const bytes = INLINE_BYTES_MAX + 1;
  expect(begin(greedy, bytes)()).toMatchObject(overloaded);
  expect(begin(greedy, 1_000)()).toBeUndefined();
  expect(begin(modest, bytes)()).toBeUndefined();
  for (const upload of uploads.splice(0)) upload.dispose();
  expect([budget.shares.uploads.of(greedy), budget.shares.uploads.of(modest)]).toEqual([UPLOADS_MAX / 2, 0]);
});

it('bodies that were whole and inflated at once pause no upload of others, and are refused above half of what may wait', async () => {
  // Less than 64 times its size comes out: it counts as no bomb.
  const text = randomBytes(20_000).toString('base64').repeat(34);
  const body = Buffer.from(`{}\n{"type":"event"}\n{"message":"${text}"}`);
  const packed = gzipSync(body);
  expect(packed.length).toBeLessThan(SYNC_INFLATE_BYTES_MAX);
  const arriving = start(modest);
  arriving.upload.feed(BEGIN);
  arriving.upload.feed(Buffer.alloc(INLINE_BYTES_MAX + 1));
  const refused: boolean[] = [];
  for (let sent = 0; sent < UNPACED_BYTES_MAX; sent += body.length) {
    refused.push(send(greedy, 'gzip', packed, true)()?.ok === false);
    while (budget.pacer.queuedBytes > 0) await nextTurn(); // the disk
  }
  expect(arriving.paused()).toBe(false);
  const taken = refused.indexOf(true);
  expect(taken * body.length).toBeGreaterThan(UNPACED_BYTES_MAX / 2 - 2 * body.length);
  expect(refused.slice(taken)).not.toContain(false);
  expect(send(modest, 'gzip', packed, true)()).toBeUndefined();
  expect([budget.shares.uploads.of(greedy), budget.shares.uploads.of(modest)]).toEqual([taken, 2]);
  for (const upload of uploads.splice(0)) upload.dispose();
  expect([
    budget.shares.unpaced.of(greedy),
    budget.shares.uploads.of(greedy),
    budget.shares.unpaced.of(modest),
    budget.spooledBytes,
  ]).toEqual([0, 0, 0, 0]);
});

it('a project that holds half of the memory gets no more requests, and others do', () => {
  budget.hold(HELD_BYTES_MAX / 2, greedy);
  expect(begin(greedy, 1_000)()).toBeUndefined();
  expect(begin(modest, 1_000)()).toBeUndefined();
  expect([budget.hasRoomFor(greedy), budget.hasRoomFor(modest)]).toEqual([false, true]);
  budget.hold(-HELD_BYTES_MAX / 2, greedy);
  for (const upload of uploads.splice(0)) upload.dispose();
  expect([
    budget.heldBytes,
    budget.shares.held.of(greedy),
    budget.shares.held.of(modest),
    budget.hasRoomFor(greedy),
  ]).toEqual([0, 0, 0, true]);
});

it('when memory is scarce, uploads of a project that holds more than its share end, and others go on', () => {
  budget.hold(HELD_BYTES_SCARCE, greedy);
  expect(begin(greedy, 1_000)()).toMatchObject(overloaded);
  expect(begin(modest, 1_000)()).toBeUndefined();
});

it('a project that has half of the requests in flight is refused more, and others go on', () => {
  for (let count = 0; count < REQUESTS_IN_FLIGHT_MAX / 2; count++) {
    expect(budget.hasRoomFor(greedy)).toBe(true);
    begin(greedy, 0);
  }
  begin(greedy, 0);
  expect([budget.hasRoomFor(greedy), budget.hasRoomFor(modest)]).toEqual([false, true]);
  for (const upload of uploads.splice(0)) upload.dispose();
  expect([budget.shares.requests.of(greedy), budget.hasRoomFor(greedy)]).toEqual([0, true]);
});

it.each([
  ['br', quickBrotli(Buffer.alloc(19 * MIB))],
  ['deflate', deflateSync(Buffer.alloc(19 * MIB))],
])(
  'a project that inflates half of what may be is refused a %s body of unknown size unread',
  (encoding, body) => {
    const inflation = {
      project: greedy,
      bytes: INFLATING_BYTES_MAX / 2 + 1,
      swells: false,
      inflated: () => 0,
      start: () => undefined,
      refuse: () => undefined,
    };
    budget.inflationQueue.add(inflation);
    const reads = [vi.spyOn(zlib, 'brotliDecompressSync'), vi.spyOn(zlib, 'inflateSync')];
    expect(send(greedy, encoding, body)()).toMatchObject(overloaded);
    expect(reads.map(({ mock }) => mock.calls.length)).toEqual([0, 0]);
    expect(send(modest, encoding, body)()).toBeUndefined();
    expect(reads.flatMap(({ mock }) => mock.calls)).toHaveLength(1);
    budget.inflationQueue.leave(inflation);
  },
);

it.each([
  ['br', quickBrotli],
  ['gzip', gzipSync],
])(
  'a project whose %s bodies swelled rests while others send; ordinary ones of any size go on',
  async (encoding, pack) => {
    // Clock and timers stand still: debts are paid off by time, and a busy machine would take some.
    vi.useFakeTimers({ toFake: ['performance', 'setTimeout', 'clearTimeout'] });
    const packed = (text: string): Buffer => pack(`{}\n{"type":"event"}\n"${text}"`);
    const sent = async (project: Slotted, body: Buffer): Promise<UploadResult | undefined> => {
      budget.inflationQueue.note(project, performance.now());
      const told = send(project, encoding, body);
      await expect.poll(told).toBeDefined();
      uploads.pop()?.dispose();
      return told();
    };
    const bomb = packed('x'.repeat(16 * MIB));
    const ordinary = packed(randomBytes(40_000).toString('hex') + 'x'.repeat(2 * MIB));
    for (let mib = 0; mib <= SWOLLEN_FREE_MIB; mib += 16)
      expect(await sent(greedy, bomb)).toMatchObject({ ok: true });
    expect(await sent(modest, packed('x'))).toMatchObject({ ok: true });
    expect(await sent(greedy, bomb)).toMatchObject(overloaded);
    expect(await sent(greedy, ordinary)).toMatchObject({ ok: true });
    expect(await sent(modest, bomb)).toMatchObject({ ok: true });
  },
);

it('bodies that were expected to swell, after a bomb, and do not are no debt', async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  const text = randomBytes(4_000).toString('hex').repeat(125);
  const body = brotliCompressSync(`{}\n{"type":"event"}\n"${text}"`);
  for (let mib = 0; mib <= 1.25 * SWOLLEN_FREE_MIB; mib += text.length / MIB) {
    for (const project of [modest, greedy]) budget.inflationQueue.note(project, performance.now());
    DISTRUST.of(greedy).bodies = 100;
    await expect.poll(send(greedy, 'br', body)).toMatchObject({ ok: true });
    uploads.pop()?.dispose();
  }
});

it('a bomb that does not say its size is followed by bodies that are inflated beside the loop', async () => {
  const small = brotliCompressSync('{}\n{"type":"event"}\n{}');
  const bomb = brotliCompressSync(`{}\n{"type":"event"}\n{"x":"${'x'.repeat(2 * MIB)}"}`);
  expect(send(greedy, 'br', small)()).toMatchObject({ ok: true });
  expect(send(greedy, 'br', bomb)()).toBeUndefined();
  const told = send(greedy, 'br', small);
  expect([told(), DISTRUST.of(greedy).bodies > 0]).toEqual([undefined, true]);
  expect(send(modest, 'br', small)()).toMatchObject({ ok: true });
  await expect.poll(told).toMatchObject({ ok: true });
  // A bomb that is inflated there earns no trust.
  DISTRUST.of(greedy).bodies = 1;
  send(greedy, 'br', bomb);
  await expect.poll(() => DISTRUST.of(greedy).bodies).toBeGreaterThan(1);
});

it('corrupt bodies that do not say their size are followed by bodies that are inflated beside the loop', async () => {
  const invalid = { ok: false, failure: { kind: 'invalid' } };
  const params = { [zlib.constants.BROTLI_PARAM_LGWIN]: 18 };
  const corrupt = brotliCompressSync('{}\n{"type":"event"}\n{}', { params }).subarray(0, -3);
  // Its window of 16 MiB is not filled in the event loop.
  const withLargeWindow = Buffer.from('9fffffef002400e2b14072efdf05', 'hex');
  expect(send(greedy, 'br', corrupt)()).toMatchObject(invalid);
  const told = send(greedy, 'br', corrupt);
  expect(told()).toBeUndefined();
  await expect.poll(told).toMatchObject(invalid);
  DISTRUST.of(greedy).bodies = 0;
  await expect.poll(send(greedy, 'br', withLargeWindow)).toMatchObject(invalid);
  expect(DISTRUST.of(greedy).bodies).toBeGreaterThan(0);
});
