/** How many inserts it takes to store what others sent beside rows that the server refuses. */
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
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

beforeEach(async () => {
  server.inserts = 0;
  await clickhouse.run('TRUNCATE TABLE sluice.events');
});

/** Inserts rows with these messages. @returns the numbers of the refused rows, and why */
async function insert(messages: readonly string[]) {
  const pending = new PendingRows();
  pending.beginEntry('f', 0, undefined);
  for (const [index, message] of messages.entries()) {
    const projectId = message === 'of another' ? '2' : '1';
    const envelope = { projectId, eventId: hexId(index), receivedAt: RECEIVED_AT };
    const fields = { envelope, index, header: '{"type":"event"}' };
    pending.add({ type: 'event', head: '', fields, json: Buffer.from(`{"message":"${message}"}`) });
  }
  const { buffer, origins } = pending.tables.get('events') as NonNullable<
    ReturnType<typeof pending.tables.get>
  >;
  const projectOf = (row: number): string => origins[row]?.projectId ?? '';
  return insertRows(server, { table: 'events', buffer, leftOut: new Set(), projectOf });
}

it('another project waits for a few, the rows of one project for little more than one each', async () => {
  const messages = Array.from({ length: REFUSED + PLACES.length }, (_, index) =>
    PLACES.includes(index) ? 'of another' : `refuse me ${index}`,
  );
  const refused = await insert(messages);
  expect(refused.map(({ row }) => row)).toEqual([...messages.keys()].filter((row) => !PLACES.includes(row)));
  expect(server.storedAfter).toHaveLength(PLACES.length);
  expect(Math.max(...server.storedAfter)).toBeLessThanOrEqual(5);
  expect(server.inserts).toBeLessThan(1.5 * REFUSED);
  expect(await clickhouse.query('SELECT count() AS rows FROM sluice.events')).toEqual([
    { rows: PLACES.length },
  ]);
});

it('rows that are refused here and there cost little more than one each, and the others become few parts', async () => {
  const messages = Array.from({ length: 600 }, (_, index) =>
    index % 10 === 3 ? `refuse me ${index}` : `fine ${index}`,
  );
  const refused = await insert(messages);
  expect(refused.map(({ row }) => row)).toEqual([...messages.keys()].filter((row) => row % 10 === 3));
  expect(server.inserts).toBeLessThan(1.5 * 60);
  const stored = `SELECT count() AS rows, uniqExact(event_id) AS events, uniqExact(_part) < 30 AS isFew FROM sluice.events`;
  expect(await clickhouse.query(stored)).toEqual([{ rows: 540, events: 540, isFew: 1 }]);
});

it('each constraint names the rows that violate it', async () => {
  await clickhouse.run("ALTER TABLE sluice.events ADD CONSTRAINT nor_this CHECK payload NOT LIKE '%nor me%'");
  const messages = ['a', 'nor me', 'b', 'refuse me', 'nor me', 'refuse me and nor me', 'c'];
  const refused = await insert(messages);
  expect(refused.map(({ row, reason }) => [row, reason.split(' of ')[1]])).toEqual([
    [1, 'nor_this'],
    [3, 'no_such'],
    [4, 'nor_this'],
    [5, 'no_such'],
  ]);
  expect(await clickhouse.query('SELECT count() AS rows FROM sluice.events')).toEqual([{ rows: 3 }]);
});
