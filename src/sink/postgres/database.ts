import { Pool, type PoolClient, type QueryResultRow } from 'pg';
import type { Log } from '../../lib/log.ts';
import { POSTGRES_CONNECTIONS_MAX, POSTGRES_IDLE_MS_MAX } from '../../limits.ts';
import { UnavailableError } from '../unavailable.ts';

const CONNECT_MS_MAX = 5_000;
/** One statement; the largest carries one recording beyond a batch's bytes. */
const STATEMENT_MS_MAX = 60_000;

type Values = readonly unknown[];

/**
 * `22`: a value that its type does not take; `54`: one beyond what the server can handle
 * (PostgreSQL's appendix A).
 */
const ABOUT_THE_DATA = /^(22|54)...$/;

/** `23`: a constraint that the operator added; the sink's own are never violated by its rows. */
const CONSTRAINT_VIOLATION = /^23...$/;
/** Classes of errors whose sentences may quote values of a row. */
const MAY_QUOTE = /^(21|22|23|54|P0|XX|F0|2F|38|39|44)...$/;

/** The server refuses rows for what they are. */
export class RefusedError extends Error {
  override name = 'RefusedError';
}

/** An error of the server without what it says of rows: detail, hint, place. */
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

/** A fault of ours or of the data is a bug: no waiting fixes it. Everything else may pass. */
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
 * Settings of a transaction, not of a session, so that a pooler in between does no harm. A
 * processor that is stopped in a transaction holds locks that others wait for: the server ends the
 * transaction after a while. A commit that is answered is on the disk.
 */
const BEGIN = `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL idle_in_transaction_session_timeout = ${POSTGRES_IDLE_MS_MAX};
SET LOCAL statement_timeout = ${STATEMENT_MS_MAX};
SET LOCAL client_min_messages = warning;
SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'`;

/** Ends with commit() or abandon(); after a failed statement only abandon() is left. */
export class Transaction {
  readonly #client: PoolClient;
  #state: 'open' | 'failed' | 'over' = 'open';
  /** Monotonic ms. */
  #lastStatementAt = 0;

  constructor(client: PoolClient) {
    this.#client = client;
  }

  /**
   * Called where the connection may stay without a statement: sends one in time.
   * @throws UnavailableError
   */
  async keep(): Promise<void> {
    if (performance.now() - this.#lastStatementAt > POSTGRES_IDLE_MS_MAX / 4) await this.query('SELECT 1');
  }

  /** @throws UnavailableError; RefusedError when it is about the data */
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
   * Runs `insert`. When the server refuses a row, none of them stays and the transaction goes on.
   * @returns whether they stay. @throws UnavailableError
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

  /** @throws UnavailableError when it is not known whether it is committed */
  async commit(): Promise<void> {
    await this.query('COMMIT');
    this.#state = 'over';
    this.#client.release();
  }

  /** Never throws. A connection on which something failed is closed, which ends its transaction. */
  async abandon(): Promise<void> {
    if (this.#state === 'over') return;
    if (this.#state === 'open') await this.query('ROLLBACK').catch(() => undefined);
    const failed = this.#state === 'failed';
    this.#state = 'over';
    this.#client.release(failed);
  }
}

/** Connections to the sink's database, made when needed and made again when lost. */
export class Database {
  readonly #pool: Pool;

  constructor(url: string, log: Log) {
    this.#pool = new Pool({
      connectionString: url,
      application_name: 'sluice',
      max: POSTGRES_CONNECTIONS_MAX,
      connectionTimeoutMillis: CONNECT_MS_MAX,
      query_timeout: STATEMENT_MS_MAX + CONNECT_MS_MAX,
      keepAlive: true,
    });
    // Also of connections that are in use: what fails on them is told by the statement that fails.
    this.#pool.on('connect', (client) => client.on('error', () => undefined));
    // The pool makes another one.
    this.#pool.on('error', ({ message: reason }) =>
      log.debug({ reason }, 'sink: an idle connection was lost'),
    );
  }

  /** @throws UnavailableError; RefusedError when it is about the data */
  query<Row extends QueryResultRow>(text: string, values?: Values): Promise<Row[]> {
    return run<Row>(this.#pool, text, values);
  }

  /** @throws UnavailableError */
  async begin(): Promise<Transaction> {
    let client: PoolClient;
    try {
      client = await this.#pool.connect();
    } catch (error) {
      throw asOutage(error);
    }
    const transaction = new Transaction(client);
    try {
      await transaction.query(BEGIN);
    } catch (error) {
      await transaction.abandon();
      throw error;
    }
    return transaction;
  }

  /** Runs `work` in a transaction and commits it. @throws what `work` throws; UnavailableError */
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
