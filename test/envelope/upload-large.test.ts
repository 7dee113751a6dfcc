import { createHash } from 'node:crypto';
import { open, rmSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  type HeldEnvelope,
  Upload,
  type UploadBudget,
  type UploadFailure,
} from '../../src/envelope/upload.ts';
import {
  HELD_BYTES_MAX,
  HELD_BYTES_TIGHT,
  INLINE_BYTES_MAX,
  INLINE_BYTES_MIN,
  SPOOL_BYTES_MAX,
} from '../../src/limits.ts';
import { temporaryFolder } from '../support/servers.ts';
import * as bodies from './bodies.ts';
import {
  bytesOf,
  cutAtRandom,
  cutEvery,
  encodeEnvelope,
  eventBody,
  feedAll,
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
const failureOf = (chunks: readonly Buffer[], budget: UploadBudget): Promise<UploadFailure> =>
  bodies.failureOf(chunks, '', budget);

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
      const { spool, items, bytes } = verdict.envelope;
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
    budget.hold(HELD_BYTES_TIGHT + 1);
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
    budget: testBudget({ spoolDir }),
    onResult: (result) => told.push(result.ok ? 'taken' : result.failure.kind),
    onPressure: (paused) => told.push(paused ? 'pause' : 'resume'),
  });
  upload.feed(bytesOf(`{}\n{"type":"log","length":2000000}\n${'x'.repeat(2_000_000)}`));
  expect(told).toEqual(['pause']);
  upload.feed(bytesOf('x'));
  expect(told).toEqual(['pause', 'resume', 'invalid']);
  upload.dispose();
});

describe('an overloaded worker', () => {
  test('refuses a large envelope when the disk is full', async () => {
    const budget = testBudget({ spoolDir });
    budget.disk.open = (done) => open('/dev/full', 'r+', done);
    const failure = await failureOf(cutEvery(eventBody(3_000_000), 100_000), budget);
    expect(failure).toEqual({ kind: 'overloaded', detail: 'the spool cannot be written: ENOSPC' });
    expect([budget.heldBytes, budget.spooledBytes]).toEqual([0, 0]);
  });

  test('refuses a large envelope when the folder is not there', async () => {
    const budget = testBudget({ spoolDir: `${spoolDir}/missing` });
    const failure = await failureOf([eventBody(200_000)], budget);
    expect(failure).toEqual({ kind: 'overloaded', detail: 'the spool cannot be opened: ENOENT' });
  });

  test('refuses when held bytes are at their bound', async () => {
    for (const encoding of ['', 'gzip', 'br']) {
      const budget = testBudget({ spoolDir });
      budget.hold(HELD_BYTES_MAX - 10);
      expect(budget.hasRoom).toBe(true);
      const { upload, result } = startUpload(encoding, budget);
      feedAll(upload, [eventBody(1000)]);
      expect(await result).toMatchObject({ ok: false, failure: { kind: 'overloaded' } });
      expect(budget.heldBytes, encoding).toBe(HELD_BYTES_MAX - 10);
    }
  });

  test('refuses when the spools are at their bound', async () => {
    const budget = testBudget({ spoolDir });
    budget.spool(SPOOL_BYTES_MAX - 1000);
    const { upload, result } = startUpload('', budget);
    feedAll(upload, [eventBody(200_000)]);
    expect(await result).toMatchObject({ ok: false, failure: { kind: 'overloaded' } });
    expect(budget.spooledBytes).toBe(SPOOL_BYTES_MAX - 1000);
  });

  test('has room below both bounds only', () => {
    const budget = testBudget({ spoolDir });
    budget.hold(HELD_BYTES_MAX);
    expect(budget.hasRoom).toBe(false);
    budget.hold(-1);
    expect(budget.hasRoom).toBe(true);
    budget.spool(SPOOL_BYTES_MAX);
    expect(budget.hasRoom).toBe(false);
  });
});
