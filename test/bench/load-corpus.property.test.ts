import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { UsageError } from '../../bench/load/command/values.ts';
import { readCorpus, renewed } from '../../bench/load/send/corpus.ts';
import { ID_PLACEHOLDER } from '../../bench/payloads.ts';
import { type ItemReceiver, Parser } from '../../src/ingest/envelope/parser.ts';
import { storedTypes } from '../../src/lib/item-types.ts';
import { bytesOf, EVENT_ID, encodeEnvelope } from '../ingest/envelope/bodies.ts';

const RUNS = { numRuns: 400, seed: 20_260_103 };

type Item = { type: string; header: string; payload: string };

/** The items that a server reads in it, or undefined where it refuses the envelope. */
function itemsOf(bytes: Uint8Array): Item[] | undefined {
  const items: Item[] = [];
  const sink: ItemReceiver = {
    envelopeHeader: () => undefined,
    itemBegin: ({ type, header }) =>
      items.push({ type, header: Buffer.from(header).toString('latin1'), payload: '' }),
    payload: (piece) => {
      (items.at(-1) as Item).payload += Buffer.from(piece).toString('latin1');
    },
    itemEnd: () => undefined,
    itemSkipped: () => undefined,
  };
  const parser = new Parser(sink, storedTypes([]));
  parser.feed(bytes);
  return parser.end() === undefined ? items : undefined;
}

const name = fc.constantFrom('event', 'transaction', 'span', 'log', 'session', '__proto__', '<b>', 'é');
const payload = fc.oneof(
  fc.uint8Array({ maxLength: 80 }),
  fc.constantFrom(`{"event_id":"${EVENT_ID}"}`, `${EVENT_ID}${EVENT_ID}`, `0${EVENT_ID}`).map(bytesOf),
);
const envelope = fc
  .record({
    header: fc.record(
      {
        event_id: fc.constantFrom<unknown>(EVENT_ID, EVENT_ID.toUpperCase(), 7, null, 'x'),
        dsn: fc.constant('http://key@host/1'),
        sdk: fc.dictionary(fc.string({ maxLength: 5 }), fc.jsonValue()),
      },
      { requiredKeys: [] },
    ),
    items: fc.array(fc.record({ type: name, payload }), { minLength: 1, maxLength: 5 }),
  })
  .map(({ header, items }) =>
    encodeEnvelope(
      header,
      items.map((item) => ({
        header: { type: item.type, length: item.payload.length },
        payload: item.payload,
      })),
    ),
  );

describe('a recorded envelope', () => {
  it('has the same items under another id, and neither the old one nor its DSN', () => {
    fc.assert(
      fc.property(envelope, (recorded) => {
        const again = renewed(recorded)?.envelope;
        if (!again) throw new Error('not taken for an envelope');
        const header = JSON.parse(again.toString('utf8').split('\n', 1)[0] as string);
        expect([header.event_id, header.dsn]).toEqual([ID_PLACEHOLDER, undefined]);
        const old = JSON.parse(recorded.toString('utf8').split('\n', 1)[0] as string).event_id;
        const before = itemsOf(recorded)?.map((item) => ({
          ...item,
          payload: old === EVENT_ID ? item.payload.replaceAll(EVENT_ID, ID_PLACEHOLDER) : item.payload,
        }));
        // With an id that no server takes there is nothing to compare with.
        if (before) expect(itemsOf(again)).toEqual(before);
      }),
      RUNS,
    );
  });

  it('with a byte changed is none, or one that a server reads as it reads the old one', () => {
    fc.assert(
      fc.property(envelope, fc.nat(), fc.nat(255), (recorded, at, byte) => {
        const changed = Buffer.from(recorded);
        changed[at % changed.length] = byte;
        const again = renewed(changed);
        if (!again) return;
        const before = itemsOf(changed);
        if (before)
          expect(itemsOf(again.envelope)?.map(({ type }) => type)).toEqual(before.map(({ type }) => type));
      }),
      RUNS,
    );
  });
});

describe('a folder', () => {
  const inFolder = (files: Readonly<Record<string, Uint8Array>>, look: (folder: string) => void): void => {
    const folder = mkdtempSync(join(tmpdir(), 'sluice-corpus-'));
    try {
      for (const [file, bytes] of Object.entries(files)) writeFileSync(join(folder, file), bytes);
      look(folder);
    } finally {
      rmSync(folder, { recursive: true });
    }
  };

  it('of any bytes is read, or is refused by the name of the file', () => {
    const anyBytes = fc.oneof(fc.uint8Array({ maxLength: 200 }), envelope);
    fc.assert(
      fc.property(anyBytes, fc.constantFrom('plain', 'gzip', 'cut gzip'), (bytes, kind) => {
        const packed = kind === 'plain' ? bytes : gzipSync(bytes);
        const file = kind === 'cut gzip' ? packed.subarray(0, packed.length - 5) : packed;
        inFolder({ 'some.envelope': file }, (folder) => {
          try {
            expect(readCorpus(folder)).toHaveLength(1);
          } catch (error) {
            expect(error).toBeInstanceOf(UsageError);
            expect((error as Error).message).toContain('some.envelope is no envelope');
          }
        });
      }),
      { ...RUNS, numRuns: 100 },
    );
  });

  it('of more types than figures can be kept for is refused', () => {
    const files = Object.fromEntries(
      Array.from({ length: 1_001 }, (_, n) => [`${n}`, bytesOf(`{}\n{"type":"t${n}"}\n{}`)]),
    );
    inFolder(files, (folder) => expect(() => readCorpus(folder)).toThrow(/more than 1000 types/));
  });
});
