/** What the sink keeps in ClickHouse is bounded: notes of items go by age, and small parts are merged. */
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
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

async function open(): Promise<StreamSink> {
  const sink = await ClickHouseSink.connect(server.url(), { log });
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
