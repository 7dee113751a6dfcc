import { Pool, type PoolClient, type QueryResultRow } from 'pg';
import type { Log } from '../../lib/log.ts';
import { POSTGRES_CONNECTIONS_MAX, POSTGRES_IDLE_MS_MAX } from '../../limits.ts';
import { UnavailableError } from '../unavailable.ts';

const CONNECT_MS_MAX = 5_000;
/** Longest time of one statement. The largest carries a batch's bytes and one recording more. */
const STATEMENT_MS_MAX = 60_000;

type Values = readonly unknown[];

/**
 * Error classes (PostgreSQL's appendix A) that are about values: `22` is a value that its type does
 * not take, `54` a value beyond the server's limits.
 */
const ABOUT_THE_DATA = /^(22|54)...$/;

/**
 * Error class `23`: a row violates a constraint. Only an operator can have added this constraint,
 * because the sink's rows never violate the sink's own.
 */
const CONSTRAINT_VIOLATION = /^23...$/;
/** Error classes whose messages may quote values of a row. */
const MAY_QUOTE = /^(21|22|23|54|P0|XX|F0|2F|38|39|44)...$/;

/** Thrown when the server refuses rows because of their values. */
export class RefusedError extends Error {
  override name = 'RefusedError';
}

/** The parts of a server's error that we read. Its other parts may quote rows. */
type ServerFault = Error & { code?: string; constraint?: string; column?: string };

export const codeOf = (error: unknown): string =>
  typeof (error as { code?: unknown } | null)?.code === 'string' ? (error as { code: string }).code : '';

function withoutRows(error: ServerFault): ServerFault {
  const code = codeOf(error);
  const { constraint, column } = error;
  const name = constraint ?? column;
  const message = MAY_QUOTE.test(code) ? `SQLSTATE ${code}${name ? ` of ${name}` : ''}` : error.message;
  return Object.assign(new Error(message), { code, ...(name && { constraint: name }) });
}

/**
 * Turns an error into the one to throw. A TypeError or RangeError is a bug of ours and stays as it
 * is. An error about the data becomes a RefusedError. Any other error becomes an UnavailableError,
 * because its cause may go away by itself.
 */
function asOutage(error: unknown): unknown {
  if (error instanceof TypeError || error instanceof RangeError || error instanceof UnavailableError)
    return error;
  const cause = withoutRows(error as ServerFault);
  const reason = `postgres: ${cause.message}`;
  return ABOUT_THE_DATA.test(codeOf(cause))
    ? new RefusedError(reason)
    : new UnavailableError(reason, { cause });
}

/** Whether the server refused rows that were to be inserted. */
function isRefusal(error: unknown): boolean {
  if (error instanceof RefusedError) return true;
  const { cause } = error as Error;
  return CONSTRAINT_VIOLATION.test(codeOf(cause)) && Boolean((cause as ServerFault).constraint);
}

async function run<Row extends QueryResultRow>(
  on: Pool | PoolClient,
  text: string,
  values?: Values,
): Promise<Row[]> {
  try {
    const { rows } = await on.query<Row>(text, values && [...values]);
    return rows;
  } catch (error) {
    throw asOutage(error);
  }
}

/**
 * Begins a transaction. The settings end with it, so they do no harm behind a connection pooler. A
 * processor that stands still within a transaction holds locks that others wait for, so the server
 * ends such a transaction after POSTGRES_IDLE_MS_MAX. A commit is answered only when it is on the
 * disk.
 */
const BEGIN = `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL idle_in_transaction_session_timeout = ${POSTGRES_IDLE_MS_MAX};
SET LOCAL statement_timeout = ${STATEMENT_MS_MAX};
SET LOCAL client_min_messages = warning;
SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'`;

/**
 * Limits each wait of a transaction for a lock to one second. A change of a table waits for every
 * reader and writer of the table, and all later readers and writers wait behind the change. So the
 * change gives up soon, and is tried again later.
 */
export const LIMIT_LOCK_WAITS = 'SET LOCAL lock_timeout = 1000';

/**
 * A transaction on one connection. It ends with commit() or abandon(); after a failed statement
 * only abandon() may follow.
 */
export class Transaction {
  readonly #client: PoolClient;
  #state: 'open' | 'failed' | 'over' = 'open';
  /** When the last statement ended, monotonic ms. */
  #lastStatementAt = 0;

  constructor(client: PoolClient) {
    this.#client = client;
  }

  /**
   * Keeps the server from ending the transaction as idle: sends a statement if the last one was
   * long ago. A batch calls this when it has no other statement to send.
   * @throws UnavailableError
   */
  async keep(): Promise<void> {
    if (performance.now() - this.#lastStatementAt > POSTGRES_IDLE_MS_MAX / 4) await this.query('SELECT 1');
  }

  /**
   * Runs one statement.
   * @throws UnavailableError; RefusedError when the error is about the data
   */
  async query<Row extends QueryResultRow>(text: string, values?: Values): Promise<Row[]> {
    try {
      return await run<Row>(this.#client, text, values);
    } catch (error) {
      this.#state = 'failed';
      throw error;
    } finally {
      this.#lastStatementAt = performance.now();
    }
  }

  /**
   * Runs `insert`. When the server refuses a row, only the rows of `insert` are rolled back.
   * @returns whether the rows were inserted
   * @throws UnavailableError
   */
  async tryInsert(insert: () => Promise<void>): Promise<boolean> {
    await this.query('SAVEPOINT rows');
    try {
      await insert();
    } catch (error) {
      if (!isRefusal(error)) throw error;
      this.#state = 'open';
      await this.query('ROLLBACK TO SAVEPOINT rows; RELEASE SAVEPOINT rows');
      return false;
    }
    await this.query('RELEASE SAVEPOINT rows');
    return true;
  }

  /**
   * Commits the transaction.
   * @throws UnavailableError when it is not known whether the commit took effect
   */
  async commit(): Promise<void> {
    await this.query('COMMIT');
    this.#state = 'over';
    this.#client.release();
  }

  /**
   * Rolls the transaction back. Never throws. A connection on which a statement failed is closed,
   * which ends its transaction.
   */
  async abandon(): Promise<void> {
    if (this.#state === 'over') return;
    if (this.#state === 'open') await this.query('ROLLBACK').catch(() => undefined);
    const failed = this.#state === 'failed';
    this.#state = 'over';
    this.#client.release(failed);
  }
}

/** Finds a row when the server has lz4: PostgreSQL 14 or newer, unless it was built without it. */
const FIND_LZ4 = `SELECT 1 FROM pg_settings
WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)`;

/** Connections to the sink's database. A lost connection is replaced. */
export class Database {
  readonly #pool: Pool;
  #begin = BEGIN;

  constructor(url: string, log: Log) {
    this.#pool = new Pool({
      connectionString: url,
      application_name: 'sluice',
      max: POSTGRES_CONNECTIONS_MAX,
      connectionTimeoutMillis: CONNECT_MS_MAX,
      query_timeout: STATEMENT_MS_MAX + CONNECT_MS_MAX,
      keepAlive: true,
    });
    // Without a listener, an error of a connection would end the process. A failing statement
    // reports the error itself.
    this.#pool.on('connect', (client) => client.on('error', () => undefined));
    // The pool replaces an idle connection that is lost.
    this.#pool.on('error', ({ message: reason }) =>
      log.debug({ reason }, 'sink: an idle connection was lost'),
    );
  }

  /**
   * Lets later transactions compress rows above 2 KB with lz4, if the server has it. Compression
   * with pglz, the server's default, costs as much as all else that the server does for a row. A
   * compression that somebody has set for a column is used before this one.
   * @throws UnavailableError
   */
  async preferLz4(): Promise<void> {
    const found = await this.query(FIND_LZ4);
    this.#begin = found.length > 0 ? `${BEGIN};\nSET LOCAL default_toast_compression = lz4` : BEGIN;
  }

  /**
   * Runs one statement outside of a transaction.
   * @throws UnavailableError; RefusedError when the error is about the data
   */
  query<Row extends QueryResultRow>(text: string, values?: Values): Promise<Row[]> {
    return run<Row>(this.#pool, text, values);
  }

  /**
   * Begins a transaction.
   * @throws UnavailableError
   */
  async begin(): Promise<Transaction> {
    let client: PoolClient;
    try {
      client = await this.#pool.connect();
    } catch (error) {
      throw asOutage(error);
    }
    const transaction = new Transaction(client);
    try {
      await transaction.query(this.#begin);
    } catch (error) {
      await transaction.abandon();
      throw error;
    }
    return transaction;
  }

  /**
   * Runs `work` in a transaction and commits it.
   * @throws the errors of `work`; UnavailableError
   */
  async transaction(work: (transaction: Transaction) => Promise<void>): Promise<void> {
    const transaction = await this.begin();
    try {
      await work(transaction);
      await transaction.commit();
    } finally {
      await transaction.abandon();
    }
  }

  close(): Promise<void> {
    return this.#pool.end();
  }
}
