import { createHash } from 'node:crypto';
import { openSync, rmSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type HeldEnvelope, Upload, UploadBudget, type UploadFailure } from '../../src/envelope/upload.ts';
import {
  HELD_BYTES_MAX,
  HELD_BYTES_TIGHT,
  INLINE_BYTES_MAX,
  INLINE_BYTES_MIN,
  SPOOL_BYTES_MAX,
} from '../../src/limits.ts';
import { temporaryFolder } from '../support/servers.ts';
import {
  bytesOf,
  cutAtRandom,
  cutEvery,
  EVENT_ID,
  encodeEnvelope,
  eventBody,
  feedAll,
  seeded,
  shapeOf,
  singleBytes,
  startUpload,
  testBudget,
  uploadOf,
} from './bodies.ts';

let spoolDir: string;
beforeAll(() => {
  spoolDir = temporaryFolder('upload');
});
afterAll(() => rmSync(spoolDir, { recursive: true }));

const MIXED = encodeEnvelope(
  { event_id: EVENT_ID, sent_at: '2026-01-01T00:00:00Z', sdk: { name: 'n', version: '1' } },
  [
    { header: { type: 'session' }, payload: bytesOf('{"sid":1}') },
    { header: { type: 'event' }, payload: bytesOf('{"message":"é"}') },
    { header: { type: 'attachment', length: 5 }, payload: bytesOf('a\nb\nc') },
    { header: { type: 'session' }, payload: bytesOf('{"sid":2}') },
    { header: { type: 'log', length: 4 }, payload: bytesOf('[\n1]') },
  ],
);

const MIXED_SHAPE = {
  sentAt: '2026-01-01T00:00:00Z',
  sdk: 'n/1',
  skippedTypes: ['session', 'attachment'],
  bytes: 20,
  items: [
    { index: 1, type: 'event', length: 16, header: '{"type":"event"}', payload: '{"message":"Ã©"}' },
    { index: 4, type: 'log', length: 4, header: '{"type":"log","length":4}', payload: '[\n1]' },
  ],
};

async function envelopeOf(
  chunks: readonly Buffer[],
  encoding = '',
  budget = testBudget({ spoolDir }),
): Promise<HeldEnvelope> {
  const result = await uploadOf(chunks, encoding, budget);
  if (!result.ok) throw new Error(`${result.failure.kind}: ${result.failure.detail}`);
  return result.envelope;
}

async function failureOf(
  chunks: readonly Buffer[],
  encoding = '',
  budget = testBudget({ spoolDir }),
): Promise<UploadFailure> {
  const result = await uploadOf(chunks, encoding, budget);
  if (result.ok) throw new Error('the upload was taken');
  return result.failure;
}

describe('an upload', () => {
  test('gives the stored items, their headers as sent, and the types that were skipped', async () => {
    const envelope = await envelopeOf([MIXED]);
    expect(envelope.eventId).toBe(EVENT_ID);
    expect(envelope.spool).toBeUndefined();
    expect(await shapeOf(envelope)).toEqual({ ...MIXED_SHAPE, bytes: 20 });
  });

  test('is the same byte by byte and at random cuts', async () => {
    expect(await shapeOf(await envelopeOf(singleBytes(MIXED)))).toEqual(MIXED_SHAPE);
    for (let seed = 1; seed <= 50; seed++)
      expect(await shapeOf(await envelopeOf(cutAtRandom(MIXED, seeded(seed)))), `seed ${seed}`).toEqual(
        MIXED_SHAPE,
      );
  });

  test('tells a plain body in memory within end', () => {
    const results: boolean[] = [];
    const upload = new Upload({
      encoding: '',
      budget: testBudget({ spoolDir }),
      onResult: (result) => results.push(result.ok),
      onPressure: () => undefined,
    });
    upload.feed(MIXED);
    expect(results).toEqual([]);
    upload.end();
    expect(results).toEqual([true]);
  });

  test('mints an event id of 32 lower-case hex digits, a new one each time', async () => {
    const ids = await Promise.all(
      Array.from({ length: 100 }, async () => (await envelopeOf([bytesOf('{}')])).eventId),
    );
    expect(ids.every((id) => /^[0-9a-f]{32}$/.test(id))).toBe(true);
    expect(new Set(ids).size).toBe(100);
  });

  test('leaves an absurdly long type out of the skipped types', async () => {
    const body = `{}\n{"type":"${'x'.repeat(65)}"}\n{}\n{"type":"${'y'.repeat(64)}"}\n{}`;
    expect((await envelopeOf([bytesOf(body)])).skippedTypes).toEqual(['y'.repeat(64)]);
  });

  test('says why a malformed body is invalid', async () => {
    expect(await failureOf([bytesOf('{}\n[]\n')])).toEqual({
      kind: 'invalid',
      detail: 'an item header is no JSON object',
    });
    expect(await failureOf([])).toEqual({ kind: 'invalid', detail: 'the body is empty' });
  });

  test('says nothing after it was disposed of', async () => {
    const { upload, budget, result } = startUpload('', testBudget({ spoolDir }));
    upload.feed(MIXED);
    upload.dispose();
    upload.feed(MIXED);
    upload.end();
    upload.dispose();
    expect(await Promise.race([result, Promise.resolve('nothing')])).toBe('nothing');
    expect(budget.heldBytes).toBe(0);
  });

  test('leaves the envelope as it was told when it is disposed of', async () => {
    const { upload, result } = startUpload('', testBudget({ spoolDir }));
    feedAll(upload, [MIXED]);
    const verdict = await result;
    upload.dispose();
    expect(verdict.ok && (await shapeOf(verdict.envelope))).toEqual(MIXED_SHAPE);
  });

  test('ignores what is fed after a failure', async () => {
    const { upload, result, budget } = startUpload('', testBudget({ spoolDir }));
    upload.feed(bytesOf('x\n'));
    expect(budget.heldBytes).toBe(0);
    upload.feed(MIXED);
    upload.end();
    expect(await result).toMatchObject({ ok: false, failure: { kind: 'invalid' } });
    expect(budget.heldBytes).toBe(0);
  });
});

describe('the caps of a body', () => {
  const budget = (): UploadBudget => testBudget({ spoolDir, maxBodyBytes: 1000, maxDecompressedBytes: 2000 });

  test('a body at its bound is taken, one byte more is too large', async () => {
    expect(
      (await envelopeOf([eventBody(1000 - eventBody(100).length + 100)], '', budget())).bytes,
    ).toBeGreaterThan(900);
    const over = eventBody(1001 - eventBody(100).length + 100);
    expect(over.length).toBe(1001);
    for (const chunks of [[over], singleBytes(over)])
      expect(await failureOf(chunks, '', budget())).toEqual({
        kind: 'too_large',
        detail: 'the body exceeds 1000 bytes',
      });
  });

  test('skipped items count as transmitted', async () => {
    const body = bytesOf(`{}\n{"type":"attachment"}\n${'x'.repeat(1000)}`);
    expect((await failureOf([body], '', budget())).kind).toBe('too_large');
  });

  test('transmitted bytes of a compressed body are capped as well', async () => {
    for (const chunks of [[Buffer.alloc(1001)], cutEvery(Buffer.alloc(1001), 100)])
      expect(['too_large', 'invalid']).toContain((await failureOf(chunks, 'gzip', budget())).kind);
    expect((await failureOf([Buffer.alloc(1001)], 'zstd', budget())).kind).toBe('too_large');
  });
});

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
    expect(whole).toMatchObject({ bytes: 361_006, skippedTypes: ['attachment'] });
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
    expect((await envelopeOf([eventBody(INLINE_BYTES_MIN + 1)], '', budget)).spool?.length).toBe(
      INLINE_BYTES_MIN + 1,
    );
    expect((await envelopeOf([eventBody(INLINE_BYTES_MIN)], '', budget)).spool).toBeUndefined();
  });

  test('pauses the socket while the disk is behind and resumes it before the verdict', async () => {
    const { upload, pressure, result } = startUpload('', testBudget({ spoolDir }));
    feedAll(upload, cutEvery(eventBody(4 * 1024 * 1024), 512 * 1024));
    const atVerdict = await result.then(() => [...pressure]);
    expect(atVerdict).toEqual([true, false]);
    upload.dispose();
  });
});

describe('an overloaded worker', () => {
  class FullDisk extends UploadBudget {
    override openSpoolFile(): number {
      return openSync('/dev/full', 'r+');
    }
  }

  test('refuses a large envelope when the disk is full', async () => {
    const budget = new FullDisk({ maxBodyBytes: 5e6, maxDecompressedBytes: 2e7, spoolDir });
    const failure = await failureOf(cutEvery(eventBody(3_000_000), 100_000), '', budget);
    expect(failure).toEqual({ kind: 'overloaded', detail: 'the spool cannot be written: ENOSPC' });
    expect([budget.heldBytes, budget.spooledBytes]).toEqual([0, 0]);
  });

  test('refuses a large envelope when the folder is not there', async () => {
    const budget = testBudget({ spoolDir: `${spoolDir}/missing` });
    const failure = await failureOf([eventBody(200_000)], '', budget);
    expect(failure).toEqual({ kind: 'overloaded', detail: 'the spool cannot be opened: ENOENT' });
  });

  test('refuses when held bytes are at their bound', async () => {
    for (const encoding of ['', 'gzip', 'zstd']) {
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

describe('the accounting', () => {
  test('counts the memory that single bytes really take', async () => {
    const budget = testBudget({ spoolDir });
    const { upload } = startUpload('', budget);
    for (const byte of singleBytes(eventBody(50_000))) upload.feed(byte);
    expect(budget.heldBytes).toBeGreaterThan(50_000);
    expect(budget.heldBytes).toBeLessThan(150_000);
    upload.dispose();
    expect(budget.heldBytes).toBe(0);
  });

  test('counts a chunk once that is kept whole for a view', async () => {
    const budget = testBudget({ spoolDir });
    const { upload, result } = startUpload('', budget);
    feedAll(upload, [MIXED]);
    await result;
    expect(budget.heldBytes).toBeGreaterThanOrEqual(MIXED.length);
    expect(budget.heldBytes).toBeLessThan(2 * MIXED.length);
    upload.dispose();
  });

  test('copies a small piece of a large chunk instead of keeping the chunk', async () => {
    const body = encodeEnvelope({}, [
      { header: { type: 'attachment', length: 1_000_000 }, payload: Buffer.alloc(1_000_000) },
      { header: { type: 'log' }, payload: bytesOf('{"items":[]}') },
    ]);
    const { upload, result, budget } = startUpload('', testBudget({ spoolDir }));
    feedAll(upload, [body]);
    const verdict = await result;
    expect(budget.heldBytes).toBeLessThan(200);
    const payload = verdict.ok ? verdict.envelope.items[0]?.payload : undefined;
    expect(payload?.buffer.byteLength).toBeLessThan(100_000);
    upload.dispose();
  });

  test('leaves no descriptor open', async () => {
    const descriptors = async (): Promise<number> => (await readdir('/proc/self/fd')).length;
    const before = await descriptors();
    for (let i = 0; i < 20; i++) {
      const { upload, result } = startUpload('', testBudget({ spoolDir }));
      feedAll(upload, cutEvery(eventBody(300_000), 65_536));
      if (i % 2 === 0) await result;
      upload.dispose();
    }
    await expect.poll(descriptors).toBeLessThanOrEqual(before + 1);
  });
});
