import { Readable } from 'node:stream';
import * as zlib from 'node:zlib';
import {
  type ClickHouseClient,
  ClickHouseError,
  ClickHouseLogLevel,
  createClient,
  drainStream,
} from '@clickhouse/client';
import { CLICKHOUSE_CONNECTIONS_MAX, CLICKHOUSE_REQUEST_MS_MAX } from '../../limits.ts';
import { SinkSettingError, UnavailableError } from '../unavailable.ts';
import { type TableName, WRITTEN } from './tables.ts';

/** The address of a ClickHouse server, parsed from the setting. */
type Address = { url: string; database: string; compression: 'none' | 'gzip' | 'zstd' };

const DATABASE = 'sluice';
const HAS_ZSTD = 'createZstdCompress' in zlib;
const COMPRESSIONS = ['none', 'gzip', 'zstd'] as const;
const isCompression = (text: string): text is (typeof COMPRESSIONS)[number] =>
  (COMPRESSIONS as readonly string[]).includes(text);

/**
 * Parses `clickhouse://user:password@host:port/database?secure=true&compression=gzip`.
 * @throws SinkSettingError
 */
function parseAddress(setting: string): Address {
  const { hostname, port, username, password, pathname, searchParams } = new URL(setting);
  const wrong = (what: string): SinkSettingError => new SinkSettingError(`SLUICE_SINK: ${what}`);
  const known = ['secure', 'compression'];
  const other = [...searchParams.keys()].find((name) => !known.includes(name));
  if (other) throw wrong(`clickhouse:// knows the options ${known.join(' and ')}, not ${other}`);
  const isSecure = ['true', '1'].includes(searchParams.get('secure') ?? '');
  const database = decodeURIComponent(pathname.slice(1)) || DATABASE;
  if (!/^\w+$/.test(database)) throw wrong(`a database of clickhouse:// is a word, not ${database}`);
  const compression = searchParams.get('compression') ?? (HAS_ZSTD ? 'zstd' : 'none');
  if (!isCompression(compression)) throw wrong(`compression is one of ${COMPRESSIONS.join(', ')}`);
  if (compression === 'zstd' && !HAS_ZSTD) throw wrong('compression=zstd needs Node.js 22.15 or later');
  const url = new URL(`${isSecure ? 'https' : 'http'}://${hostname}:${port || (isSecure ? 8443 : 8123)}`);
  url.username = username;
  url.password = password;
  return { url: url.href, database, compression };
}

/** Error codes with which the server refuses rows because of their values (its ErrorCodes.cpp). */
const ABOUT_THE_ROWS: ReadonlyMap<number, string> = new Map([
  [6, 'CANNOT_PARSE_TEXT'],
  [26, 'CANNOT_PARSE_QUOTED_STRING'],
  [27, 'CANNOT_PARSE_INPUT_ASSERTION_FAILED'],
  [38, 'CANNOT_PARSE_DATE'],
  [41, 'CANNOT_PARSE_DATETIME'],
  [53, 'TYPE_MISMATCH'],
  [69, 'ARGUMENT_OUT_OF_BOUND'],
  [70, 'CANNOT_CONVERT_TYPE'],
  [72, 'CANNOT_PARSE_NUMBER'],
  [117, 'INCORRECT_DATA'],
  [128, 'TOO_LARGE_ARRAY_SIZE'],
  [131, 'TOO_LARGE_STRING_SIZE'],
  [153, 'ILLEGAL_DIVISION'],
  [321, 'VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE'],
  [349, 'CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN'],
  [376, 'CANNOT_PARSE_UUID'],
  [395, 'FUNCTION_THROW_IF_VALUE_IS_NON_ZERO'],
  [407, 'DECIMAL_OVERFLOW'],
  [467, 'CANNOT_PARSE_BOOL'],
  [469, 'VIOLATED_CONSTRAINT'],
  [675, 'CANNOT_PARSE_IPV4'],
  [676, 'CANNOT_PARSE_IPV6'],
  [691, 'UNKNOWN_ELEMENT_OF_ENUM'],
]);
/** The message of the client library for a request that took too long. */
const TIMED_OUT = 'Timeout error.';
/** Error codes for wrong credentials, a missing right or database, which no waiting fixes. */
const ABOUT_THE_SETTING: ReadonlySet<number> = new Set([81, 192, 193, 194, 497, 516]);

/** Thrown when the store refuses rows because of their values. */
export class RefusedError extends Error {
  override name = 'RefusedError';
  /** The expression of the violated constraint, where the store names it. */
  readonly rule: string | undefined;

  constructor(message: string, rule?: string) {
    super(message);
    this.rule = rule;
  }
}

const codeOf = (error: unknown): number | undefined =>
  error instanceof ClickHouseError ? Number(error.code) : undefined;
const isAbout = (codes: Pick<ReadonlySet<number>, 'has'>, error: unknown): boolean =>
  codes.has(codeOf(error) ?? -1);
const sentence = (error: unknown): string => ((error as Error).message || String(error)).split('\n')[0] ?? '';

/**
 * Matches the name of a violated constraint, and its expression. The row's values follow. They are
 * not matched, because clients choose them.
 */
const VIOLATED =
  /^Constraint `(\w+)`(.*? Expression: \((.*?)\)\.(?= Column values: |Constraint expression ))?/;

/**
 * Returns the reason for a refusal: the name of the error, and of the constraint. The reason goes
 * into the log. So it has neither the server's sentence nor the server's error as `cause`, because
 * both quote values of the row.
 */
function refusalOf(error: unknown): RefusedError {
  const name = ABOUT_THE_ROWS.get(codeOf(error) ?? -1);
  const [, constraint, , rule] = VIOLATED.exec(sentence(error)) ?? [];
  return new RefusedError(`clickhouse: ${name}${constraint ? ` of ${constraint}` : ''}`, rule);
}

/**
 * Returns an insert's error without the server's sentence, which may quote a row: only the error's
 * name remains. An answer that cannot be read, perhaps from a proxy, may quote a row, too, so a
 * fixed sentence replaces it.
 */
function withoutRows(error: unknown): unknown {
  if (error instanceof ClickHouseError) {
    const { code, type = `error ${code}` } = error;
    return new ClickHouseError({ message: type, code, type });
  }
  const { message, code } = error as NodeJS.ErrnoException;
  const isOfTheLine = code !== undefined || message === TIMED_OUT;
  const isFault = error instanceof TypeError || error instanceof RangeError;
  return isOfTheLine || isFault ? error : new Error('an answer that cannot be read');
}

/** Whether an error is about settings, which no waiting fixes. */
export const isAboutSetting = (error: UnavailableError): boolean => isAbout(ABOUT_THE_SETTING, error.cause);

/** Turns an error into an UnavailableError, except a TypeError or RangeError (a bug of ours). */
function asOutage(error: unknown): unknown {
  if (error instanceof TypeError || error instanceof RangeError) return error;
  return new UnavailableError(`clickhouse: ${sentence(error)}`, { cause: error });
}

/** Returns the part of an INSERT that takes only the rows for which this expression is true. */
function filterOf(table: TableName, where: string): string {
  const structure = WRITTEN[table].map((column) => column.join(' ')).join(', ');
  const columns = WRITTEN[table].map(([name]) => name).join(', ');
  return `SELECT ${columns} FROM input('${structure.replaceAll("'", "\\'")}') WHERE ${where} `;
}

/** The sink's server, which is asked over HTTP. */
export class Server {
  readonly #client: ClickHouseClient;
  readonly database: string;

  /** @throws SinkSettingError */
  constructor(setting: string) {
    const { url, database, compression } = parseAddress(setting);
    this.database = database;
    this.#client = createClient({
      url,
      application: 'sluice',
      request_timeout: CLICKHOUSE_REQUEST_MS_MAX,
      max_open_connections: CLICKHOUSE_CONNECTIONS_MAX,
      compression: { request: compression === 'none' ? false : { codec: compression, level: 1 } },
      log: { level: ClickHouseLogLevel.OFF },
    });
  }

  /**
   * Returns the rows of one statement. `$db` in the statement stands for the sink's database.
   * @throws UnavailableError
   */
  async query<Row>(statement: string, params: Record<string, unknown> = {}): Promise<Row[]> {
    try {
      const result = await this.#client.query({
        query: this.#withDatabase(statement),
        query_params: params,
        format: 'JSONEachRow',
      });
      return await result.json<Row>();
    } catch (error) {
      throw asOutage(error);
    }
  }

  /**
   * Gives the rows of one statement to `onRow`, one at a time: there may be millions.
   * @throws UnavailableError
   */
  async each<Row>(
    statement: string,
    params: Record<string, unknown>,
    onRow: (row: Row) => void,
  ): Promise<void> {
    try {
      const result = await this.#client.query({
        query: this.#withDatabase(statement),
        query_params: params,
        format: 'JSONEachRow',
      });
      for await (const rows of result.stream<Row>()) for (const row of rows) onRow(row.json());
    } catch (error) {
      throw asOutage(error);
    }
  }

  /**
   * Runs a statement that returns no rows.
   * @throws UnavailableError
   */
  async command(statement: string): Promise<void> {
    try {
      await this.#client.command({ query: this.#withDatabase(statement) });
    } catch (error) {
      throw asOutage(error);
    }
  }

  /**
   * Resolves when the rows are stored, because asynchronous inserts are switched off.
   * @param rows in RowBinary
   * @param where only rows for which this expression is true are stored
   * @throws RefusedError, UnavailableError
   */
  async insert(table: TableName, rows: readonly Uint8Array[], where?: string): Promise<void> {
    const columns = WRITTEN[table].map(([name]) => name).join(', ');
    const settings = 'async_insert = 0, max_partitions_per_insert_block = 0';
    const filter = where === undefined ? '' : filterOf(table, where);
    const query = `INSERT INTO $db.${table} (${columns}) ${filter}SETTINGS ${settings} FORMAT RowBinary`;
    try {
      const values = Readable.from(rows, { objectMode: false });
      const { stream } = await this.#client.exec({ query: this.#withDatabase(query), values });
      await drainStream(stream);
    } catch (error) {
      if (isAbout(ABOUT_THE_ROWS, error)) throw refusalOf(error);
      // The error may be about the filter: only the table may have a column that the expression
      // needs, or the expression may have been cut short.
      if (filter && error instanceof ClickHouseError) throw new RefusedError('clickhouse: no such filter');
      throw asOutage(withoutRows(error));
    }
  }

  close(): Promise<void> {
    return this.#client.close();
  }

  #withDatabase(statement: string): string {
    return statement.replaceAll('$db', `\`${this.database}\``);
  }
}
