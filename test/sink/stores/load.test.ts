/** `sluice load --verify` looks its ids up in the stores, and finds what is wrong there. */
import * as zlib from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Verification } from '../../../bench/load/verify/verify.ts';
import { openStored } from '../../../src/commands/load/stored.ts';
import { LoadCommand } from '../../support/load-command.ts';
import { TestClickHouse } from '../../support/sinks/clickhouse.ts';
import { TestS3 } from '../../support/sinks/seaweedfs.ts';
import { System } from '../../support/system.ts';

const load = new LoadCommand();
afterAll(() => load.close());

/** A small run against the whole system; every type of item is in it. */
async function run(system: System, sink: string, name: string): Promise<Verification> {
  const project = await system.createProject();
  const { status, err, out } = await load.run(
    ...['--dsn', system.dsn(project), '--admin', system.adminUrl, '--sink', sink, '--verify', '--quiet'],
    ...['--mix', 'event=3,transaction,log,span,replay', '--rate', '200', '--duration', '1s'],
    ...['--encoding', 'sdk', '--json', name],
  );
  expect(status, err + out).toBe(0);
  return load.document(name).verification as Verification;
}

/** How often the reader finds each item, by its id and place. */
async function copies(sink: string): Promise<Map<string, number>> {
  const reader = await openStored(sink);
  const found = new Map<string, number>();
  await reader.scan(new Date(Date.now() - 3_600_000), ({ eventId, index, copies: count }) => {
    const name = `${eventId}:${index}`;
    found.set(name, (found.get(name) ?? 0) + count);
  });
  await reader.close();
  return found;
}
const doubles = (found: Map<string, number>): string[] =>
  [...found].filter(([, count]) => count > 1).map(([name]) => name);

describe('clickhouse', () => {
  let server: TestClickHouse;
  let system: System;
  beforeAll(async () => {
    server = await TestClickHouse.start();
    system = await System.start({ env: { SLUICE_SINK: server.url() } });
  });
  afterAll(async () => {
    await system?.stop();
    await server?.close();
  });

  it('has everything that was told 200, once', async () => {
    expect(await run(system, server.url(), 'clickhouse.json')).toMatchObject({
      accepted: 400,
      stored: 400,
      tallied: 400,
      usage: 400,
      lost: 0,
      double: 0,
      problems: [],
    });
  });

  it('shows rows that a merge will make one as one, and others as double', async () => {
    const before = await copies(server.url());
    await server.run('INSERT INTO sluice.events SELECT * FROM sluice.events');
    await server.run('INSERT INTO sluice.logs SELECT * FROM sluice.logs');
    expect(await copies(server.url())).toEqual(before);
    const [event] = await server.query<{ event_id: string }>('SELECT event_id FROM sluice.events LIMIT 1');
    await server.run(
      `INSERT INTO sluice.events SELECT * REPLACE (toFixedString('another row, 16B', 16) AS row_key)
FROM sluice.events WHERE event_id = '${event?.event_id}' LIMIT 1`,
    );
    expect(doubles(await copies(server.url()))).toEqual([`${event?.event_id}:0`]);
  });

  it('tells what is gone as lost, and the run fails', async () => {
    await server.fault('read-only');
    const project = await system.createProject();
    const { status, err } = await load.run(
      ...['--dsn', system.dsn(project), '--sink', server.url(), '--verify', '--verify-wait', '1s', '--quiet'],
      ...['--rate', '50', '--duration', '1s', '--warmup', '0', '--json', 'lost.json'],
    );
    await server.fault();
    expect(err).toMatch(/FAILED: 50 of 50 envelopes that were told 200 are not in the sink/);
    expect(status).toBe(1);
    expect(load.document('lost.json').verification).toMatchObject({ lost: 50, tallied: 0 });
  });
});

describe('s3', () => {
  let server: TestS3;
  let system: System;
  beforeAll(async () => {
    server = await TestS3.start();
    system = await System.start({ env: { SLUICE_SINK: server.url() } });
  });
  afterAll(async () => {
    await system?.stop();
    await server?.close();
  });

  it('has everything that was told 200, once, though it keeps no tally', async () => {
    const found = await run(system, server.url(), 's3.json');
    expect(found).toMatchObject({ accepted: 400, stored: 400, lost: 0, double: 0, problems: [] });
    expect(found.tallied).toBeUndefined();
    expect(found.notes).toContain('no tally was compared: this sink keeps none');
  });

  it('shows lines with one row key as one, and others as double', async () => {
    const before = await copies(server.url());
    expect(before.size).toBeGreaterThanOrEqual(400);
    const { key = '' } = (await server.list()).find(({ key }) => key.includes('SLUICE_EVENTS/')) ?? {};
    const lines = zlib.gunzipSync(await server.get(key)).toString();
    const again = key.replace(/[0-9a-f]{32}-/, `${'a'.repeat(32)}-`);
    await server.put(again, zlib.gzipSync(lines));
    expect(await copies(server.url())).toEqual(before);
    const [line = ''] = lines.split('\n');
    const other = line.replace(/"row_key":"[0-9a-f]{32}"/, `"row_key":"${'0'.repeat(32)}"`);
    await server.put(key.replace(/[0-9a-f]{32}-/, `${'b'.repeat(32)}-`), zlib.gzipSync(`${other}\n`));
    const { event_id, item_index } = JSON.parse(line) as { event_id: string; item_index: number };
    expect(doubles(await copies(server.url()))).toEqual([`${event_id}:${item_index}`]);
  });
});

/** Where this runtime has it. */
const { zstdCompressSync } = zlib as { zstdCompressSync?: (plain: string) => Buffer };
it.each(zstdCompressSync ? [zstdCompressSync] : [])(
  'objects of several zstd frames are read',
  async (zstd) => {
    const server = await TestS3.start();
    try {
      const [date, hour] = new Date().toISOString().split(/[T:]/);
      const frame = (index: number): Buffer => {
        const head = `{"project_id":"7","event_id":"${'e'.repeat(32)}","item_index":${index},"type":"event"`;
        return zstd(`${head},"payload":{},"row_key":"${`${index}`.repeat(32)}"}\n`);
      };
      const key = `sluice/SLUICE_EVENTS/${date}/${hour}/${'a'.repeat(32)}-2.ndjson.zst`;
      await server.put(key, Buffer.concat([frame(1), frame(2)]));
      expect([...(await copies(server.url())).keys()]).toEqual([1, 2].map((n) => `${'e'.repeat(32)}:${n}`));
    } finally {
      await server.close();
    }
  },
);

it('a store that is away is one sentence before anything is sent', async () => {
  for (const sink of ['clickhouse://127.0.0.1:4/sluice', 's3://k:s@archive?endpoint=http://127.0.0.1:4']) {
    const { status, err, out } = await load.run(
      '--dsn',
      'http://k@127.0.0.1:9/1',
      '--sink',
      sink,
      '--verify',
    );
    expect([status, out]).toEqual([1, '']);
    expect(err).toMatch(/^sluice: (clickhouse|s3): .*\n$/);
  }
});
