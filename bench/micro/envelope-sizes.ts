/** The parser alone, by size and encoding, beside JSON.parse of the same bytes: what not looking into payloads saves. */
import { gunzipSync, gzipSync } from 'node:zlib';
import { inflateSync } from '../../src/ingest/envelope/inflate/inflate.ts';
import { type ItemReceiver, Parser } from '../../src/ingest/envelope/parser.ts';
import { storedTypes } from '../../src/lib/item-types.ts';
import { eventPayload } from '../payloads.ts';
import { type Random, seededRandom } from '../random.ts';
import { type MicroTask, micro } from './task.ts';

const SIZES = { '1 KB': 1_000, '10 KB': 10_000, '200 KB': 200_000 } as const;
/** Large envelopes take longer than the clock's grain anyway. */
const OPERATIONS_OF_LARGE = 10;

const sink: ItemReceiver = {
  envelopeHeader: () => undefined,
  itemBegin: () => undefined,
  payload: () => undefined,
  itemEnd: () => undefined,
  itemSkipped: () => undefined,
};

function parse(body: Uint8Array): void {
  const parser = new Parser(sink, storedTypes([]));
  const malformed = parser.feed(body) ?? parser.end();
  if (malformed) throw new Error(malformed);
}

function parseAsJson(body: Buffer): void {
  for (const line of body.toString('utf8').split('\n')) JSON.parse(line);
}

/** An event of about `bytes`: as many real ones as breadcrumbs as fit. */
function envelopeOf(bytes: number, random: Random): Buffer {
  const crumbs: unknown[] = [];
  let left = bytes - 300;
  for (let crumb = eventPayload(random); left > 0; crumb = eventPayload(random)) {
    crumbs.push(left < crumb.length ? crumb.slice(0, left) : JSON.parse(crumb));
    left -= crumb.length;
  }
  const header = { event_id: 'a'.repeat(32), sdk: { name: 's', version: '1' } };
  const payload = { exception: { values: [{ type: 'Error', value: 'it broke' }] }, breadcrumbs: crumbs };
  return Buffer.from(`${JSON.stringify(header)}\n{"type":"event"}\n${JSON.stringify(payload)}`);
}

function inflated(body: Buffer): Buffer {
  const result = inflateSync('gzip', body);
  if (!result.ok) throw new Error(result.reason);
  return result.bytes;
}

export function envelopeSizeTasks(): MicroTask[] {
  const random = seededRandom(1);
  return Object.entries(SIZES).flatMap(([name, bytes]) => {
    const plain = envelopeOf(bytes, random);
    const gzip = gzipSync(plain);
    const repeat = (task: string, operation: () => void): MicroTask => {
      if (bytes < 100_000) return micro(`${name}, ${task}`, operation);
      const run = (): void => {
        for (let n = 0; n < OPERATIONS_OF_LARGE; n++) operation();
      };
      return { name: `${name}, ${task}`, operations: OPERATIONS_OF_LARGE, run };
    };
    return [
      repeat('plain: parser', () => parse(plain)),
      repeat('plain: JSON.parse', () => parseAsJson(plain)),
      repeat('gzip: inflated and parser', () => parse(inflated(gzip))),
      repeat('gzip: inflated and JSON.parse', () => parseAsJson(gunzipSync(gzip))),
    ];
  });
}
