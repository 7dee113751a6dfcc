import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { s3 } from '../../../../src/commands/doctor/s3.ts';
import { loadConfig } from '../../../../src/config.ts';
import { systemClock as clock } from '../../../../src/lib/clock.ts';
import { findingOf } from '../../../../src/management/doctor/check.ts';
import { resendKey } from '../../../../src/sink/item-key.ts';
import type { S3Setting } from '../../../../src/sink/s3/address.ts';
import { unpacked } from '../../../../src/sink/s3/archive.ts';
import type { Manifest } from '../../../../src/sink/s3/manifests.ts';
import { S3Sink } from '../../../../src/sink/s3/s3.ts';
import type { SinkRecord, StreamSink } from '../../../../src/sink/sink.ts';
import { eventually, hexId, log, NOW, RECEIVED_AT } from '../../../processor/harness.ts';
import { TestClickHouse } from '../../../support/sinks/clickhouse.ts';
import { TestS3 } from '../../../support/sinks/seaweedfs.ts';

const HOUR_MS = 3_600_000;
const document = readFileSync(new URL('../../../../docs/sinks.md', import.meta.url), 'utf8');
let server: TestS3;
const sinks: S3Sink[] = [];
beforeAll(async () => {
  server = await TestS3.start();
});
afterAll(async () => {
  for (const sink of sinks) await sink.close();
  await server.close();
});

const settingOf = (url: string): S3Setting => loadConfig({ SLUICE_SINK: url }).config.sinks[0] as S3Setting;

async function open(stream: string): Promise<StreamSink> {
  const url = server.url().replace('seconds=1', 'seconds=3600');
  const sink = await S3Sink.connect(settingOf(url), { log, clock });
  sinks.push(sink);
  return sink.open(stream);
}

const row = (n: number, receivedAt: number, more = ''): SinkRecord => ({
  type: 'log',
  head: `{"n":${n},"received_at":"${new Date(receivedAt).toISOString()}","payload":`,
  fields: { envelope: { projectId: '42', eventId: 'e', receivedAt }, index: 0, header: '{}' },
  json: Buffer.from(`{"level":"info","more":"${more}"}`),
});

/** One batch, an entry a row. */
async function write(stream: StreamSink, frameId: string, rows: readonly SinkRecord[]): Promise<void> {
  const batch = await stream.begin([frameId]);
  for (const [index, one] of rows.entries()) {
    batch.beginEntry({ frameId, index });
    batch.add(one);
    await batch.relieve();
  }
  await batch.commit(NOW);
}

const keysOf = async (stream: string): Promise<string[]> =>
  (await server.list(`sluice/${stream}/`)).map(({ key }) => key.replace('sluice/', ''));
const manifestOf = async (stream: string, hour: string): Promise<Manifest> =>
  JSON.parse(`${await server.get(`sluice/${stream}/${hour}/_manifest.json`)}`) as Manifest;

it('the same frames written again are the same object, which is stored once', async () => {
  const rows = [row(1, RECEIVED_AT), row(2, RECEIVED_AT)];
  for (let process = 0; process < 2; process++) await write(await open('SAME'), 'frame', rows);
  const [key = '', ...others] = await keysOf('SAME');
  expect(others).toEqual([]);
  expect(key).toMatch(/^SAME\/2026-01-02\/03\/[0-9a-f]{32}-2\.ndjson\.(gz|zst)$/);
  await write(await open('SAME'), 'another frame', rows);
  expect(await keysOf('SAME')).toHaveLength(2);
  const lines = unpacked(key, await server.get(`sluice/${key}`))
    .toString()
    .trimEnd()
    .split('\n');
  expect(lines.map((line) => JSON.parse(line) as object)).toMatchObject([
    { n: 1, payload: { level: 'info' }, row_key: expect.stringMatching(/^[0-9a-f]{32}$/) },
    { n: 2 },
  ]);
});

it('resends are known after a record of a worker whose clock is far ahead', async () => {
  const stream = await open('AHEAD');
  const now = clock.now();
  const event = (n: number, receivedAt = now): SinkRecord => {
    const fields = { projectId: '42', eventId: hexId(n), receivedAt };
    const resend = { key: resendKey(fields, { index: 0, type: 'event' }), receivedAt };
    return { ...row(n, receivedAt), type: 'event', resend };
  };
  await write(stream, 'ahead', [event(0, now + 2 * HOUR_MS)]);
  await write(stream, 'first', [event(1)]);
  await write(
    stream,
    'many',
    Array.from({ length: 2_000 }, (_, n) => event(2 + n)),
  );
  const batch = await stream.begin(['again']);
  batch.beginEntry({ frameId: 'again', index: 0 });
  batch.add(event(1));
  expect(await batch.commit(NOW)).toEqual([{ type: 'event', result: 'resent', count: 1 }]);
});

it('a large object is stored in parts, and is whole', async () => {
  const noise = randomBytes(9 * 1024 * 1024).toString('base64');
  const rows = [1, 2, 3].map((n) => row(n, RECEIVED_AT, noise));
  await write(await open('LARGE'), 'frame', rows);
  const [object] = await server.list('sluice/LARGE/');
  expect(object?.bytes).toBeGreaterThan(24 * 1024 * 1024);
  const lines = unpacked(object?.key ?? '', await server.get(object?.key ?? ''))
    .toString()
    .trimEnd()
    .split('\n');
  expect(lines.map((line) => (JSON.parse(line) as { payload: { more: string } }).payload.more)).toEqual(
    Array(3).fill(noise),
  );
});

it('rows are in an object of their hour; an hour has its manifest when the data is ten minutes past it', async () => {
  const stream = await open('HOURS');
  const late = RECEIVED_AT + HOUR_MS;
  await write(stream, 'one', [row(1, RECEIVED_AT), row(2, late), row(3, RECEIVED_AT)]);
  const folders = (await keysOf('HOURS')).map((key) => key.split('/').slice(1, 3).join(' '));
  expect(folders).toEqual(['2026-01-02 03', '2026-01-02 04']);
  await write(stream, 'two', [row(4, Date.UTC(2026, 0, 2, 4, 9, 59))]);
  expect((await keysOf('HOURS')).filter((key) => key.includes('manifest'))).toEqual([]);
  await write(stream, 'three', [row(5, Date.UTC(2026, 0, 2, 4, 10))]);
  expect((await keysOf('HOURS')).filter((key) => key.includes('manifest'))).toEqual([
    'HOURS/2026-01-02/03/_manifest.json',
  ]);
  const manifest = await manifestOf('HOURS', '2026-01-02/03');
  expect(manifest).toMatchObject({ v: 1, stream: 'HOURS', hour: '2026-01-02T03', rows: 2 });
  expect(manifest.objects).toHaveLength(1);
  expect((await keysOf('HOURS')).map((key) => `sluice/${key}`)).toContain(manifest.objects[0]?.key);
  await write(stream, 'late', [row(6, RECEIVED_AT)]);
  expect(await manifestOf('HOURS', '2026-01-02/03')).toMatchObject({ rows: 3 });
});

it('an hour is not closed by a record of a worker whose clock is far ahead', async () => {
  const stream = await open('EARLY');
  const now = clock.now();
  await write(stream, 'ahead', [row(1, now + 3 * HOUR_MS)]);
  await write(stream, 'now', [row(2, now)]);
  expect((await keysOf('EARLY')).filter((key) => key.includes('manifest'))).toEqual([]);
});

it('an hour that another process left is closed by the next one', async () => {
  const now = Date.now();
  const before = now - 2 * HOUR_MS;
  await write(await open('LEFT'), 'one', [row(1, before)]);
  const next = await open('LEFT');
  const hour = new Date(before).toISOString().slice(0, 13).replace('T', '/');
  let n = 0;
  await eventually(async () => {
    await write(next, `more ${++n}`, [row(2, now)]);
    return (await keysOf('LEFT')).includes(`LEFT/${hour}/_manifest.json`);
  });
  expect(await manifestOf('LEFT', hour)).toMatchObject({ rows: 1 });
});

it('ClickHouse reads the objects, each row once', async () => {
  const logs = Buffer.from('{"items":[{"level":"info"},{"level":"warn"},{"level":"info"}]}');
  const rows = [1, 2].map((n) => ({ ...row(n, RECEIVED_AT), json: logs }));
  await write(await open('READ'), 'frame', rows);
  // Another grouping of the same rows: an object more, and each row twice.
  await write(await open('READ'), 'frame', rows.slice(0, 1));
  const clickhouse = await TestClickHouse.start();
  try {
    const [, sql = ''] = /```sql\n(SELECT [^`]*FROM s3\([^`]*)\n```/.exec(document) ?? [];
    const here = sql
      .replace(
        'https://s3.eu-central-1.amazonaws.com/archive/sluice/SLUICE_LOGS',
        `${server.endpoint}/archive/sluice/READ`,
      )
      .replace("'KEY', 'SECRET'", "'test', 'secret'");
    expect(await clickhouse.query(here)).toMatchObject([
      { level: 'info', times: 4 },
      { level: 'warn', times: 2 },
    ]);
  } finally {
    await clickhouse.close();
  }
});

it('doctor finds a bucket good, and says what is wrong with another', async () => {
  const good = (await s3(settingOf(server.url()))).map(findingOf);
  expect(good.map(({ state }) => state)).toEqual(good.map(() => 'ok'));
  const [missing] = (await s3(settingOf(server.url({ bucket: 'no-such-bucket' })))).map(findingOf);
  expect(missing).toMatchObject({ state: 'fail', found: expect.stringContaining('NoSuchBucket') });
  expect(missing?.what).toBe('s3 s3://…@no-such-bucket/sluice');
});
