import { createHash } from 'node:crypto';
import { fstatSync, open, rmSync } from 'node:fs';
import { readdir, readlink } from 'node:fs/promises';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newParser } from '../../../src/ingest/envelope/parser.ts';
import { type HeldEnvelope, Upload } from '../../../src/ingest/envelope/upload.ts';
import { Slotted } from '../../../src/lib/slots.ts';
import {
  HELD_BYTES_MAX,
  HELD_BYTES_TIGHT,
  INLINE_BYTES_MAX,
  INLINE_BYTES_MIN,
  SPOOL_BLOCK_BYTES,
  SPOOL_BYTES_MAX,
  SPOOL_QUEUE_BYTES_MAX,
} from '../../../src/limits.ts';
import { temporaryFolder } from '../../support/servers.ts';
import * as bodies from './bodies.ts';
import {
  bytesOf,
  cutAtRandom,
  cutEvery,
  encodeEnvelope,
  eventBody,
  feedAll,
  payloadBytes,
  seeded,
  shapeOf,
  startUpload,
  testBudget,
} from './bodies.ts';

let spoolDir: string;
beforeAll(() => {
  spoolDir = temporaryFolder('upload-large');
});
afterAll(() => rmSync(spoolDir, { recursive: true }));

const envelopeOf = (chunks: readonly Buffer[], budget = testBudget({ spoolDir })): Promise<HeldEnvelope> =>
  bodies.envelopeOf(chunks, '', budget);

/** What may come on top of the bound before the socket is paused: a chunk and a block that is being filled. */
const SPOOL_MORE_BYTES_MAX = INLINE_BYTES_MAX + SPOOL_BLOCK_BYTES;

describe('a large envelope', () => {
  const sha = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

  test('arrives intact from a file that has no name, whatever the chunks', async () => {
    const size = 5 * 1024 * 1024 - 100;
    const body = eventBody(size);
    const expected = sha(body.subarray(body.length - size));
    for (const chunks of [[body], cutEvery(body, 65_536), cutAtRandom(body, seeded(3), 200)]) {
      const budget = testBudget({ spoolDir });
      const { upload, result } = startUpload('', budget);
      feedAll(upload, chunks);
      const verdict = await result;
      if (!verdict.ok) throw new Error(verdict.failure.detail);
      const { spool, items } = verdict.envelope;
      const bytes = payloadBytes(verdict.envelope);
      expect(await readdir(spoolDir)).toEqual([]);
      expect([spool?.length, items[0]?.length, bytes, budget.spooledBytes]).toEqual([size, size, size, size]);
      expect(items[0]?.payload).toBeUndefined();
      expect(sha((await spool?.read(0, size)) ?? Buffer.alloc(0))).toBe(expected);
      expect(budget.heldBytes).toBeLessThan(1000);
      upload.dispose();
      expect([budget.heldBytes, budget.spooledBytes]).toEqual([0, 0]);
    }
  });

  test('has its payloads one after the other, those held before it became large first', async () => {
    const random = seeded(5);
    const payload = (bytes: number): Buffer =>
      Buffer.from(Array.from({ length: bytes }, () => Math.floor(random() * 256)));
    const items = [1000, 0, 60_000, 80_000, 5, 300_000, 1].map((bytes, i) => ({
      header: { type: i === 3 ? 'attachment' : 'log', length: bytes },
      payload: payload(bytes),
    }));
    const body = encodeEnvelope({}, items);
    const whole = await shapeOf(await envelopeOf([body]));
    expect(whole).toMatchObject({ bytes: 361_006, skipped: { attachment: 1 } });
    for (let seed = 0; seed < 20; seed++) {
      const envelope = await envelopeOf(cutAtRandom(body, seeded(seed), 30));
      expect(envelope.spool?.length).toBe(361_006);
      expect(await shapeOf(envelope), `seed ${seed}`).toEqual(whole);
    }
    const stored = items.filter((item) => item.header.type === 'log');
    expect((whole as { items: { payload: string }[] }).items.map((item) => item.payload)).toEqual(
      stored.map((item) => item.payload.toString('latin1')),
    );
  });

  test('is one that exceeds the inline bound by a byte', async () => {
    expect((await envelopeOf([eventBody(INLINE_BYTES_MAX)])).spool).toBeUndefined();
    expect((await envelopeOf([eventBody(INLINE_BYTES_MAX + 1)])).spool?.length).toBe(INLINE_BYTES_MAX + 1);
  });

  test('is a smaller one when the worker holds much', async () => {
    const budget = testBudget({ spoolDir });
    budget.hold(HELD_BYTES_TIGHT + 1, new Slotted());
    expect((await envelopeOf([eventBody(INLINE_BYTES_MIN + 1)], budget)).spool?.length).toBe(
      INLINE_BYTES_MIN + 1,
    );
    expect((await envelopeOf([eventBody(INLINE_BYTES_MIN)], budget)).spool).toBeUndefined();
  });

  test('pauses the socket while the disk is behind and resumes it before the verdict', async () => {
    const { upload, pressure, result } = startUpload('', testBudget({ spoolDir }));
    feedAll(upload, cutEvery(eventBody(4 * 1024 * 1024), 512 * 1024));
    const atVerdict = await result.then(() => [...pressure]);
    expect(atVerdict).toEqual([true, false]);
    upload.dispose();
  });
});

test('a refusal that comes while the socket is paused resumes it first', () => {
  const told: string[] = [];
  const upload = new Upload({
    encoding: '',
    newReader: newParser,
    budget: testBudget({ spoolDir }),
    project: new Slotted(),
    onResult: (result) => told.push(result.ok ? 'taken' : result.failure.kind),
    onPressure: (paused) => told.push(paused ? 'pause' : 'resume'),
    onWaitsForLeave: () => upload.proceed(),
  });
  upload.feed(bytesOf(`{}\n{"type":"log","length":2000000}\n${'x'.repeat(2_000_000)}`));
  expect(told).toEqual(['pause']);
  upload.feed(bytesOf('x'));
  expect(told).toEqual(['pause', 'resume', 'invalid']);
  upload.dispose();
});

describe('a large envelope that may not go to disk yet', () => {
  function startHeld(encoding = '') {
    const budget = testBudget({ spoolDir });
    const { disk } = budget;
    const open = disk.open.bind(disk);
    let fd: number | undefined;
    disk.open = (done) =>
      open((error, opened) => {
        fd = opened;
        done(error, opened);
      });
    /** Bytes in the file. */
    const written = (): number => (fd === undefined ? 0 : fstatSync(fd).size);
    const asked: (() => void)[] = [];
    const run = startUpload(encoding, budget, (upload) => asked.push(() => upload.proceed()));
    return { ...run, budget, written, asked };
  }
  const other = eventBody(1_000_000);
  /** Time enough for a write that was begun: others come and go. */
  const letOthersPass = async (): Promise<void> => {
    for (let i = 0; i < 8; i++) expect(payloadBytes(await envelopeOf([other]))).toBe(1_000_000);
  };
  /** Files of this test that are open, named or not. */
  async function spoolsOpen(): Promise<number> {
    const fds = await readdir('/proc/self/fd');
    const links = await Promise.all(fds.map((fd) => readlink(`/proc/self/fd/${fd}`).catch(() => '')));
    return links.filter((link) => link.startsWith(`${spoolDir}/`)).length;
  }

  test.each(['', 'gzip'])(
    'waits in memory, bounded, its client paused, and then all arrives (%s)',
    async (encoding) => {
      const { upload, budget, written, asked, pressure, result } = startHeld(encoding);
      const plain = eventBody(4_500_000);
      const chunks = cutEvery(encoding === '' ? plain : gzipSync(plain), 65_536);
      let fed = 0;
      const isPaused = (): boolean => pressure.at(-1) === true;
      do {
        for (; !isPaused(); await new Promise(setImmediate)) upload.feed(chunks[fed++] as Buffer);
        await letOthersPass();
      } while (!isPaused());
      expect([asked.length, written()]).toEqual([1, 0]);
      expect(budget.spooledBytes).toBeLessThan(SPOOL_QUEUE_BYTES_MAX + SPOOL_MORE_BYTES_MAX);
      expect(budget.heldBytes).toBeLessThan(2 * SPOOL_QUEUE_BYTES_MAX);
      expect(fed).toBeLessThan(chunks.length);

      asked[0]?.();
      await expect.poll(() => pressure.at(-1)).toBe(false);
      feedAll(upload, chunks.slice(fed));
      const verdict = await result;
      if (!verdict.ok) throw new Error(verdict.failure.detail);
      const whole = plain.subarray(plain.length - 4_500_000);
      expect(whole.equals((await verdict.envelope.spool?.read(0, whole.length)) ?? Buffer.alloc(0))).toBe(
        true,
      );
      expect([asked.length, written()]).toEqual([1, whole.length]);
      upload.dispose();
      expect([budget.heldBytes, budget.spooledBytes]).toEqual([0, 0]);
    },
  );

  test.each([0, 300_000])(
    'leaves nothing behind when it is given up first, %i bytes after it asked',
    async (more) => {
      const before = await spoolsOpen();
      const { upload, budget, asked } = startHeld();
      upload.feed(eventBody(INLINE_BYTES_MAX + 1 + more));
      expect([asked.length, await spoolsOpen()]).toEqual([1, before]);
      upload.dispose();
      expect([budget.heldBytes, budget.spooledBytes]).toEqual([0, 0]);
      asked[0]?.();
      await expect.poll(spoolsOpen).toBe(before);
      expect([budget.heldBytes, budget.spooledBytes]).toEqual([0, 0]);
    },
  );
});

describe('an overloaded worker', () => {
  test('refuses a large envelope when the disk is full', async () => {
    const budget = testBudget({ spoolDir });
    budget.disk.open = (done) => open('/dev/full', 'r+', done);
    const failure = await bodies.failureOf(cutEvery(eventBody(3_000_000), 100_000), '', budget);
    expect(failure).toEqual({ kind: 'overloaded', detail: 'the spool cannot be written: ENOSPC' });
    expect([budget.heldBytes, budget.spooledBytes]).toEqual([0, 0]);
  });

  test('refuses when held bytes are at their bound', async () => {
    const budget = testBudget({ spoolDir });
    budget.hold(HELD_BYTES_MAX - 10, new Slotted());
    expect(budget.hasRoom).toBe(true);
    const { upload, result } = startUpload('', budget);
    feedAll(upload, [eventBody(1000)]);
    expect(await result).toMatchObject({ ok: false, failure: { kind: 'overloaded' } });
    expect(budget.heldBytes).toBe(HELD_BYTES_MAX - 10);
  });

  test('refuses when the spools are at their bound', async () => {
    const budget = testBudget({ spoolDir });
    budget.shares.spooled.add(new Slotted(), SPOOL_BYTES_MAX - 1000);
    const { upload, result } = startUpload('', budget);
    feedAll(upload, [eventBody(200_000)]);
    expect(await result).toMatchObject({ ok: false, failure: { kind: 'overloaded' } });
    expect(budget.spooledBytes).toBe(SPOOL_BYTES_MAX - 1000);
  });

  test('has room below both bounds only', () => {
    const budget = testBudget({ spoolDir });
    const project = new Slotted();
    budget.hold(HELD_BYTES_MAX, project);
    expect(budget.hasRoom).toBe(false);
    budget.hold(-1, project);
    expect(budget.hasRoom).toBe(true);
    budget.shares.spooled.add(project, SPOOL_BYTES_MAX);
    expect(budget.hasRoom).toBe(false);
  });
});
