/** Ways to cut a body into chunks, and envelopes to cut. */

import { expect } from 'vitest';
import { newParser } from '../../../src/ingest/envelope/parser.ts';
import {
  type HeldEnvelope,
  Upload,
  UploadBudget,
  type UploadFailure,
  type UploadOptions,
  type UploadResult,
} from '../../../src/ingest/envelope/upload.ts';
import { Slotted } from '../../../src/lib/slots.ts';

export const EVENT_ID = '9ec79c33ec9942ab8353589fcb2e04dc';

export const bytesOf = (text: string): Buffer => Buffer.from(text, 'utf8');

/** Numbers in [0, 1) that a seed repeats (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Chunks between `cuts` random places, some of which may coincide. */
export function cutAtRandom(
  body: Uint8Array,
  random: () => number,
  cuts = 1 + Math.floor(random() * 6),
): Buffer[] {
  const places = Array.from({ length: cuts }, () => Math.floor(random() * (body.length + 1)));
  places.push(0, body.length);
  places.sort((a, b) => a - b);
  return places.slice(1).map((end, i) => Buffer.from(body.subarray(places[i], end)));
}

export const singleBytes = (body: Uint8Array): Buffer[] => Array.from(body, (byte) => Buffer.of(byte));

/** Chunks of `size` bytes. */
export function cutEvery(body: Uint8Array, size: number): Buffer[] {
  const chunks: Buffer[] = [];
  for (let at = 0; at < body.length; at += size) chunks.push(Buffer.from(body.subarray(at, at + size)));
  return chunks;
}

/** One item: header fields and payload; `length` only when the header names it. */
export type Item = { header: Record<string, unknown>; payload: Uint8Array };

export function encodeEnvelope(header: object, items: readonly Item[]): Buffer {
  const lines = items.map(({ header: h, payload }) =>
    Buffer.concat([bytesOf(`${JSON.stringify(h)}\n`), payload]),
  );
  const parts = [bytesOf(JSON.stringify(header)), ...lines].flatMap((part) => [bytesOf('\n'), part]);
  return Buffer.concat(parts.slice(1));
}

/** An event of `size` payload bytes, JSON all the way. */
export function eventBody(size: number, seed = 1): Buffer {
  const random = seeded(seed);
  const begin = '{"message":"';
  let text = begin;
  while (text.length < size - 2) text += Math.floor(random() * 1e9).toString(36);
  const payload = bytesOf(`${text.slice(0, size - 2)}"}`);
  return encodeEnvelope({ event_id: EVENT_ID }, [{ header: { type: 'event' }, payload }]);
}

/** Of all items that are stored. */
export const payloadBytes = ({ items }: HeldEnvelope): number =>
  items.reduce((sum, { length }) => sum + length, 0);

export type UploadRun = {
  upload: Upload;
  budget: UploadBudget;
  pressure: boolean[];
  result: Promise<UploadResult>;
};

export const testBudget = (
  options: Partial<ConstructorParameters<typeof UploadBudget>[0]> = {},
): UploadBudget =>
  new UploadBudget({
    maxBodyBytes: 5 * 1024 * 1024,
    maxDecompressedBytes: 20 * 1024 * 1024,
    spoolDir: '/tmp',
    ...options,
  });

/** Spools as soon as it has to, unless the test says when. */
export function startUpload(
  encoding = '',
  budget = testBudget(),
  onWaitsForLeave: (upload: Upload) => void = (upload) => upload.proceed(),
  of: Partial<UploadOptions> = {},
): UploadRun {
  const pressure: boolean[] = [];
  let upload: Upload | undefined;
  const result = new Promise<UploadResult>((resolve, reject) => {
    let told = false;
    upload = new Upload({
      encoding,
      newReader: newParser,
      budget,
      project: new Slotted(),
      onResult: (verdict) => {
        if (told) reject(new Error('a second verdict'));
        told = true;
        resolve(verdict);
      },
      onPressure: (paused) => pressure.push(paused),
      onWaitsForLeave: () => onWaitsForLeave(upload as Upload),
      ...of,
    });
  });
  return { upload: upload as Upload, budget, pressure, result };
}

/** Feeds chunks whose memory is overwritten after the call, as uWebSockets.js does. */
export function feedAll(upload: Upload, chunks: readonly Buffer[]): void {
  for (const chunk of chunks) {
    const borrowed = Buffer.from(chunk);
    upload.feed(borrowed);
    borrowed.fill(0xee);
  }
  upload.end();
}

export async function uploadOf(
  chunks: readonly Buffer[],
  encoding = '',
  budget = testBudget(),
  of: Partial<UploadOptions> = {},
): Promise<UploadResult> {
  const { upload, result } = startUpload(encoding, budget, undefined, of);
  feedAll(upload, chunks);
  const verdict = await result;
  if (!verdict.ok) {
    upload.dispose();
    expect(budget.heldBytes, 'held bytes after a failure').toBe(0);
  }
  return verdict;
}

/** The envelope that the chunks make. @throws when they make none */
export async function envelopeOf(
  chunks: readonly Buffer[],
  encoding: string,
  budget: UploadBudget,
): Promise<HeldEnvelope> {
  const result = await uploadOf(chunks, encoding, budget);
  if (!result.ok) throw new Error(`${result.failure.kind}: ${result.failure.detail}`);
  return result.envelope;
}

/** Why the chunks make no envelope. @throws when they make one */
export async function failureOf(
  chunks: readonly Buffer[],
  encoding: string,
  budget: UploadBudget,
): Promise<UploadFailure> {
  const result = await uploadOf(chunks, encoding, budget);
  if (result.ok) throw new Error('the upload was taken');
  return result.failure;
}

/** Everything of an envelope that the body determines, payloads included. */
export async function shapeOf(envelope: HeldEnvelope): Promise<object> {
  let offset = 0;
  const items = [];
  for (const item of envelope.items) {
    const payload = item.payload ?? (await envelope.spool?.read(offset, item.length));
    offset += item.length;
    const { index, type, length } = item;
    items.push({
      index,
      type,
      length,
      header: Buffer.from(item.header).toString('latin1'),
      payload: Buffer.from(payload ?? []).toString('latin1'),
    });
  }
  const { sentAt, sdk } = envelope;
  const skipped = Object.fromEntries(envelope.skipped);
  return { sentAt, sdk, skipped, bytes: payloadBytes(envelope), items };
}
