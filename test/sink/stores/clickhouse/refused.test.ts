/** How many inserts it takes to store what others sent beside rows that the server refuses. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { ClickHouseSink } from '../../../../src/sink/clickhouse/clickhouse.ts';
import { insertRows } from '../../../../src/sink/clickhouse/insert.ts';
import { PendingRows } from '../../../../src/sink/clickhouse/rows.ts';
import { Server } from '../../../../src/sink/clickhouse/server.ts';
import type { TableName } from '../../../../src/sink/clickhouse/tables.ts';
import { hexId, log, RECEIVED_AT } from '../../../processor/harness.ts';
import { TestClickHouse } from '../../../support/sinks/clickhouse.ts';

const REFUSED = 300;
/** In the middle of the others, and at the end, where halves of all rows would come to it last. */
const PLACES = [150, REFUSED + 1];

/** Notes how many inserts had begun when the other project's rows were stored. */
class CountingServer extends Server {
  inserts = 0;
  readonly storedAfter: number[] = [];

  override async insert(table: TableName, rows: readonly Uint8Array[]): Promise<void> {
    this.inserts++;
    await super.insert(table, rows);
    const stored =
      Buffer.concat(rows)
        .toString('latin1')
        .match(/"of another"/g) ?? [];
    for (const _ of stored) this.storedAfter.push(this.inserts);
  }
}

let clickhouse: TestClickHouse;
let server: CountingServer;
beforeAll(async () => {
  clickhouse = await TestClickHouse.start();
  await (await ClickHouseSink.connect(clickhouse.url(), { log })).close();
  await clickhouse.run(
    "ALTER TABLE sluice.events ADD CONSTRAINT no_such CHECK payload NOT LIKE '%refuse me%'",
  );
  server = new CountingServer(clickhouse.url());
});
afterAll(async () => {
  await server?.close();
  await clickhouse?.close();
});

it('another project waits for a few, the rows of one project for little more than one each', async () => {
  const pending = new PendingRows();
  pending.beginEntry('f', 0, undefined);
  for (let index = 0; index < REFUSED + PLACES.length; index++) {
    const isOther = PLACES.includes(index);
    const envelope = {
      projectId: isOther ? '2' : '1',
      eventId: hexId(index),
      receivedAt: RECEIVED_AT,
    };
    const payload = isOther ? '{"message":"of another"}' : `{"message":"refuse me ${index}"}`;
    const fields = { envelope, index, header: '{"type":"event"}' };
    pending.add({ type: 'event', head: '', fields, json: Buffer.from(payload) });
  }
  const { buffer, origins } = pending.tables.get('events') as NonNullable<
    ReturnType<typeof pending.tables.get>
  >;
  const projectOf = (row: number): string => origins[row]?.projectId ?? '';
  const refused = await insertRows(server, { table: 'events', buffer, leftOut: new Set(), projectOf });
  expect(refused.map(({ row }) => row)).toEqual(
    origins.flatMap(({ projectId }, row) => (projectId === '1' ? [row] : [])),
  );
  expect(server.storedAfter).toHaveLength(PLACES.length);
  expect(Math.max(...server.storedAfter)).toBeLessThanOrEqual(5);
  expect(server.inserts).toBeLessThan(1.5 * REFUSED);
  expect(await clickhouse.query('SELECT count() AS rows FROM sluice.events')).toEqual([
    { rows: PLACES.length },
  ]);
});
