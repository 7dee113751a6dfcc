/**
 * What rows say is true, or empty: payloads of every kind that ingest accepts go into all four sinks at once, and each column of each sink
 * is what a plain reader finds in the payload, or NULL.
 */
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { integer, pick, seededRandom } from '../../../bench/random.ts';
import { jsonText } from '../../../src/lib/json-text.ts';
import { envelope, Harness, hexId, item, type RunningProcessor } from '../../processor/harness.ts';
import { hostilePayload, KINDS } from '../hostile-json.ts';
import { type Row, referenceRow, type TypedTable } from '../reference.ts';
import { NdjsonUnderTest, PostgresUnderTest, type SinkUnderTest } from '../sinks.ts';
import { ClickHouseUnderTest, QUERIES, S3UnderTest } from './under-test.ts';

const SEED = Number(process.env.SEED ?? 50);
const PAYLOADS_OF_A_KIND = 12;
const ITEMS = {
  events: ['event', 'events'],
  transactions: ['transaction', 'transactions'],
  spans: ['span', 'transactions'],
  logs: ['log', 'logs'],
  replays: ['replay_event', 'replays'],
} as const;
const TABLES = Object.keys(ITEMS) as TypedTable[];
/** As envelope headers have them, and what of them is in `sent_at` (RFC 3339 in UTC). */
const SENT: readonly (readonly [sentAt: string, files: string | undefined, clickhouse?: null])[] = [
  ['2026-01-02T03:04:05.678901+02:00', '2026-01-02T01:04:05.678Z'],
  ['5', '1970-01-01T00:00:05.000Z'],
  ['1850-01-01T00:00:00Z', '1850-01-01T00:00:00.000Z', null],
  ['9999-12-31T23:59:59Z', '9999-12-31T23:59:59.000Z', null],
  ['2106-02-07T06:28:16Z', '2106-02-07T06:28:16.000Z', null],
  ['2026-02-30T00:00:00Z', undefined],
  ['1e308', undefined],
  ['yesterday', undefined],
];
const SDKS = ['a\0b', 'CORP\\bob', '"q"', '\u{1f600}', 'null', 'x'.repeat(5_000)];

type Sent = { table: TypedTable; kind: string; payload: string; sent: (typeof SENT)[number]; sdk: string };

let harness: Harness;
let processor: RunningProcessor;
let clickhouse: ClickHouseUnderTest;
let postgres: PostgresUnderTest;
let sinks: readonly SinkUnderTest[] = [];
const sent: Sent[] = [];

beforeAll(async () => {
  [harness, clickhouse, postgres] = await Promise.all([
    Harness.start(),
    ClickHouseUnderTest.start(),
    PostgresUnderTest.start(),
  ]);
  sinks = [clickhouse, postgres, new NdjsonUnderTest(), await S3UnderTest.start('seconds=1')];
  const settings = { SLUICE_SINK: sinks.map(({ setting }) => setting).join(' ') };
  processor = await harness.run(settings);
  const random = seededRandom(SEED);
  for (const table of TABLES) {
    const [type, stream] = ITEMS[table];
    for (const kind of KINDS) {
      const entries = Array.from({ length: PAYLOADS_OF_A_KIND }, () => {
        const one = {
          table,
          kind,
          payload: hostilePayload(random, table, kind),
          sent: pick(random, SENT),
          sdk: pick(random, SDKS),
        };
        sent.push(one);
        const isContainer = type === 'span' || type === 'log';
        const payload = isContainer ? `{"items":[${one.payload}],"version":2}` : one.payload;
        const of = { eventId: hexId(sent.length), sentAt: one.sent[0], sdk: one.sdk };
        return envelope([item(type, payload, { index: integer(random, 0, 9) })], of);
      });
      await harness.publish(entries, { stream });
    }
  }
  await harness.drained();
});
afterAll(async () => {
  await processor?.stop();
  await harness?.close();
  for (const sink of sinks) await sink.close();
});

const sentOf = (eventId: unknown): Sent | undefined => sent[Number.parseInt(`${eventId}`, 16) - 1];
/** Blanks around a payload belong to its container. */
const bare = (text: unknown): string => `${text}`.trim();

it('every payload is one that ingest accepts, and none is a dead letter', async () => {
  for (const { payload } of sent) expect(jsonText(Buffer.from(payload)).ok, payload).toBe(true);
  const letters = await (await harness.letters()).list();
  expect(
    letters.map(({ reason }) => reason),
    `seed ${SEED}`,
  ).toEqual([]);
});

/** A moment as ClickHouse shows it, in microseconds. */
const MOMENT = /^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)\.(\d{6})$/;
function cell(value: unknown): unknown {
  const [, day, time, micros] = MOMENT.exec(`${value}`) ?? [];
  return day ? Date.parse(`${day}T${time}Z`) * 1000 + Number(micros) : value;
}

describe.each(TABLES)('clickhouse, %s', (table) => {
  it.each(KINDS)('%s: each column is what the payload says, or NULL', async (kind) => {
    const rows = await clickhouse.server.query(`SELECT * FROM sluice.${table} FINAL`);
    const found = rows.filter(({ event_id }) => sentOf(event_id)?.kind === kind);
    expect(found).toHaveLength(PAYLOADS_OF_A_KIND);
    for (const row of found) {
      const { payload } = sentOf(row.event_id) as Sent;
      expect(bare(row.payload), `seed ${SEED}`).toBe(bare(payload));
      const wanted = referenceRow(table, payload, `${row.event_id}`);
      const typed: Row = {};
      for (const name of Object.keys(wanted)) typed[name] = cell(row[name]) as Row[string];
      expect(typed, `seed ${SEED}: ${payload.slice(0, 2_000)}`).toEqual(wanted);
    }
  });
});

it('what the envelope says is the same in all four, but for moments that ClickHouse cannot compute with', async () => {
  for (const sink of sinks) {
    const records = await sink.records();
    expect(records).toHaveLength(sent.length);
    for (const record of records) {
      const {
        sent: [, files, inClickHouse],
        sdk,
        table,
      } = sentOf(record.event_id) as Sent;
      const sentAt = sink === clickhouse && inClickHouse === null ? undefined : files;
      const isPostgres = sink === postgres;
      expect(record).toMatchObject({
        project_id: '42',
        type: ITEMS[table][0],
        received_at: '2026-01-02T03:04:05.678Z',
        sdk: isPostgres ? sdk.replaceAll('\0', '\ufffd') : sdk,
      });
      expect(record.sent_at, `${sink.setting}`).toBe(sentAt);
    }
  }
});

it('payloads are the same bytes in all four', async () => {
  const tables = ['items', 'logs', 'spans'] as const;
  const stored = await Promise.all(
    tables.map((table) =>
      postgres.server.query<{ event_id: string; payload: string }>(
        `SELECT event_id, payload FROM sluice.${table}`,
      ),
    ),
  );
  const rows = stored.flat();
  expect(rows).toHaveLength(sent.length);
  for (const { event_id, payload } of rows) expect(bare(payload)).toBe(bare(sentOf(event_id)?.payload));
  const events = sent.flatMap(({ table, payload }, at) =>
    table === 'events' ? [[hexId(at + 1), payload]] : [],
  );
  for (const [eventId = '', payload = ''] of events.slice(0, 40))
    for (const sink of sinks) expect(await sink.payloadTexts(eventId)).toEqual([payload]);
});

describe('the documented queries on hostile rows', () => {
  const sqlOf = (title: string): string => QUERIES.find((query) => query.title.startsWith(title))?.sql ?? '';
  /** What a plain reader finds in what was sent. */
  const rowsOf = (table: TypedTable): Row[] =>
    sent.flatMap((one, at) => (one.table === table ? [referenceRow(table, one.payload, hexId(at + 1))] : []));
  const usersOf = (rows: readonly Row[]): number =>
    new Set(rows.flatMap(({ user_id }) => (user_id === null ? [] : [user_id]))).size;
  const isError = ({ level }: Row): boolean => level === 'error' || level === 'fatal';

  it.each(QUERIES)('clickhouse answers: $title', async ({ sql }) => {
    expect(await clickhouse.server.query(sql)).toBeInstanceOf(Array);
  });

  it('errors by hour and users are as many as a plain reader counts', async () => {
    const errors = rowsOf('events').filter(isError);
    expect(errors.length).toBeGreaterThan(20);
    const hour = { hour: '2026-01-02 03:00:00', errors: errors.length, users: usersOf(errors) };
    expect(await clickhouse.server.query(sqlOf('Errors by hour'))).toEqual([hour]);
  });

  it('top errors of a release are those of a plain reader', async () => {
    const all = rowsOf('events').filter((row) => isError(row) && /^[\w.]+$/.test(`${row.release ?? ''}`));
    const release = all[0]?.release;
    const errors = all.filter((row) => row.release === release);
    const found = await clickhouse.server.query(sqlOf('Top errors').replace('shop@1.2.0', `${release}`));
    expect(found.length).toBeGreaterThan(0);
    for (const { exception_type, exception_value, times, users } of found) {
      const same = errors.filter(
        (row) => row.exception_type === exception_type && row.exception_value === exception_value,
      );
      expect([times, users]).toEqual([same.length, usersOf(same)]);
    }
  });

  it('the time of transactions is the sum of those that say both moments', async () => {
    const found = await clickhouse.server.query(sqlOf('The slowest transactions'));
    expect(found.length).toBeGreaterThan(1);
    for (const { name, times, total_ms } of found) {
      const same = rowsOf('transactions').filter((row) => row.name === name);
      const known = same.flatMap(({ duration_ms }) => (typeof duration_ms === 'number' ? [duration_ms] : []));
      expect(times).toBe(same.length);
      if (known.length === 0) expect(total_ms).toBeNull();
      else expect(Math.abs(Number(total_ms) - known.reduce((sum, ms) => sum + ms, 0))).toBeLessThanOrEqual(1);
    }
  });

  it('postgres reads each message that it can, and NULL where it cannot', async () => {
    const [, sql = ''] =
      /```sql\n(CREATE FUNCTION sluice[^`]*)```/.exec(readFileSync('docs/sinks.md', 'utf8')) ?? [];
    await postgres.server.query(sql);
    const rows = await postgres.server.query<{ event_id: string; message: string | null }>(
      `SELECT event_id, sluice.json_or_null(payload) ->> 'message' AS message FROM sluice.items WHERE type = 'event'`,
    );
    const told = rows.flatMap(({ event_id, message }) => {
      const payload: unknown = JSON.parse(sentOf(event_id)?.payload ?? 'null');
      const said = (payload as { message?: unknown } | null)?.message;
      return typeof said === 'string' && message !== null ? [[message, said] as const] : [];
    });
    expect(told.length).toBeGreaterThan(20);
    for (const [message, said] of told) expect(message).toBe(said);
  });
});

it('an event whose moment is beyond all is stored alone, and in hundreds', async () => {
  const before = sent.length;
  const beyond = (n: number) =>
    envelope([item('event', '{"timestamp":1e308}')], { eventId: hexId(before + 1 + n), projectId: '43' });
  await harness.publish([beyond(0)]);
  await harness.drained();
  await harness.publish(Array.from({ length: 300 }, (_, n) => beyond(n + 1)));
  await harness.drained();
  expect(await (await harness.letters()).list()).toEqual([]);
  const rows = `SELECT count() AS stored, count(timestamp) AS told FROM sluice.events WHERE project_id = '43' AND unread`;
  expect(await clickhouse.server.query(rows)).toEqual([{ stored: 301, told: 0 }]);
});
