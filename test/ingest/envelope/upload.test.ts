import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { constants, createGzip, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { HeldEnvelope, UploadResult } from '../../../src/ingest/envelope/upload.ts';
import { temporaryFolder } from '../../support/servers.ts';
import * as bodies from './bodies.ts';
import {
  bytesOf,
  cutEvery,
  EVENT_ID,
  encodeEnvelope,
  eventBody,
  feedAll,
  shapeOf,
  singleBytes,
  startUpload,
  testBudget,
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
  skipped: { session: 2, attachment: 1 },
  bytes: 20,
  items: [
    { index: 1, type: 'event', length: 16, header: '{"type":"event"}', payload: '{"message":"Ã©"}' },
    { index: 4, type: 'log', length: 4, header: '{"type":"log","length":4}', payload: '[\n1]' },
  ],
};

async function envelopeIn(result: Promise<UploadResult>): Promise<HeldEnvelope> {
  const verdict = await result;
  if (!verdict.ok) throw new Error(verdict.failure.detail);
  return verdict.envelope;
}
describe('an upload', () => {
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

test('transmitted bytes of a compressed body are capped as well', async () => {
  const payload = randomBytes(1_500);
  const body = gzipSync(encodeEnvelope({}, [{ header: { type: 'log', length: 1_500 }, payload }]));
  for (const chunks of [[body], cutEvery(body, 100)]) {
    const budget = testBudget({ spoolDir, maxBodyBytes: 1_000, maxDecompressedBytes: 2_000 });
    expect(await bodies.failureOf(chunks, 'gzip', budget)).toEqual({
      kind: 'too_large',
      detail: 'the body exceeds 1000 bytes',
    });
  }
});

test('a plain body above the bound of inflated bytes is not said to inflate', async () => {
  const body = encodeEnvelope({}, [{ header: { type: 'log' }, payload: Buffer.alloc(1_500, 97) }]);
  for (const encoding of ['', 'identity', 'gzip']) {
    const budget = testBudget({ spoolDir, maxBodyBytes: 2_000, maxDecompressedBytes: 1_000 });
    const sent = encoding === 'gzip' ? gzipSync(body) : body;
    expect(await bodies.failureOf([sent], encoding, budget)).toEqual({
      kind: 'too_large',
      detail: `the body ${encoding === 'gzip' ? 'inflates to over' : 'exceeds'} 1000 bytes`,
    });
  }
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

  test('counts a header line that is cut', () => {
    const budget = testBudget({ spoolDir });
    const { upload } = startUpload('', budget);
    upload.feed(bytesOf(`{"a":"${'x'.repeat(10_000)}`));
    expect(budget.heldBytes).toBeGreaterThan(10_000);
    upload.feed(bytesOf('"}\n{"type":"event"'));
    expect(budget.heldBytes).toBeGreaterThan(10_000);
    upload.dispose();
    expect(budget.heldBytes).toBe(0);
  });

  /** What the items of an envelope keep alive. */
  const aliveBytes = ({ items }: HeldEnvelope): number => {
    const all = items.flatMap(({ header, payload }) => (payload ? [header, payload] : [header]));
    return [...new Set(all.map(({ buffer }) => buffer))].reduce((sum, { byteLength }) => sum + byteLength, 0);
  };
  const SMALL_ITEM = '{"type":"event"}\n{}\n';

  test('counts what pieces of a plain body keep alive', async () => {
    const budget = testBudget({ spoolDir });
    const { upload, result } = startUpload('', budget);
    upload.feed(bytesOf('{}\n'));
    for (let n = 0; n < 100; n++) {
      upload.feed(bytesOf(SMALL_ITEM));
      upload.feed(bytesOf(`{"type":"made_up"}\n${'x'.repeat(4_000)}\n`));
    }
    upload.end();
    const envelope = await envelopeIn(result);
    expect(envelope.items).toHaveLength(100);
    expect(aliveBytes(envelope)).toBeLessThanOrEqual(budget.heldBytes);
    upload.dispose();
  });

  test('keeps nothing of a chunk of which nothing is stored', async () => {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    const budget = testBudget({ spoolDir });
    const skipped = bytesOf(`{}\n{"type":"made_up","length":5000000}\n${'x'.repeat(500_000)}`);
    collect();
    const before = process.memoryUsage().arrayBuffers;
    const uploads = Array.from({ length: 40 }, () => startUpload('', budget).upload);
    for (const upload of uploads) upload.feed(skipped);
    // The bytes of what is collected go in the background.
    await expect
      .poll(() => {
        collect();
        return process.memoryUsage().arrayBuffers - before;
      })
      .toBeLessThan(5_000_000);
    expect(budget.heldBytes).toBeLessThan(5_000_000);
    for (const upload of uploads) upload.dispose();
  });

  test('counts what pieces of a compressed body keep alive', async () => {
    const budget = testBudget({ spoolDir });
    const { upload, result } = startUpload('gzip', budget);
    const gzip = createGzip();
    const chunks: Buffer[] = [];
    gzip.on('data', (chunk: Buffer) => chunks.push(chunk));
    const write = async (text: string | Buffer): Promise<void> => {
      gzip.write(text);
      await new Promise<void>((resolve) => gzip.flush(constants.Z_SYNC_FLUSH, () => resolve()));
      for (const chunk of chunks.splice(0)) upload.feed(chunk);
      // What comes while a write is under way is joined.
      await new Promise((resolve) => setTimeout(resolve, 5));
    };
    await write(`{}\n{"type":"made_up","length":300000}\n`);
    await write(randomBytes(300_000));
    await write('\n');
    for (let n = 0; n < 50; n++) {
      await write(SMALL_ITEM);
      await write(`{"type":"made_up"}\n${'x'.repeat(20_000)}\n`);
    }
    gzip.end();
    await once(gzip, 'end');
    for (const chunk of chunks.splice(0)) upload.feed(chunk);
    upload.end();
    const envelope = await envelopeIn(result);
    expect(envelope.items).toHaveLength(50);
    expect(aliveBytes(envelope)).toBeLessThanOrEqual(budget.heldBytes);
    upload.dispose();
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

  test('counts many items for more than their bytes', async () => {
    const { upload, result, budget } = startUpload('', testBudget({ spoolDir }));
    feedAll(upload, [bytesOf(`{}${'\n{"type":"log"}\n{}'.repeat(1_000)}`)]);
    await result;
    expect(budget.heldBytes).toBeGreaterThan(200_000);
    upload.dispose();
    expect(budget.heldBytes).toBe(0);
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
