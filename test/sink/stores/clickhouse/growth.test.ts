/** What the sink keeps in ClickHouse is bounded: notes of items and old days go by age, and small parts are merged. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { ClickHouseSink } from '../../../../src/sink/clickhouse/clickhouse.ts';
import { resendKey } from '../../../../src/sink/item-key.ts';
import type { StreamSink } from '../../../../src/sink/sink.ts';
import { hexId, log, NOW } from '../../../processor/harness.ts';
import { TestClickHouse } from '../../../support/sinks/clickhouse.ts';

const BATCHES = 150;

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

async function open(retentionDays?: number, url = server.url()): Promise<StreamSink> {
  const sink = await ClickHouseSink.connect(url, { log, retentionDays });
  sinks.push(sink);
  return sink.open();
}

/** An event that was received now, in a batch of its own. */
async function store(stream: StreamSink, n: number): Promise<void> {
  const envelope = { projectId: '42', eventId: hexId(n), receivedAt: Date.now() };
  const fields = { envelope, index: 0, header: '{"type":"event"}' };
  const batch = await stream.begin([`frame ${n}`]);
  batch.beginEntry({ frameId: `frame ${n}`, index: 0 });
  batch.add({
    type: 'event',
    head: '',
    fields,
    json: Buffer.from(`{"n":${n}}`),
    resend: {
      key: resendKey(envelope, { index: 0, type: 'event' }),
      receivedAt: envelope.receivedAt,
    },
  });
  await batch.commit(NOW);
}

async function rowsOf(table: string): Promise<number> {
  const [row] = await server.query<{ n: number }>(`SELECT count() AS n FROM sluice.${table}`);
  return Number(row?.n);
}
async function partsOf(table: string): Promise<number> {
  const [row] = await server.query<{ n: number }>(
    `SELECT count() AS n FROM system.parts WHERE active AND database = 'sluice' AND table = '${table}'`,
  );
  return Number(row?.n);
}

it('notes of items go after two hours', async () => {
  const stream = await open();
  await store(stream, 1);
  for (let hours = 3; hours < 9; hours++)
    await server.run(`INSERT INTO sluice.seen_items (key, row_key, received_at, seen_at)
SELECT toFixedString(toString(number), 16), toFixedString(toString(number), 16), now64(3), now() - INTERVAL ${hours} HOUR
FROM numbers(10000)`);
  await expect.poll(() => rowsOf('seen_items')).toBe(1);
});

it('many small batches are merged into few parts', async () => {
  const stream = await open();
  for (let n = 0; n < BATCHES; n++) await store(stream, n);
  expect(await rowsOf('events')).toBe(BATCHES);
  for (const table of ['events', 'seen_items'])
    await expect.poll(() => partsOf(table)).toBeLessThan(BATCHES / 5);
});

/** A reader who has opened all rows of events, and reads them when it is let: the gate's row comes before theirs. */
class Reader {
  readonly #gate = createServer((request, response) => {
    if (request.method === 'HEAD') response.end();
    else this.#release = () => void response.end('1\n');
  });
  #release: (() => void) | undefined;
  #rows: Promise<unknown> = Promise.resolve();
  ended = false;

  async start(): Promise<void> {
    await once(this.#gate.listen(0, '127.0.0.1'), 'listening');
    const { port } = this.#gate.address() as AddressInfo;
    this.#rows = server
      .query(
        `SELECT event_id, payload FROM sluice.events
CROSS JOIN url('http://127.0.0.1:${port}/', 'CSV', 'x UInt8') AS gate ORDER BY event_id SETTINGS query_plan_join_swap_table = false`,
        '/aside',
      )
      .finally(() => {
        this.ended = true;
        this.#gate.close();
      });
    await expect.poll(() => this.#release).toBeDefined();
  }

  /** The rows, when all are read. */
  finish(): Promise<unknown> {
    this.#release?.();
    return this.#rows;
  }
}

it('a day goes as many days after its end as are set; its reader reads all of it, and nobody waits to store', async () => {
  const DAYS = 5;
  await open();
  await server.run(`INSERT INTO sluice.events (project_id, day, row_key, event_id, received_at, item_header, payload)
SELECT '42', today() - number, toFixedString(toString(number), 16), toString(number), now64(3), '{}', '{}' FROM numbers(${DAYS})`);
  const reader = new Reader();
  await reader.start();
  const stream = await open(1);
  await expect
    .poll(() => server.query('SELECT max(today() - day) AS oldest FROM sluice.events'))
    .toEqual([{ oldest: 1 }]);
  const lasting = `SELECT DISTINCT toDate(delete_ttl_info_max) - toDate(partition) AS days FROM system.parts
WHERE active AND rows > 0 AND database = 'sluice' AND table = 'events'`;
  expect(await server.query(lasting)).toEqual([{ days: 2 }]);
  await store(stream, 1);
  expect(reader.ended).toBe(false);
  expect(await reader.finish()).toEqual(
    Array.from({ length: DAYS }, (_, day) => ({ event_id: `${day}`, payload: '{}' })),
  );
});

describe.each(['Pacific/Kiritimati', 'Etc/GMT+12'])('a server in the zone %s', (timeZone) => {
  let abroad: TestClickHouse;
  beforeAll(async () => {
    abroad = await TestClickHouse.start({ timeZone });
  });
  afterAll(() => abroad.close());

  /** Dates of receipt, the last two by broken clocks. */
  const DAYS = ['2026-11-27', '2106-02-06', '2149-06-06'];
  /** When ClickHouse may remove the rows of each date. */
  async function ends(retentionDays: number): Promise<unknown> {
    await open(retentionDays, abroad.url());
    await abroad.run('SYSTEM STOP MERGES');
    for (const day of DAYS)
      await abroad.run(`INSERT INTO sluice.events (project_id, day, row_key, received_at, item_header, payload)
VALUES ('42', '${day}', '${retentionDays}', now64(3), '{}', '{}')`);
    const parts = await abroad.query<{ at: number }>(
      `SELECT toUnixTimestamp(delete_ttl_info_max) AS at FROM system.parts
WHERE active AND database = 'sluice' AND table = 'events' ORDER BY partition`,
    );
    await abroad.run('DROP DATABASE sluice');
    return parts.map(({ at }) => new Date(at * 1000).toISOString());
  }

  it('takes days for days in UTC, and removes no row because its end lies too far ahead', async () => {
    expect(await abroad.query('SELECT timezone() AS zone')).toEqual([{ zone: timeZone }]);
    const last = '2106-01-01T00:00:00.000Z';
    expect(await ends(30)).toEqual(['2026-12-28T00:00:00.000Z', last, last]);
    for (const far of [50_000, 99_999]) expect(await ends(far)).toEqual([last, last, last]);
  });
});
