import type { Log } from '../../lib/log.ts';
import { RecentFrames } from '../recent-frames.ts';
import type { Sink, StreamSink } from '../sink.ts';
import { SinkSettingError, UnavailableError } from '../unavailable.ts';
import { ClickHouseBatch } from './batch.ts';
import { migrate, setRetention } from './migrate.ts';
import { isAboutSetting, Server } from './server.ts';

/**
 * `retentionDays`: rows are removed this many days after the end of the day of their receipt. When
 * it is undefined, only the operator removes rows.
 */
type ClickHouseOptions = { log: Log; retentionDays?: number | undefined };

/**
 * Stores rows in ClickHouse. Any number of processors may share a database. A merge keeps one of
 * the rows that have the same project, day and row key.
 *
 * When the server is away at the start, the sink waits as it does later: each batch fails until the
 * server is there, and its frames are tried again. The start fails only for faults that no waiting
 * fixes.
 */
export class ClickHouseSink implements Sink {
  readonly guarantee = 'repeatable';
  readonly #server: Server;
  readonly #options: ClickHouseOptions;
  #prepared: Promise<void> | undefined;

  private constructor(url: string, options: ClickHouseOptions) {
    this.#server = new Server(url);
    this.#options = options;
  }

  /** @throws SinkSettingError when the server answers but cannot be used */
  static async connect(url: string, options: ClickHouseOptions): Promise<ClickHouseSink> {
    const sink = new ClickHouseSink(url, options);
    try {
      await sink.#prepare();
    } catch (error) {
      if (error instanceof UnavailableError && !isAboutSetting(error)) {
        options.log.warn({ reason: error.message }, 'sink: clickhouse is away, trying again with each batch');
        return sink;
      }
      await sink.close();
      if (!(error instanceof UnavailableError)) throw error;
      throw new SinkSettingError(`SLUICE_SINK: ${error.message}`, { cause: error });
    }
    return sink;
  }

  /** Creates the tables and sets the retention. Does so once, and again only after a failure. */
  #prepare(): Promise<void> {
    this.#prepared ??= (async () => {
      await migrate(this.#server);
      const { retentionDays } = this.#options;
      if (retentionDays !== undefined) await setRetention(this.#server, retentionDays);
    })();
    this.#prepared.catch(() => {
      this.#prepared = undefined;
    });
    return this.#prepared;
  }

  async open(): Promise<StreamSink> {
    const recent = new RecentFrames();
    return {
      begin: async () => {
        await this.#prepare();
        return new ClickHouseBatch(this.#server, recent);
      },
    };
  }

  close(): Promise<void> {
    return this.#server.close();
  }
}
