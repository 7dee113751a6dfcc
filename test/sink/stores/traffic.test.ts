/**
 * Every documented query, asked of all sinks at once after traffic of `sluice load`, says the numbers that are computed from the ndjson
 * files of the same traffic.
 */
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Project } from '../../../src/projects/project.ts';
import { LoadCommand } from '../../support/load-command.ts';
import { TestPostgres } from '../../support/postgres.ts';
import { TestClickHouse } from '../../support/sinks/clickhouse.ts';
import { TestS3 } from '../../support/sinks/seaweedfs.ts';
import { type StoredRecord, System, until } from '../../support/system.ts';
import { type Row, referenceRow, type TypedTable } from '../reference.ts';
import { QUERIES } from './under-test.ts';

const TABLE_OF: Readonly<Record<string, TypedTable>> = {
  event: 'events',
  transaction: 'transactions',
  span: 'spans',
  log: 'logs',
  replay_event: 'replays',
};
const SINKS = readFileSync(new URL('../../../docs/sinks.md', import.meta.url), 'utf8');
const USER = 'a user of all types';
const id = (n: number): string => `${n}`.padStart(32, '0');

const load = new LoadCommand();
let clickhouse: TestClickHouse;
let postgres: TestPostgres;
let s3: TestS3;
let system: System;
let project: Project;
let tokens: string[];
let lines: StoredRecord[];

/** What the load generator does not send: replays, errors and logs of one user and one trace, a message. */
const extras = (user: string): string[] => {
  const trace = { trace_id: id(7) };
  const event = { message: 'hello', level: 'error', user: { id: user }, contexts: { trace }, timestamp: 5 };
  const logs = { items: [{ ...trace, timestamp: 6, level: 'info', body: 'beside an error' }] };
  const replay = (segment_id: number) => ({ replay_id: 'r1', segment_id, timestamp: 7, user: { id: user } });
  const items: [string, unknown][] = [
    ['event', event],
    ['event', { ...event, exception: { values: [{ type: 'OnlyHere', value: 'x' }] }, release: 'only@1' }],
    ['log', logs],
    ['log', { items: [] }],
    ['replay_event', replay(0)],
    ['replay_event', replay(1)],
  ];
  return items.map(
    ([type, payload], n) => `{"event_id":"${id(n + 1)}"}\n{"type":"${type}"}\n${JSON.stringify(payload)}`,
  );
};

beforeAll(async () => {
  [clickhouse, postgres, s3] = await Promise.all([
    TestClickHouse.start(),
    TestPostgres.start(),
    TestS3.start(),
  ]);
  system = await System.start({ env: { SLUICE_SINK: 'ndjson:placeholder' }, processor: false });
  system.env.SLUICE_SINK = `ndjson:${system.sinkDir} ${clickhouse.url()} ${postgres.url} ${s3.url()}`;
  system.processor = system.startProcessor();
  await system.ready();
  project = await system.createProject();
  tokens = [await system.createHeartbeat(), await system.createHeartbeat()];
  const { status, err } = await load.run(
    ...['--dsn', system.dsn(project), '--mix', 'event=3,transaction,log,span,replay', '--quiet'],
    ...['--rate', '150', '--duration', '4s', '--warmup', '0'],
  );
  expect(status, err).toBe(0);
  for (const body of extras(USER)) expect((await system.send(project, body)).status).toBe(200);
  for (const token of [...tokens, ...tokens])
    expect((await fetch(`${system.url}/heartbeat/${token}`, { method: 'POST' })).status).toBe(200);
  await until(async () => {
    const manager = await system.link.manager();
    const infos = await manager.streams.list().next();
    const frames = infos.filter(({ config }) => config.retention === 'workqueue');
    return frames.every(({ state }) => state.messages === 0);
  });
  lines = system.stored();
});
afterAll(async () => {
  await system?.stop();
  for (const server of [clickhouse, postgres, s3]) await server?.close();
  load.close();
});

type Told = Row & { received_at: string };

/** The rows of a table as a plain reader finds them in the files. */
function rowsOf(table: TypedTable): Told[] {
  const records = lines.filter(({ type }) => TABLE_OF[type] === table);
  return records.flatMap(({ type, payload, event_id, received_at }) => {
    const isContainer = type === 'log' || type === 'span';
    const items = isContainer ? (payload.items as unknown[]) : [payload];
    return items.map((one) => ({ ...referenceRow(table, JSON.stringify(one), event_id), received_at }));
  });
}

function groups<Item>(items: readonly Item[], by: (item: Item) => unknown): Map<string, Item[]> {
  const found = new Map<string, Item[]>();
  for (const item of items) found.set(`${by(item)}`, [...(found.get(`${by(item)}`) ?? []), item]);
  return found;
}
const usersOf = (rows: readonly Row[]): number => new Set(rows.flatMap(({ user_id }) => user_id ?? [])).size;
const isError = ({ level }: Row): boolean => level === 'error' || level === 'fatal';
const numbers = (rows: readonly Row[], name: string): number[] =>
  rows.map((row) => row[name]).filter((value) => typeof value === 'number');
const sum = (values: readonly number[]): number => values.reduce((one, other) => one + other, 0);
/** As ClickHouse shows a moment, of microseconds. */
const shown = (micros: unknown): string =>
  `${new Date(Math.floor(Number(micros) / 1e6) * 1000).toISOString().slice(0, 19).replace('T', ' ')}.${`${Number(micros) % 1e6}`.padStart(6, '0')}`;
const hourOf = ({ received_at }: Told): string => `${received_at.slice(0, 13).replace('T', ' ')}:00:00`;

function quantile(values: readonly number[], level: number): number {
  const sorted = values.toSorted((one, other) => one - other);
  const place = level * (sorted.length - 1);
  const [low = 0, high = low] = [sorted[Math.floor(place)], sorted[Math.ceil(place)]];
  return Math.round((low + (high - low) * (place % 1)) * 10) / 10;
}

/** The query with our project and values in it. */
async function ask(title: string, ...values: readonly (readonly [string, string])[]) {
  const { sql = '' } = QUERIES.find((query) => query.title.startsWith(title)) ?? {};
  const today = lines[0]?.received_at.slice(0, 10) ?? '';
  const all = [["'42'", `'${project.id}'`], ["'2026-01-02'", `'${today}'`], ...values] as const;
  const own = all.reduce((text, [from, to]) => text.replaceAll(from, to), sql);
  return clickhouse.query<Record<string, string | number | null>>(own);
}

const most = (counts: readonly number[]): number[] => counts.toSorted((one, other) => other - one);

it('the files have all that was sent, and the tables as much', async () => {
  expect(lines.length).toBeGreaterThan(600);
  for (const table of Object.values(TABLE_OF)) {
    const type = table === 'replays' ? `WHERE type = 'replay_event'` : '';
    const [found] = await clickhouse.query(`SELECT count() AS n FROM sluice.${table} FINAL ${type}`);
    // The container without logs is a row.
    expect(found?.n, table).toBe(rowsOf(table).length + (table === 'logs' ? 1 : 0));
  }
});

it('top errors of a release', async () => {
  const release = `${rowsOf('events')[0]?.release}`;
  const found = await ask('Top errors', ['shop@1.2.0', release]);
  const errors = rowsOf('events').filter((row) => row.release === release && isError(row));
  const byType = groups(errors, (row) => [row.exception_type, row.exception_value]);
  expect(found.length).toBe(Math.min(10, byType.size));
  expect(found.map(({ times }) => times)).toEqual(
    most([...byType.values()].map(({ length }) => length)).slice(0, 10),
  );
  for (const { exception_type, exception_value, times, users, last } of found) {
    const same = byType.get(`${[exception_type, exception_value]}`) ?? [];
    const latest = Math.max(...numbers(same, 'timestamp'));
    expect([times, users, last]).toEqual([same.length, usersOf(same), shown(latest)]);
  }
});

it('errors by hour', async () => {
  const hours = groups(rowsOf('events').filter(isError), (row) => hourOf(row as Told));
  const wanted = [...hours].map(([hour, rows]) => ({ hour, errors: rows.length, users: usersOf(rows) }));
  expect(await ask('Errors by hour')).toEqual(wanted.toSorted((a, b) => (a.hour < b.hour ? -1 : 1)));
});

it('errors that are new in a release', async () => {
  const found = await ask('Errors that are new', ['shop@1.2.0', 'only@1']);
  expect(found).toEqual([{ exception_type: 'OnlyHere', first: shown(5e6), times: 1 }]);
  const release = `${rowsOf('events')[0]?.release}`;
  expect(await ask('Errors that are new', ['shop@1.2.0', release])).toEqual([]);
});

it('p50 and p95 of a transaction', async () => {
  const name = `${rowsOf('transactions')[0]?.name}`;
  const same = rowsOf('transactions').filter((row) => row.name === name);
  const wanted = [...groups(same, (row) => hourOf(row as Told))].map(([hour, rows]) => ({
    hour,
    times: rows.length,
    p50: quantile(numbers(rows, 'duration_ms'), 0.5),
    p95: quantile(numbers(rows, 'duration_ms'), 0.95),
  }));
  const found = await ask('p50 and p95', ['GET /checkout', name]);
  expect(found).toEqual(wanted.toSorted((a, b) => (a.hour < b.hour ? -1 : 1)));
});

it('the slowest transactions', async () => {
  const found = await ask('The slowest transactions');
  const byName = groups(rowsOf('transactions'), ({ name }) => name);
  const totals = [...byName.values()].map((rows) => Math.round(sum(numbers(rows, 'duration_ms'))));
  expect(found.map(({ total_ms }) => total_ms)).toEqual(most(totals).slice(0, 10));
  for (const { name, times, p95 } of found) {
    const same = byName.get(`${name}`) ?? [];
    expect([times, p95]).toEqual([same.length, quantile(numbers(same, 'duration_ms'), 0.95)]);
  }
});

it('where the time of a trace goes', async () => {
  const trace = `${rowsOf('spans')[0]?.trace_id}`;
  const same = rowsOf('spans').filter((row) => row.trace_id === trace);
  const found = await ask('Where the time', ['c'.repeat(32), trace]);
  expect(found).toHaveLength(1);
  const [{ op, spans, total_ms, longest_ms } = {}] = found;
  expect([op, spans]).toEqual([null, same.length]);
  expect(Number(total_ms)).toBeCloseTo(sum(numbers(same, 'duration_ms')), 0);
  expect(Number(longest_ms)).toBeCloseTo(Math.max(...numbers(same, 'duration_ms')), 3);
});

it('logs of a trace, beside its errors', async () => {
  const found = await ask('Logs of a trace', ['c'.repeat(32), id(7)]);
  const texts = found.map(({ what, text, level }) => [what, text, level]);
  expect(texts.slice(0, 2).toSorted()).toEqual([
    ['event', null, 'error'],
    ['event', 'x', 'error'],
  ]);
  expect(texts.slice(2)).toEqual([['log', 'beside an error', 'info']]);
  const other = `${rowsOf('logs').find(({ trace_id }) => trace_id !== id(7))?.trace_id}`;
  expect(await ask('Logs of a trace', ['c'.repeat(32), other])).toHaveLength(
    rowsOf('logs').filter((row) => row.trace_id === other).length,
  );
});

const serverOf = (log: unknown): unknown =>
  (log as { attributes?: { 'server.address'?: { value: unknown } } }).attributes?.['server.address']?.value;
const logs = (): Record<string, unknown>[] =>
  lines.flatMap(({ type, payload }) => (type === 'log' ? (payload.items as Record<string, unknown>[]) : []));

it('logs that hold a word', async () => {
  const packed = logs().filter(({ level, body }) => level === 'warn' && `${body}`.includes('packed'));
  const wanted = [...groups(packed, serverOf)].map(([server, { length }]) => ({ server, times: length }));
  const found = await ask('Logs that hold a word', ['timeout', 'PACKED']);
  const inOrder = (rows: readonly object[]) => rows.map((row) => JSON.stringify(row)).sort();
  expect(inOrder(found)).toEqual(inOrder(wanted));
  expect(found.map(({ times }) => times)).toEqual(most(wanted.map(({ times }) => times)));
});

it('the latest replay of a user', async () => {
  const errors = rowsOf('events').filter(({ user_id }) => user_id === USER).length;
  expect(await ask('The latest replay', ["'u1'", `'${USER}'`])).toEqual([
    { replay_id: 'r1', began: shown(7e6), segments: 2, errors },
  ]);
  expect(errors).toBe(2);
});

it('heartbeats that are late', async () => {
  expect(await ask('Heartbeats that are late')).toEqual([]);
  const pings = lines.filter(({ type }) => type === 'heartbeat') as unknown as {
    token: string;
    received_at: string;
  }[];
  expect(pings).toHaveLength(2 * tokens.length);
  const lastOf = (token: string): string =>
    pings
      .flatMap((ping) => (ping.token === token ? [ping.received_at] : []))
      .sort()
      .at(-1) ?? '';
  const wanted = tokens.map((token) => ({ token, last: lastOf(token).replace('T', ' ').replace('Z', '') }));
  const found = await ask('Heartbeats that are late', ['INTERVAL 5 MINUTE', 'INTERVAL -1 DAY']);
  expect(found).toEqual(wanted.toSorted((one, other) => (one.last < other.last ? -1 : 1)));
});

it('postgres: events by message, and logs of containers that stayed whole', async () => {
  const [, sql = ''] = /```sql\n(CREATE FUNCTION sluice[^`]*)```/.exec(SINKS) ?? [];
  const [byMessage = '', wholeLogs = ''] = sql.split(';\n').filter((one) => one.startsWith('SELECT'));
  await postgres.query(sql.slice(0, sql.indexOf('SELECT event_id')));
  const own = (query: string): string => query.replaceAll("'42'", `'${project.id}'`);
  const hello = lines.filter(({ type, payload }) => type === 'event' && payload.message === 'hello');
  const found = await postgres.query<{ event_id: string; message: string }>(own(byMessage));
  expect(found.map(({ event_id }) => event_id).sort()).toEqual(hello.map(({ event_id }) => event_id).sort());
  expect(await postgres.query(own(wholeLogs))).toEqual([]);
  const whole = await postgres.query('SELECT payload FROM sluice.logs WHERE log_index IS NULL');
  expect(whole).toEqual([{ payload: '{"items":[]}' }]);
});

it('clickhouse reads the archive of s3: logs by level', async () => {
  const [, sql = ''] = /```sql\n(SELECT JSONExtractString\(log[^`]*)```/.exec(SINKS) ?? [];
  const date = lines[0]?.received_at.slice(0, 10) ?? '';
  const own = sql
    .replace('https://s3.eu-central-1.amazonaws.com', s3.endpoint)
    .replace('2026-01-02', date)
    .replace("'KEY', 'SECRET'", "'test', 'secret'");
  const wanted = [...groups(logs(), ({ level }) => level)].map(([level, { length }]) => [level, length]);
  const found = await clickhouse.query<{ level: string; times: number }>(own);
  expect(found.map(({ level, times }) => [level, times]).toSorted()).toEqual(wanted.toSorted());
});
