import { DAY_MS } from '../../lib/clock.ts';
import { type Database, LIMIT_LOCK_WAITS, type Transaction } from './database.ts';
import { ADDED_COLUMNS, DAILY_FROM, DAILY_UNTIL, PARTITIONED, type PartitionedTable } from './schema.ts';

/**
 * Returns a name like `items_20260102`.
 * @param day the UTC day's first moment, Unix milliseconds
 */
const partitionName = (table: PartitionedTable, day: number): string =>
  `${table}_${new Date(day).toISOString().slice(0, 10).replaceAll('-', '')}`;

/**
 * Returns table and day of a daily partition; undefined for other names, such as those of the two
 * partitions that hold the dates of wrong clocks.
 */
function readName(name: string): { table: PartitionedTable; day: number } | undefined {
  const [, prefix, year, month, date] = /^([a-z]+)_(\d{4})(\d\d)(\d\d)$/.exec(name) ?? [];
  const table = PARTITIONED.find((one) => one === prefix);
  return table && { table, day: Date.UTC(Number(year), Number(month) - 1, Number(date)) };
}

/**
 * Comment on a partition that the sink has detached for good. A partition that an operator has
 * detached lacks this comment.
 */
const OUTDATED = 'older than SLUICE_RETENTION: to be dropped';

/**
 * The daily partitions of the sink's tables. The sink makes a partition when the first row of its
 * day comes. If SLUICE_RETENTION is set, the sink also removes old partitions.
 *
 * A new partition is created as a separate table and then attached, which waits for no reader or
 * writer of the other partitions. CREATE TABLE … PARTITION OF would wait for a report that runs for
 * an hour, and all other readers and writers would wait behind that statement. A table that was
 * detached and still has the partition's name is attached again.
 */
export class Partitions {
  readonly #database: Database;
  readonly #known = new Set<string>();

  constructor(database: Database) {
    this.#database = database;
  }

  /**
   * Reads which partitions exist, so that the first rows of a process need not ask.
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
   * Makes the partitions for rows that were received at these moments, Unix milliseconds.
   * @throws UnavailableError
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

  /**
   * Removes the partitions whose rows are all older than this moment, Unix milliseconds. If one
   * cannot be removed now, the others are removed all the same.
   * @throws UnavailableError
   */
  async removeBefore(moment: number): Promise<void> {
    const rows = await this.#database.query<{ relname: string }>(
      `SELECT relname FROM pg_class LEFT JOIN pg_inherits ON inhrelid = oid
WHERE relnamespace = 'sluice'::regnamespace AND relkind = 'r'
  AND (inhparent IS NOT NULL OR obj_description(oid, 'pg_class') = $1) ORDER BY relname`,
      [OUTDATED],
    );
    let failure: unknown;
    for (const { relname: name } of rows) {
      const found = readName(name);
      if (!found || found.day + DAY_MS > moment) continue;
      await this.#remove(found.table, name).catch((error: unknown) => {
        failure = error;
      });
    }
    if (failure) throw failure;
  }

  /**
   * Removes a partition in two steps, because dropping a large partition takes long and only
   * detaching locks the whole table.
   */
  async #remove(table: PartitionedTable, name: string): Promise<void> {
    this.#known.delete(name);
    await this.#database.transaction((transaction) => detach(transaction, { table, name }));
    await this.#database.transaction((transaction) => drop(transaction, { table, name }));
  }

  /** Forgets the known partitions, because one of them was removed by somebody else. */
  forget(): void {
    this.#known.clear();
  }
}

type Partition = { table: PartitionedTable; name: string };

/** Lock with which processors change partitions one after the other. */
const LOCK = `SELECT pg_advisory_xact_lock(hashtext('sluice partitions'))`;

async function isAttached(transaction: Transaction, { table, name }: Partition): Promise<boolean> {
  const attached = await transaction.query(
    'SELECT 1 FROM pg_inherits WHERE inhrelid = to_regclass($1) AND inhparent = to_regclass($2)',
    [`sluice.${name}`, `sluice.${table}`],
  );
  return attached.length > 0;
}

async function detach(transaction: Transaction, partition: Partition): Promise<void> {
  const { table, name } = partition;
  await transaction.query(LIMIT_LOCK_WAITS);
  await transaction.query(LOCK);
  if (!(await isAttached(transaction, partition))) return;
  await transaction.query(`
ALTER TABLE sluice.${table} DETACH PARTITION sluice.${name};
COMMENT ON TABLE sluice.${name} IS '${OUTDATED}'`);
}

/** Drops a detached partition, unless it was attached again for a late row of its day. */
async function drop(transaction: Transaction, partition: Partition): Promise<void> {
  await transaction.query(LIMIT_LOCK_WAITS);
  await transaction.query(LOCK);
  if (!(await isAttached(transaction, partition)))
    await transaction.query(`DROP TABLE IF EXISTS sluice.${partition.name}`);
}

async function attach(
  transaction: Transaction,
  { table, name, day }: Partition & { day: number },
): Promise<void> {
  await transaction.query(LOCK);
  if (await isAttached(transaction, { table, name })) return;
  const [from, to] = [day, day + DAY_MS].map((ms) => new Date(ms).toISOString());
  const added = ADDED_COLUMNS[table];
  await transaction.query(`
CREATE TABLE IF NOT EXISTS sluice.${name} (LIKE sluice.${table} INCLUDING DEFAULTS INCLUDING GENERATED INCLUDING CONSTRAINTS);
${added ? `ALTER TABLE sluice.${name} ADD COLUMN IF NOT EXISTS ${added};` : ''}
COMMENT ON TABLE sluice.${name} IS NULL;
ALTER TABLE sluice.${table} ATTACH PARTITION sluice.${name} FOR VALUES FROM ('${from}') TO ('${to}')`);
}
