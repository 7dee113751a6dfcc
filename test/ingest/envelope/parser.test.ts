import { describe, expect, test } from 'vitest';
import type { EnvelopeHeader } from '../../../src/ingest/envelope/header.ts';
import { type ItemReceiver, Parser } from '../../../src/ingest/envelope/parser.ts';
import { storedTypes } from '../../../src/lib/item-types.ts';
import { rounds } from '../../support/rounds.ts';
import { bytesOf, cutAtRandom, EVENT_ID, seeded, singleBytes } from './bodies.ts';
import { CASES, type Verdict } from './parser-cases.ts';

/** What was found, written so that a table can state it: `type@index:payload`, skipped ones in brackets. */
class Recorder implements ItemReceiver {
  header: EnvelopeHeader | undefined;
  readonly found: string[] = [];
  #open: string | undefined;

  envelopeHeader(header: EnvelopeHeader): void {
    this.header = header;
  }

  itemBegin({ index, type }: { index: number; type: string }): void {
    expect(this.#open, 'an item begins inside another').toBeUndefined();
    this.#open = `${type}@${index}:`;
  }

  payload(piece: Uint8Array): void {
    expect(piece.length).toBeGreaterThan(0);
    expect(this.#open, 'a payload outside an item').toBeDefined();
    this.#open += Buffer.from(piece).toString('latin1');
  }

  itemEnd(): void {
    this.found.push(this.#open ?? 'an end without a beginning');
    this.#open = undefined;
  }

  itemSkipped(type: string): void {
    this.found.push(`[${type}]`);
  }
}

function parse(chunks: readonly Buffer[]): Verdict {
  const sink = new Recorder();
  const parser = new Parser(sink, storedTypes([]));
  for (const chunk of chunks) parser.feed(chunk);
  const malformed = parser.end();
  return malformed === undefined ? { found: sink.found } : { malformed };
}

const SEED = 20_260_101;
const CUTS = rounds(50, 15);

describe('the parser', () => {
  test.each(CASES)('%s', (_title, body, verdict) => {
    expect(parse([Buffer.from(body as Buffer)])).toEqual(verdict);
  });

  test.each(CASES)('byte by byte: %s', (_title, body, verdict) => {
    expect(parse(singleBytes(Buffer.from(body as Buffer)))).toEqual(verdict);
  });

  test.each(CASES)('at random cuts: %s', (_title, body, verdict) => {
    const bytes = Buffer.from(body as Buffer);
    for (let i = 0; i < CUTS; i++) {
      const chunks = cutAtRandom(bytes, seeded(SEED + i));
      expect(parse(chunks), `seed ${SEED + i}, chunks of ${chunks.map((c) => c.length)}`).toEqual(verdict);
    }
  });

  test('reads the envelope header as it is told it', () => {
    const sink = new Recorder();
    new Parser(sink, storedTypes([])).feed(
      bytesOf(
        '{"event_id":"9EC79C33-EC99-42AB-8353-589FCB2E04DC","sent_at":"t","sdk":{"name":"n","version":"1"}}\n',
      ),
    );
    expect(sink.header).toEqual({ eventId: EVENT_ID, sentAt: 't', sdk: 'n/1' });
  });

  test('stays malformed whatever is fed later', () => {
    const parser = new Parser(new Recorder(), storedTypes([]));
    expect(parser.feed(bytesOf('x\n'))).toBe('the envelope header is no JSON object');
    expect(parser.feed(bytesOf('{}\n'))).toBe('the envelope header is no JSON object');
    expect(parser.end()).toBe('the envelope header is no JSON object');
  });

  test('says so in the chunk in which it becomes certain', () => {
    const parser = new Parser(new Recorder(), storedTypes([]));
    expect(parser.feed(bytesOf('{}\n{"type":"log","length":1}\na'))).toBeUndefined();
    expect(parser.feed(bytesOf('b'))).toBe('a payload is followed by another byte than a newline');
  });

  test('hands the item header on as it was sent', () => {
    const headers: string[] = [];
    class Headers extends Recorder {
      override itemBegin(item: { index: number; type: string; header: Uint8Array }): void {
        headers.push(Buffer.from(item.header).toString());
        super.itemBegin(item);
      }
    }
    const parser = new Parser(new Headers(), storedTypes([]));
    for (const chunk of singleBytes(bytesOf('{}\n{"type": "log",  "é":1}\r\n{}'))) parser.feed(chunk);
    parser.end();
    expect(headers).toEqual(['{"type": "log",  "é":1}\r']);
  });
});
