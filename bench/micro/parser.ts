import { type ItemReceiver, Parser } from '../../src/ingest/envelope/parser.ts';
import { storedTypes } from '../../src/lib/item-types.ts';
import { eventPayload, recordingPayload, transactionPayload } from '../payloads.ts';
import { seededRandom } from '../random.ts';
import { type MicroTask, micro } from './task.ts';

const CHUNK_BYTES = 16 * 1024;

/** Takes everything and keeps nothing. */
const sink: ItemReceiver = {
  envelopeHeader: () => undefined,
  itemBegin: () => undefined,
  payload: () => undefined,
  itemEnd: () => undefined,
  itemSkipped: () => undefined,
};

function parse(chunks: readonly Buffer[]): void {
  const parser = new Parser(sink, storedTypes([]));
  for (const chunk of chunks) parser.feed(chunk);
  const malformed = parser.end();
  if (malformed) throw new Error(malformed);
}

const envelope = (type: string, payload: Buffer, length: boolean): Buffer =>
  Buffer.concat([
    Buffer.from(`{"event_id":"${'a'.repeat(32)}","sdk":{"name":"s","version":"1"}}\n`),
    Buffer.from(`${JSON.stringify({ type, ...(length && { length: payload.length }) })}\n`),
    payload,
  ]);

function cut(bytes: Buffer): Buffer[] {
  const chunks: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += CHUNK_BYTES) chunks.push(bytes.subarray(at, at + CHUNK_BYTES));
  return chunks;
}

export function parserTasks(): MicroTask[] {
  const random = seededRandom(1);
  const event = envelope('event', Buffer.from(eventPayload(random)), false);
  const transaction = envelope('transaction', Buffer.from(transactionPayload(random)), true);
  const recording = cut(envelope('replay_recording', recordingPayload(random, 1, 1024 * 1024), true));
  return [
    micro('event of 1.9 KB without length', () => parse([event])),
    micro('transaction of 4 KB with length', () => parse([transaction])),
    micro('recording of 0.3 MB in chunks of 16 KiB', () => parse(recording)),
  ];
}
