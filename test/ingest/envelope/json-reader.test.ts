import { describe, expect, test } from 'vitest';
import { newEventReader, newReportReader } from '../../../src/ingest/envelope/json-reader.ts';
import type { ItemReceiver, NewItemReader } from '../../../src/ingest/envelope/parser.ts';
import { storedTypes } from '../../../src/lib/item-types.ts';
import { ITEMS_MAX, JSON_DEPTH_MAX } from '../../../src/limits.ts';
import { rounds } from '../../support/rounds.ts';
import { bytesOf, cutAtRandom, EVENT_ID, seeded, singleBytes } from './bodies.ts';

type Read = { id?: string | undefined; items: string[] } | { malformed: string };

const SEED = 20_261_127;
const CUTS = rounds(50, 15);
const HEADER = Buffer.from('{"type":"raw_security"}');
const OTHER_ID = '1'.repeat(32);

/** Reads chunks whose memory is overwritten after each call. */
function readChunks(newReader: NewItemReader, chunks: readonly Buffer[], stored: ReadonlySet<string>): Read {
  const items: string[] = [];
  let id: string | undefined;
  let hasEnded = false;
  const receiver: ItemReceiver = {
    envelopeHeader: ({ eventId }) => {
      id = eventId;
    },
    itemBegin: ({ index, type, header }) => items.push(`${type}@${index} ${Buffer.from(header)} `),
    payload: (piece) => {
      if (piece.length === 0 || hasEnded) throw new Error('nothing, or from `end`');
      items.push(`${items.pop()}${Buffer.from(piece).toString('latin1')}`);
    },
    itemEnd: () => items.push(`${items.pop()}.`),
    itemSkipped: (type) => items.push(`[${type}]`),
  };
  const reader = newReader(receiver, stored, () => undefined);
  for (const chunk of chunks) {
    const borrowed = Buffer.from(chunk);
    reader.feed(borrowed);
    borrowed.fill(0xee);
  }
  hasEnded = true;
  const malformed = reader.end();
  return malformed === undefined ? { id, items } : { malformed };
}

/** The same, however the body is cut. */
function read(newReader: NewItemReader, body: string, stored = storedTypes(['raw_security'])): Read {
  const bytes = bytesOf(body);
  const whole = readChunks(newReader, [bytes], stored);
  expect(readChunks(newReader, singleBytes(bytes), stored)).toEqual(whole);
  for (let i = 0; i < CUTS; i++)
    expect(readChunks(newReader, cutAtRandom(bytes, seeded(SEED + i)), stored), `seed ${SEED + i}`).toEqual(
      whole,
    );
  return whole;
}

const event = (payload: string): string => `event@0 {"type":"event"} ${payload}.`;
const report = (index: number, payload: string): string =>
  `raw_security@${index} {"type":"raw_security"} ${payload}.`;
const dashed = EVENT_ID.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');

describe('the reader of an event', () => {
  test('passes the object on as it came, without the white space around it', () => {
    expect(read(newEventReader, ' {"message": "a\\"}\\u007b",\n "n":[1e400,{}]}\r\n')).toEqual({
      id: undefined,
      items: [event('{"message": "a\\"}\\u007b",\n "n":[1e400,{}]}')],
    });
  });

  test.each([
    ['32 hex digits', `{"event_id":"${EVENT_ID}","a":1}`],
    ['capitals', `{"a":{"event_id":"${OTHER_ID}"},"event_id" : "${EVENT_ID.toUpperCase()}"}`],
    ['a dashed UUID', `{"a":["event_id"],"event_id":"${dashed}"}`],
    [
      'escapes in name and value',
      `{"\\u0065vent\\u005fid":"${[...EVENT_ID].map((c) => `\\u00${c.charCodeAt(0).toString(16)}`).join('')}"}`,
    ],
    ['the last of several ids', `{"event_id":"${OTHER_ID}","event_id":"${EVENT_ID}"}`],
    ['an id behind a long value', `{"a":"${'x'.repeat(1_000)}","event_id":"${EVENT_ID}"}`],
  ])('finds the id of the outermost object: %s', (_title, body) => {
    expect(read(newEventReader, body)).toEqual({ id: EVENT_ID, items: [event(body)] });
  });

  test.each([
    ['an id of another shape', '{"event_id":"abc"}'],
    ['a number', '{"event_id":12345678901234567890123456789012}'],
    ['null', '{"event_id":null}'],
    ['zeros', `{"event_id":"${'0'.repeat(32)}"}`],
    ['a long text', `{"event_id":"${EVENT_ID.repeat(20)}"}`],
    ['an object', `{"event_id":{"event_id":"${EVENT_ID}"}}`],
    ['a good id before a bad one', `{"event_id":"${EVENT_ID}","event_id":7}`],
    ['another name', `{"Event_id":"${EVENT_ID}","event_idx":"${EVENT_ID}","event_i":"${EVENT_ID}"}`],
    ['a value that is the name', `{"a":"event_id","b":"${EVENT_ID}"}`],
  ])('leaves the id to be minted: %s', (_title, body) => {
    expect(read(newEventReader, body)).toEqual({ id: undefined, items: [event(body)] });
  });

  test.each([
    ['', 'the body is empty'],
    [' \n', 'the body is no JSON object'],
    ['[]', 'the body is no JSON object'],
    ['[{"a":1}]', 'the body is no JSON object'],
    ['"text"', 'the body is no JSON object'],
    ['null', 'the body is no JSON object'],
    ['3', 'the body is no JSON object'],
    ['{"a":1', 'the body is no JSON object'],
    ['{"a":1}{}', 'the body is no JSON object'],
    ['{"a":NaN}', 'the body is no JSON object'],
    ['message=hello', 'the body is no JSON object'],
    ['{}\n{"type":"event"}\n{}', 'the body is no JSON object'],
    ['{"a":'.repeat(JSON_DEPTH_MAX + 1), 'the body is nested too deeply'],
  ])('refuses %j', (body, malformed) => {
    expect(read(newEventReader, body)).toEqual({ malformed });
  });
});

describe('the reader of reports', () => {
  const csp = '{"csp-report":{"document-uri":"https://shop.example/"}}';

  test('takes one object as one report', () => {
    expect(read(newReportReader(HEADER), `${csp}\n`)).toEqual({ id: undefined, items: [report(0, csp)] });
  });

  test('takes a list as one item each', () => {
    expect(read(newReportReader(HEADER), `[ ${csp} ,{"type":"nel","body":[[{}]]},{}]`)).toEqual({
      id: undefined,
      items: [report(0, csp), report(1, '{"type":"nel","body":[[{}]]}'), report(2, '{}')],
    });
    expect(read(newReportReader(HEADER), '[]')).toEqual({ id: undefined, items: [] });
  });

  test('chooses no id', () => {
    expect(read(newReportReader(HEADER), `{"event_id":"${EVENT_ID}"}`)).toMatchObject({ id: undefined });
  });

  test('skips reports where they are not stored', () => {
    const skipped = { id: undefined, items: ['[raw_security]', '[raw_security]'] };
    expect(read(newReportReader(HEADER), `[${csp},${csp}]`, storedTypes([]))).toEqual(skipped);
  });

  test.each(['[1]', '[{},[]]', '[null]', '"csp"', '[{}', '{"a":1}]', '[{}]x'])('refuses %j', (body) => {
    expect(read(newReportReader(HEADER), body)).toEqual({
      malformed: 'the body is neither a JSON object nor a list of them',
    });
  });

  test('takes at most as many reports as an envelope has items', () => {
    const list = (count: number): Buffer => bytesOf(`[${Array(count).fill('{}').join()}]`);
    const of = (count: number) => readChunks(newReportReader(HEADER), [list(count)], storedTypes([]));
    expect(of(ITEMS_MAX)).toMatchObject({ items: { length: ITEMS_MAX } });
    expect(of(ITEMS_MAX + 1)).toEqual({ malformed: 'the body has too many reports' });
  });
});
