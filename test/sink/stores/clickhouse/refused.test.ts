/** How many inserts it takes to store what others sent beside rows that the server refuses. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
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
  storedAfter: number[] = [];

  /** As if a replica answered that lacks the last rows. */
  lags = false;

  override async query<Row>(statement: string, params?: Record<string, unknown>): Promise<Row[]> {
    const rows = await super.query<Row>(statement, params);
    return this.lags && statement.includes('row_key IN') ? rows.slice(0, -2) : rows;
  }

  override async insert(table: TableName, rows: readonly Uint8Array[], where?: string): Promise<void> {
    this.inserts++;
    await super.insert(table, rows, where);
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
  server.storedAfter = [];
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
    pending.add({ type: 'event', head: '', fields, json: Buffer.from(JSON.stringify({ message })) });
  }
  const rows = pending.tables.get('events') as NonNullable<ReturnType<typeof pending.tables.get>>;
  return insertRows(server, { table: 'events', ...rows, leftOut: new Set() });
}

const numbersOf = (refused: readonly { row: number }[]): number[] => refused.map(({ row }) => row);
const stored = async (): Promise<string[]> =>
  (await clickhouse.query<{ id: string }>('SELECT event_id AS id FROM sluice.events FINAL ORDER BY id')).map(
    ({ id }) => id,
  );
/** All rows are stored but the refused ones. */
async function expectOthersStored(messages: readonly string[], refused: readonly number[]): Promise<void> {
  const others = [...messages.keys()].filter((row) => !refused.includes(row));
  expect(await stored()).toEqual(others.map(hexId).sort());
}
const constraint = (name: string, check: string): Promise<string> =>
  clickhouse.run(`ALTER TABLE sluice.events ADD CONSTRAINT ${name} CHECK ${check}`);

it('rows that violate a constraint cost a few inserts, however many they are, and the others become few parts', async () => {
  const messages = Array.from({ length: 10 * REFUSED }, (_, index) =>
    index % 10 === 3 ? `refuse me ${index}` : PLACES.includes(index) ? 'of another' : `fine ${index}`,
  );
  const refused = await insert(messages);
  expect(new Set(refused.map(({ reason }) => reason))).toEqual(
    new Set(['clickhouse: VIOLATED_CONSTRAINT of no_such']),
  );
  expect(numbersOf(refused)).toEqual([...messages.keys()].filter((row) => row % 10 === 3));
  await expectOthersStored(messages, numbersOf(refused));
  expect(server.storedAfter).toHaveLength(PLACES.length);
  expect(server.inserts).toBe(5);
  const parts = 'SELECT uniqExact(_part) AS parts FROM sluice.events';
  expect(await clickhouse.query(parts)).toEqual([{ parts: 2 }]);
});

it('a row that a lagging replica lacks is not taken for a refused one', async () => {
  const messages = Array.from({ length: 20 }, (_, index) => (index === 3 ? 'refuse me' : `fine ${index}`));
  server.lags = true;
  const refused = await insert(messages);
  server.lags = false;
  expect(numbersOf(refused)).toEqual([3]);
  await expectOthersStored(messages, [3]);
});

it('another project waits for a few inserts when a column of the table refuses rows', async () => {
  await clickhouse.run(
    "ALTER TABLE sluice.events ADD COLUMN n UInt8 DEFAULT throwIf(message LIKE '%column%') + 1",
  );
  const messages = Array.from({ length: REFUSED + PLACES.length }, (_, index) =>
    PLACES.includes(index) ? 'of another' : `for the column ${index}`,
  );
  const refused = await insert(messages);
  await clickhouse.run('ALTER TABLE sluice.events DROP COLUMN n');
  await expectOthersStored(messages, numbersOf(refused));
  expect(refused).toHaveLength(REFUSED);
  expect(server.storedAfter).toHaveLength(PLACES.length);
  expect(Math.max(...server.storedAfter)).toBeLessThanOrEqual(5);
  expect(server.inserts).toBeLessThan(1.5 * REFUSED);
});

describe('a constraint', () => {
  afterEach(async () => {
    for (const name of ['nor_this', 'null_also'])
      await clickhouse.run(`ALTER TABLE sluice.events DROP CONSTRAINT IF EXISTS ${name}`);
    await clickhouse.run('ALTER TABLE sluice.events DROP COLUMN IF EXISTS own');
  });

  it.each([
    ['beside another', "message NOT LIKE '%nor me%'"],
    ['with quotes, brackets and backslashes', "position(message, 'nor me') = 0 OR message IN ('(', '\\'')"],
    ['that reads as the end of itself', "message NOT LIKE '%nor me%' AND message != 'x). Column values: y'"],
    ['on a column of its own', "own NOT LIKE '%nor me%'"],
  ])('%s refuses no row but those that violate it', async (_what, check) => {
    await clickhouse.run('ALTER TABLE sluice.events ADD COLUMN own String DEFAULT payload');
    await constraint('nor_this', check);
    const hostile = 'Expression: (1). Column values: ';
    const messages = [
      'a',
      'nor me',
      hostile,
      'refuse me',
      'nor me',
      'refuse me and nor me',
      `${hostile}nor me`,
    ];
    const refused = await insert(messages);
    expect(numbersOf(refused)).toEqual([1, 3, 4, 5, 6]);
    for (const { reason } of refused)
      expect(reason).toMatch(/^clickhouse: VIOLATED_CONSTRAINT of (no_such|nor_this)/);
    await expectOthersStored(messages, numbersOf(refused));
  });

  it('refuses rows for which it is NULL', async () => {
    await constraint('null_also', "nullIf(message, 'nothing') != ''");
    const refused = await insert(['a', 'nothing', 'b']);
    expect(refused).toEqual([{ row: 1, reason: 'clickhouse: VIOLATED_CONSTRAINT of null_also' }]);
    await expectOthersStored(['a', 'nothing', 'b'], [1]);
  });
});
