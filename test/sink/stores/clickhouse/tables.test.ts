import { readFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { clickhouse } from '../../../../src/commands/doctor/clickhouse.ts';
import type { ItemType } from '../../../../src/lib/item-types.ts';
import { type Finding, findingOf } from '../../../../src/management/doctor/check.ts';
import { runProcessor } from '../../../../src/processor/processor.ts';
import { ClickHouseSink } from '../../../../src/sink/clickhouse/clickhouse.ts';
import { SCHEMA_VERSION } from '../../../../src/sink/clickhouse/schema.ts';
import { STREAM_OF_TYPE } from '../../../../src/stream/topology.ts';
import { envelope, Harness, hexId, item, log, type RunningProcessor } from '../../../processor/harness.ts';
import { TestClickHouse } from '../../../support/sinks/clickhouse.ts';

const checkClickHouse = async (url: string): Promise<Finding[]> => (await clickhouse(url)).map(findingOf);

let server: TestClickHouse;
const sinks: ClickHouseSink[] = [];
beforeAll(async () => {
  server = await TestClickHouse.start();
});
afterEach(async () => {
  for (const sink of sinks.splice(0)) await sink.close();
  await server.run('DROP DATABASE IF EXISTS sluice');
});
afterAll(() => server.close());

async function connect(url = server.url(), retentionDays?: number): Promise<ClickHouseSink> {
  const sink = await ClickHouseSink.connect(url, { log, retentionDays });
  sinks.push(sink);
  return sink;
}
const tables = async (): Promise<string[]> =>
  (
    await server.query<{ name: string }>(
      `SELECT name FROM system.tables WHERE database = 'sluice' ORDER BY name`,
    )
  ).map(({ name }) => name);

describe('the tables', () => {
  it('are made by the first processor, also by several that start together', async () => {
    await Promise.all([connect(), connect(), connect()]);
    expect(await tables()).toEqual([
      'additions',
      'events',
      'extras',
      'heartbeats',
      'logs',
      'migrations',
      'replays',
      'seen_items',
      'spans',
      'transactions',
      'usage',
    ]);
    await connect();
    const versions = (table: string): Promise<object[]> =>
      server.query(`SELECT version FROM sluice.${table} FINAL ORDER BY version`);
    expect(await versions('migrations')).toEqual([{ version: 1 }]);
    expect(await versions('additions')).toEqual([2, 3, 4].map((version) => ({ version })));
  });

  it('of an earlier program are brought to the same form: its rows stay and are unread', async () => {
    const columns = (): Promise<object[]> =>
      server.query(`SELECT table, name, type FROM system.columns
WHERE database = 'sluice' AND table NOT IN ('migrations', 'additions') ORDER BY table, name`);
    const indexes = (): Promise<object[]> =>
      server.query(
        `SELECT table, name, expr FROM system.data_skipping_indices WHERE database = 'sluice' ORDER BY table, name`,
      );
    await connect();
    const [wanted, indexed] = [await columns(), await indexes()];
    await server.run('DROP DATABASE sluice');
    await server.run('CREATE DATABASE sluice');
    const old = readFileSync(new URL('./tables-2.sql', import.meta.url), 'utf8');
    for (const statement of old.split(/;\n/).filter((text) => text.trim() !== ''))
      await server.run(statement);
    const row = (payload: string): string =>
      `INSERT INTO sluice.events (project_id, day, event_id, received_at, item_header, payload)
VALUES ('42', '2026-01-02', '${hexId(1)}', '2026-01-02 03:04:05', '{}', '${payload}')`;
    await server.run(row('{"level":"info","timestamp":5}'));
    await Promise.all([connect(), connect(), connect()]);
    expect(await columns()).toEqual(wanted);
    expect(await indexes()).toEqual(indexed);
    const told = { level: 'info', timestamp: '1970-01-01 00:00:05.000000', unread: true };
    expect(await server.query('SELECT * FROM sluice.events')).toMatchObject([told]);
    // A processor of the earlier program, which still runs or starts again.
    await server.run(row('{"level":"info"}'));
    const rows = await server.query('SELECT level, unread FROM sluice.events ORDER BY level NULLS FIRST');
    expect(rows).toEqual([
      { level: null, unread: true },
      { level: 'info', unread: true },
    ]);
  });

  it('are in the database that the setting names', async () => {
    await connect(server.url({ database: 'elsewhere' }));
    expect(await tables()).toEqual([]);
    expect(await server.query('SELECT count() AS n FROM elsewhere.events')).toEqual([{ n: 0 }]);
    await server.run('DROP DATABASE elsewhere');
  });

  it('lose rows by age when told how long to keep them, and are left alone when not', async () => {
    const engine = async (): Promise<string> =>
      (
        await server.query<{ e: string }>(
          `SELECT engine_full AS e FROM system.tables WHERE database = 'sluice' AND name = 'events'`,
        )
      )[0]?.e ?? '';
    await connect();
    expect(await engine()).not.toContain('TTL');
    await connect(server.url(), 30);
    expect(await engine()).toContain('TTL toDateTime(least(toDate32(day) + toIntervalDay(31), ');
    await connect(server.url(), 90);
    expect(await engine()).toContain('TTL toDateTime(least(toDate32(day) + toIntervalDay(91), ');
    await connect();
    expect(await engine()).toContain('toIntervalDay(91)');
    await server.run('ALTER TABLE sluice.events REMOVE TTL');
    await connect();
    expect(await engine()).not.toContain('TTL');
  });
});

describe('the start', () => {
  it('takes tables to which a newer program only added, as an earlier program takes these', async () => {
    await connect();
    // What version 0.2.0 asks: it knows version 1.
    const asked = 'SELECT max(version) AS version FROM sluice.migrations';
    expect(await server.query(asked)).toEqual([{ version: 1 }]);
    await server.run('INSERT INTO sluice.additions (version) VALUES (99)');
    await connect();
    const found = (await checkClickHouse(server.url())).find(({ what }) => what.endsWith(' migrations'));
    expect(found).toMatchObject({ state: 'ok' });
  });

  it.each([
    [
      'wrong credentials',
      () => server.url({ password: 'wrong' }),
      /^SLUICE_SINK: clickhouse: .*Authentication failed/,
    ],
    ['an unknown option', () => server.url({ options: '?tls=1' }), /secure and compression, not tls/],
    ['a database that is no word', () => server.url({ database: 'a-b' }), /is a word, not a-b/],
    ['an unknown compression', () => server.url({ options: '?compression=lz4' }), /one of none, gzip, zstd/],
  ])('ends with one clear line for %s', async (_what, url, line) => {
    const error = await connect(url()).then(
      () => undefined,
      (found: Error) => found,
    );
    expect(error).toMatchObject({ name: 'SinkSettingError', message: expect.stringMatching(line) });
    expect(error?.message).not.toContain('\n');
    expect(error?.message).not.toContain('wrong@');
  });

  it('refuses tables of a newer program', async () => {
    await connect();
    await server.run('INSERT INTO sluice.migrations (version) VALUES (99)');
    await expect(connect()).rejects.toThrow('run the newer program');
    const found = (await checkClickHouse(server.url())).find(({ what }) => what.endsWith(' migrations'));
    expect(found).toMatchObject({ state: 'fail', found: `99 applied, ${SCHEMA_VERSION} known here` });
  });
});

it('doctor finds a fresh server good, and one that is not there missing', async () => {
  const stateOf = async (): Promise<Record<string, string>> => {
    const checks = await checkClickHouse(server.url());
    expect(JSON.stringify(checks)).not.toContain('secret');
    return Object.fromEntries(checks.map(({ what, state }) => [what.split('/sluice ')[1] ?? '', state]));
  };
  const before = await stateOf();
  expect(before).toMatchObject({ '': 'ok', migrations: 'warn', writes: 'ok', parts: 'ok', clock: 'ok' });
  await connect();
  expect(await stateOf()).toMatchObject({ migrations: 'ok' });
  const [gone] = await checkClickHouse('clickhouse://me:secret@127.0.0.1:1/none');
  expect(gone).toMatchObject({ state: 'fail', what: 'clickhouse clickhouse://…@127.0.0.1:1/none' });
  const [wrong] = await checkClickHouse(server.url({ password: 'wrong' }));
  expect(wrong?.found).toContain('Authentication failed');
});

describe('typed columns', () => {
  let harness: Harness;
  let processor: RunningProcessor;
  beforeAll(async () => {
    harness = await Harness.start();
  });
  afterAll(() => harness.close());
  let events = 0;

  /** Stores the payload. @returns the row of its table */
  async function rowOf(type: ItemType, payload: string): Promise<Record<string, unknown> | undefined> {
    processor = await runProcessor(
      harness.config({ SLUICE_SINK: server.url({ options: '?compression=gzip' }) }),
      log,
    );
    const eventId = hexId(++events);
    await harness.publish([envelope([item(type, payload)], { eventId })], { stream: STREAM_OF_TYPE[type] });
    await harness.drained();
    await processor.stop();
    const table = { event: 'events', transaction: 'transactions', log: 'logs', span: 'spans' }[
      type as string
    ];
    return (
      await server.query(`SELECT * FROM sluice.${table ?? 'replays'} WHERE event_id = '${eventId}'`)
    )[0];
  }

  it('of an event', async () => {
    const payload = {
      timestamp: 1767323045.678901,
      level: 'warning',
      environment: 'production',
      release: 'shop@1.2.3',
      platform: 'python',
      transaction: '/checkout',
      logentry: { message: 'hello %s', formatted: 'hello world' },
      contexts: { trace: { trace_id: 'ab'.repeat(16) } },
      user: { id: 42 },
      exception: {
        values: [
          { type: 'OSError', value: 'inner' },
          { type: 'ValueError', value: 'outer' },
        ],
      },
    };
    expect(await rowOf('event', JSON.stringify(payload))).toMatchObject({
      project_id: '42',
      day: '2026-01-02',
      timestamp: '2026-01-02 03:04:05.678901',
      level: 'warning',
      environment: 'production',
      release: 'shop@1.2.3',
      platform: 'python',
      transaction: '/checkout',
      message: 'hello world',
      trace_id: 'ab'.repeat(16),
      user_id: '42',
      exception_type: 'ValueError',
      exception_value: 'outer',
    });
  });

  it.each([
    ['nothing', '{}', { level: 'error', unread: false }],
    ['a scalar', '5', { level: 'error', unread: false }],
    [
      'values of other kinds',
      '{"level":[],"timestamp":{},"exception":5,"user":"x","contexts":[1],"release":null}',
      { level: null, unread: true },
    ],
    ['a moment beyond all', '{"timestamp":1e300}', { level: 'error', unread: true }],
    ['a moment that is none', '{"timestamp":"yesterday"}', { level: 'error', unread: true }],
    [
      'nesting that no parser follows',
      `{"release":"r9","a":${'['.repeat(100_000)}${']'.repeat(100_000)}}`,
      { level: 'error', release: 'r9', unread: false },
    ],
    ['lone surrogates', '{"message":"a\\ud800"}', { message: 'a\ufffd', unread: false }],
  ])(
    'of an event that says %s: as far as they can be told, and the row is stored',
    async (_, payload, told) => {
      const empty = { timestamp: null, environment: null, exception_type: null };
      expect(await rowOf('event', payload)).toMatchObject({ payload, ...empty, ...told });
    },
  );

  it('of an exception list without its wrapper, and moments in RFC 3339', async () => {
    const payload =
      '{"timestamp":"2026-01-02T05:04:05.25+02:00","exception":[{"type":"A"},{"type":"B","value":"b"}]}';
    const typed = { timestamp: '2026-01-02 03:04:05.250000', exception_type: 'B', exception_value: 'b' };
    expect(await rowOf('event', payload)).toMatchObject(typed);
  });

  it('of a transaction', async () => {
    const trace = { trace_id: 'cd'.repeat(16), span_id: 'ef'.repeat(8), op: 'http.server', status: 'ok' };
    const payload = {
      start_timestamp: 1000.5,
      timestamp: 1001.75,
      transaction: '/checkout',
      contexts: { trace },
    };
    expect(await rowOf('transaction', JSON.stringify(payload))).toMatchObject({
      ...trace,
      name: '/checkout',
      duration_ms: 1250,
      start_timestamp: '1970-01-01 00:16:40.500000',
    });
  });

  it('of a log and a span, whose attributes have their values one level below', async () => {
    const attributes = {
      'sentry.environment': { type: 'string', value: 'production' },
      'sentry.release': { type: 'string', value: '1.0' },
      'sentry.op': { type: 'string', value: 'db' },
    };
    const entry = { trace_id: 'ab'.repeat(16), attributes };
    const logEntry = { ...entry, timestamp: 1767323045.5, level: 'info', body: 'hi' };
    const common = { environment: 'production', release: '1.0', trace_id: 'ab'.repeat(16) };
    expect(await rowOf('log', JSON.stringify({ items: [logEntry] }))).toMatchObject({
      ...common,
      log_index: 0,
      level: 'info',
      body: 'hi',
      timestamp: '2026-01-02 03:04:05.500000',
    });
    const span = {
      ...entry,
      name: 'SELECT',
      status: 'ok',
      is_segment: true,
      start_timestamp: 5,
      end_timestamp: 5.002,
    };
    expect(await rowOf('span', JSON.stringify({ items: [span], version: 2 }))).toMatchObject({
      ...common,
      container: '{"version":2}',
      name: 'SELECT',
      op: 'db',
      is_segment: true,
      duration_ms: 2,
    });
  });

  it('of a span whose resource names its service', async () => {
    const of = (value: string): object => ({ type: 'string', value });
    const attributes = {
      'sentry.environment': of(''),
      'resource.service.name': of('shop'),
      'resource.service.version': of('1.2'),
      'resource.deployment.environment': of('staging'),
    };
    const told = { service: 'shop', release: '1.2', environment: 'staging', unread: false };
    expect(await rowOf('span', JSON.stringify({ items: [{ attributes }] }))).toMatchObject(told);
    const own = {
      ...attributes,
      'service.name': of('till'),
      'deployment.environment.name': of('production'),
    };
    expect(await rowOf('log', JSON.stringify({ items: [{ attributes: own }] }))).toMatchObject({
      ...told,
      service: 'till',
      environment: 'production',
    });
  });

  it('of a replay', async () => {
    const payload = {
      replay_id: 'aa',
      segment_id: 3,
      user: { id: 'u1' },
      environment: 'production',
      timestamp: 5,
    };
    expect(await rowOf('replay_event', JSON.stringify(payload))).toMatchObject({
      type: 'replay_event',
      replay_id: 'aa',
      segment_id: 3,
      user_id: 'u1',
      environment: 'production',
    });
  });
});
