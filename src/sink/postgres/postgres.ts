import { type Clock, systemClock } from '../../lib/clock.ts';
import type { Log } from '../../lib/log.ts';
import { frameKey } from '../item-key.ts';
import type { Sink, SinkBatch, StreamSink } from '../sink.ts';
import { UnavailableError } from '../unavailable.ts';
import { type BatchTarget, PostgresBatch } from './batch.ts';
import { codeOf, Database } from './database.ts';
import { Partitions } from './partitions.ts';
import { migrate, SchemaError } from './schema.ts';
import { entriesStored } from './seen.ts';
import { forgetOldMonths } from './tally.ts';

type Parts = { clock: Clock; log: Log };

/** Error codes for a wrong user, password or database, or a missing right: no waiting helps. */
const REFUSED = /^(28|3D|42501)/;

/**
 * Stores rows in PostgreSQL. Several processors share the database. The database's keys say what is
 * stored, so this class remembers only which partitions it has seen.
 *
 *     sluice.items, .logs, .spans, .extras, .heartbeats
 *                                         the records, partitioned by the UTC day of received_at
 *     sluice.seen_frames, .seen_items     keys of what is stored (seen.ts)
 *     sluice.tally                        accepted envelopes by project, month and stream
 *     sluice.migrations                   versions of the schema
 *
 * When the database is away at the start, the sink waits as it does later: each batch fails until
 * the database is there, and its frames are tried again. The start fails only for faults that no
 * waiting fixes.
 */
export class PostgresSink implements Sink {
  readonly guarantee = 'exactly once';
  readonly #database: Database;
  readonly #partitions: Partitions;
  readonly #clock: Clock;
  #prepared: Promise<void> | undefined;

  private constructor(url: string, parts: Parts) {
    this.#database = new Database(url, parts.log);
    this.#partitions = new Partitions(this.#database);
    this.#clock = parts.clock;
  }

  /** @throws SchemaError when the database answers but cannot be used */
  static async connect(
    url: string,
    { log, clock = systemClock }: { log: Log; clock?: Clock },
  ): Promise<PostgresSink> {
    const sink = new PostgresSink(url, { log, clock });
    try {
      await sink.#prepare();
    } catch (error) {
      if (error instanceof UnavailableError && !REFUSED.test(codeOf(error.cause))) {
        log.warn({ reason: error.message }, 'sink: postgres is away, trying again with each batch');
        return sink;
      }
      await sink.close();
      if (!(error instanceof UnavailableError)) throw error;
      throw new SchemaError(`SLUICE_SINK: ${error.message}`, { cause: error });
    }
    return sink;
  }

  /**
   * Migrates the schema, and asks the database for what it can do and for its partitions. Does so
   * once, and again after a failure.
   */
  #prepare(): Promise<void> {
    this.#prepared ??= (async () => {
      await migrate(this.#database);
      await this.#database.preferLz4();
      await forgetOldMonths(this.#database);
      await this.#partitions.load();
    })();
    this.#prepared.catch(() => {
      this.#prepared = undefined;
    });
    return this.#prepared;
  }

  async open(stream: string): Promise<StreamSink> {
    const target: BatchTarget = {
      stream,
      database: this.#database,
      partitions: this.#partitions,
      clock: this.#clock,
    };
    return { begin: (frameIds) => this.#begin(target, frameIds) };
  }

  async #begin(target: BatchTarget, frameIds: readonly string[]): Promise<SinkBatch> {
    await this.#prepare();
    return new PostgresBatch(target, await entriesStored(this.#database, frameIds.map(frameKey)));
  }

  /** Removes partitions. Keys and tally stay. */
  async removeBefore(moment: number): Promise<void> {
    await this.#prepare();
    await this.#partitions.removeBefore(moment);
  }

  close(): Promise<void> {
    return this.#database.close();
  }
}
