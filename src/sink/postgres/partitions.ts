import type { Database, Transaction } from './database.ts';
import { ADDED_COLUMNS, DAILY_FROM, DAILY_UNTIL, PARTITIONED, type PartitionedTable } from './schema.ts';

const DAY_MS = 86_400_000;

/** `items_20260102` and the like. @param day the UTC day's first moment, Unix milliseconds */
const partitionName = (table: PartitionedTable, day: number): string =>
  `${table}_${new Date(day).toISOString().slice(0, 10).replaceAll('-', '')}`;

/**
 * The sink makes a partition when the first row of its day comes. Removing old ones is the
 * operator's task.
 *
 * A new one is made as a table of its own and then attached, which waits for no reader or writer of
 * the other partitions. CREATE TABLE … PARTITION OF would wait for a report that has run for an
 * hour, and make all others wait behind it. A table that was detached and still has its name is
 * attached again.
 */
export class Partitions {
  readonly #database: Database;
  readonly #known = new Set<string>();

  constructor(database: Database) {
    this.#database = database;
  }

  /**
   * Reads which partitions there are, so that the first rows of a process need not find out.
   * @throws UnavailableError
   */
  async load(): Promise<void> {
    const rows = await this.#database.query<{ relname: string }>(
      `SELECT relname FROM pg_inherits JOIN pg_class ON oid = inhrelid
WHERE inhparent = ANY($1::text[]::regclass[])`,
      [PARTITIONED.map((table) => `sluice.${table}`)],
    );
    for (const { relname } of rows) this.#known.add(relname);
  }

  /**
   * Makes the partitions for rows received at these moments, Unix milliseconds. @throws
   * UnavailableError
   */
  async ensure(table: PartitionedTable, receivedAts: readonly number[]): Promise<void> {
    for (const at of receivedAts) {
      if (at < DAILY_FROM || at >= DAILY_UNTIL) continue;
      const day = Math.floor(at / DAY_MS) * DAY_MS;
      const name = partitionName(table, day);
      if (this.#known.has(name)) continue;
      await this.#database.transaction((transaction) => attach(transaction, { table, name, day }));
      this.#known.add(name);
    }
  }

  /** A partition that was there is gone: look again. */
  forget(): void {
    this.#known.clear();
  }
}

async function attach(
  transaction: Transaction,
  { table, name, day }: { table: PartitionedTable; name: string; day: number },
): Promise<void> {
  await transaction.query(`SELECT pg_advisory_xact_lock(hashtext('sluice partitions'))`);
  const attached = await transaction.query(
    'SELECT 1 FROM pg_inherits WHERE inhrelid = to_regclass($1) AND inhparent = to_regclass($2)',
    [`sluice.${name}`, `sluice.${table}`],
  );
  if (attached.length > 0) return;
  const [from, to] = [day, day + DAY_MS].map((ms) => new Date(ms).toISOString());
  const added = ADDED_COLUMNS[table];
  await transaction.query(`
CREATE TABLE IF NOT EXISTS sluice.${name} (LIKE sluice.${table} INCLUDING DEFAULTS);
${added ? `ALTER TABLE sluice.${name} ADD COLUMN IF NOT EXISTS ${added};` : ''}
ALTER TABLE sluice.${table} ATTACH PARTITION sluice.${name} FOR VALUES FROM ('${from}') TO ('${to}')`);
}
