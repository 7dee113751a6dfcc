import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { integer, seededRandom } from '../../bench/random.ts';
import { jsonText } from '../../src/lib/json-text.ts';
import { MIGRATIONS, VERSION_TABLES } from '../../src/sink/clickhouse/schema.ts';
import { COLUMNS, READ_BYTES_MAX, type TypedTable, typedRow } from '../../src/sink/columns.ts';
import { rounds } from '../support/rounds.ts';
import { hostilePayload, KINDS } from './hostile-json.ts';
import { type Row, referenceRow } from './reference.ts';

const SEED = integer(Math.random, 0, 2 ** 31);
const TABLES = Object.keys(COLUMNS) as TypedTable[];
const EVENT_ID = 'e'.repeat(32);

function rowOf(
  table: TypedTable,
  payload: string | undefined,
  type: 'event' | 'replay_recording' = 'event',
): Row {
  const json = payload === undefined ? undefined : Buffer.from(payload);
  const { cells, unread } = typedRow(table, json, { type, eventId: EVENT_ID });
  // As a store has them: UTF-8 has no lone surrogates.
  const values = cells.map((cell) => (typeof cell === 'string' ? `${Buffer.from(cell)}` : (cell ?? null)));
  return {
    ...Object.fromEntries(COLUMNS[table].map(({ name }, at) => [name, values[at] as Row[string]])),
    unread,
  };
}

describe.each(TABLES)('the columns of %s', (table) => {
  it.each(KINDS)('are what a plain reader finds, or empty: %s', (kind) => {
    const random = seededRandom(SEED);
    for (let n = 0; n < rounds(150, 25); n++) {
      const payload = hostilePayload(random, table, kind);
      expect(jsonText(Buffer.from(payload)).ok, payload).toBe(true);
      expect(rowOf(table, payload), `seed ${SEED}: ${payload.slice(0, 2_000)}`).toEqual(
        referenceRow(table, payload, EVENT_ID),
      );
    }
  });
});

it('are not changed by what is beside them', () => {
  const payload = (more: string): string =>
    `{"timestamp":1700000000,"level":"info","release":"r9","message":"hi","extra":{"n":${more}}}`;
  const told = { timestamp: 1.7e15, level: 'info', release: 'r9', message: 'hi', unread: false };
  for (const more of [
    '12345678901234567890123',
    '"\\ud800"',
    '1e400',
    `${'['.repeat(200_000)}${']'.repeat(200_000)}`,
  ])
    expect(rowOf('events', payload(more))).toMatchObject(told);
});

it('of names that repeat are those of the last one, whole', () => {
  const payload =
    '{"user":{"id":1},"level":"info","user":{"name":"x"},"l\\u0065vel":"fatal","exception":[{"type":"A"},{"value":"b"}]}';
  expect(rowOf('events', payload)).toMatchObject({
    user_id: null,
    level: 'fatal',
    exception_type: null,
    exception_value: 'b',
  });
});

it('of what is not read are empty, and say so', () => {
  const large = `{"level":"info","message":"${'x'.repeat(READ_BYTES_MAX)}"}`;
  for (const payload of [undefined, large])
    expect(rowOf('events', payload)).toMatchObject({ level: null, message: null, unread: true });
});

it('of a recording are those of its head, however much follows; a packed one has its replay alone', () => {
  const recording = (segment: number): string =>
    `{"segment_id":${segment},"recording":["${'x'.repeat(READ_BYTES_MAX)}"]}`;
  const told = { replay_id: EVENT_ID, timestamp: null };
  expect(rowOf('replays', recording(3), 'replay_recording')).toMatchObject({
    ...told,
    segment_id: 3,
    unread: false,
  });
  expect(rowOf('replays', recording(2 ** 32), 'replay_recording')).toMatchObject({
    ...told,
    segment_id: null,
    unread: true,
  });
  expect(rowOf('replays', undefined, 'replay_recording')).toMatchObject({
    ...told,
    segment_id: null,
    unread: true,
  });
});

it('docs/clickhouse.md names the columns of each table, and no others', () => {
  const statements = [...(MIGRATIONS[0] ?? []), ...Object.values(VERSION_TABLES)];
  const made = statements.map((statement) => {
    const [, table = '', inside = ''] = /\$db\.(\w+) \(\n([\s\S]*?)\n\) ENGINE/.exec(statement) ?? [];
    const names = [...inside.matchAll(/(?:^|, ) *(\w+) [A-Z]/gm)].map(([, name]) => name);
    return [table, names.sort()];
  });
  expect(made).toHaveLength(11);
  const text = readFileSync(new URL('../../docs/clickhouse.md', import.meta.url), 'utf8');
  const wordsIn = (cell = ''): string[] => [...cell.matchAll(/`(\w+)`/g)].map(([, word = '']) => word);
  const common = wordsIn(/^Each of these tables has the columns (.*)$/m.exec(text)?.[1]);
  expect(common).toHaveLength(10);
  const named = [...text.matchAll(/^\| `(\w+)` \| each [^|]*\| (.*) \|$/gm)].map(([, table = '', cell]) => {
    const isOfItems = [...Object.keys(COLUMNS), 'extras'].includes(table);
    return [table, [...(isOfItems ? common : []), ...wordsIn(cell)].sort()];
  });
  expect(Object.fromEntries(named)).toEqual(Object.fromEntries(made));
});
