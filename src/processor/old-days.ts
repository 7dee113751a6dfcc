import type { JetStreamManager } from '@nats-io/jetstream';
import { type Clock, DAY_MS, systemClock } from '../lib/clock.ts';
import type { Log } from '../lib/log.ts';
import { OUTCOME_DAYS_KEPT } from '../limits.ts';
import { isConflict, openBucket } from '../projects/bucket.ts';
import { ledgerKey } from '../projects/usage/outcome-day.ts';
import type { NatsLink } from '../stream/nats.ts';
import { COUNTERS_BUCKET } from '../stream/topology.ts';

const DATE_CHARS = 'YYYY-MM-DD'.length;
/** Index of the date among the tokens of a subject, `$KV.<bucket>.outcomes.<projectId>.<date>`. */
const DATE_AT = 4;
const STREAM = `KV_${COUNTERS_BUCKET}`;
/** The key whose value is the oldest date in the bucket. */
const OLDEST_KEY = 'outcomes.oldest';
/**
 * Average pause between two looks. Each process chooses its own pause at random, so that one of
 * several processors finds old days first.
 */
const LOOK_MS = 600_000;

/**
 * If the oldest date is known, and less than this many days before the first day that is kept,
 * every date from the oldest on is purged. Otherwise the bucket is asked which dates it has.
 */
const NEAR_DAYS = 100;

const dateOf = (ms: number): string => new Date(ms).toISOString().slice(0, DATE_CHARS);

type OldDaysOptions = { link: NatsLink; log: Log; clock?: Clock };

/**
 * Removes the counts of requests by outcome for days that are older than OUTCOME_DAYS_KEPT.
 *
 * For each date, two purges remove the counts of all projects: those that this installation (cell,
 * docs/kubernetes.md) counted, and the copies from other cells. Purging the days of each project by
 * itself would cost the broker seconds (docs/broker-quirks.md). The days are purged from the
 * stream, because a deletion through the bucket would leave a marker for each day for ever. A day
 * must be too old by this machine's clock, which may be wrong, and also by the time of the bucket's
 * last message.
 *
 * The processor removes the days, although ingest writes them: NATS cannot limit a purge to some
 * keys, and the credentials of ingest must not be able to empty the bucket.
 */
export class OldDays {
  readonly #options: Required<OldDaysOptions>;
  readonly #timer: NodeJS.Timeout;
  #closing = false;

  constructor({ clock = systemClock, ...options }: OldDaysOptions) {
    this.#options = { ...options, clock };
    this.#timer = setInterval(() => void this.remove(), LOOK_MS * (0.5 + Math.random()));
    this.#timer.unref();
  }

  /** Stops looking. A removal that is under way ends with its present date. */
  stop(): void {
    clearInterval(this.#timer);
    this.#closing = true;
  }

  /**
   * Removes the old days. Never throws: failures are logged, and the next look finds the days
   * again.
   */
  async remove(): Promise<void> {
    try {
      const kv = await openBucket(this.#options.link, COUNTERS_BUCKET);
      const entry = await kv.get(OLDEST_KEY);
      const before = entry?.operation === 'PUT' ? entry.string() : undefined;
      if (before !== undefined && before >= dateOf(this.#keptFrom(this.#options.clock.now()))) return;
      // This manager has a long time-out: the broker may take seconds to list all days.
      const manager = await this.#options.link.manager();
      const { state } = await manager.streams.info(STREAM);
      // A bucket that never held anything has no days, and reports the year 1 as the time of its
      // last message.
      if (state.last_seq === 0) return;
      const keptFrom = this.#keptFrom(Math.min(this.#options.clock.now(), Date.parse(state.last_ts)));
      const isNear = before !== undefined && keptFrom - Date.parse(before) < NEAR_DAYS * DAY_MS;
      const dates = isNear ? datesBetween(before, keptFrom) : await datesThere(manager);
      for (const date of dates) {
        if (this.#closing) return;
        if (date < dateOf(keptFrom))
          for (const key of [ledgerKey('*', date), ledgerKey('*', `${date}.*`)])
            await manager.streams.purge(STREAM, { filter: `$KV.${COUNTERS_BUCKET}.${key}` });
      }
      await kv.put(OLDEST_KEY, dateOf(keptFrom), { previousSeq: entry?.revision ?? 0 });
    } catch (error) {
      if (!isConflict(error)) this.#options.log.warn({ err: error }, 'outcomes: old days not removed');
    }
  }

  #keptFrom(now: number): number {
    return now - OUTCOME_DAYS_KEPT * DAY_MS;
  }
}

/** Returns all dates that the bucket has. */
async function datesThere(manager: JetStreamManager): Promise<string[]> {
  const filter = `$KV.${COUNTERS_BUCKET}.${ledgerKey('*', '>')}`;
  const { state } = await manager.streams.info(STREAM, { subjects_filter: filter });
  return [...new Set(Object.keys(state.subjects ?? {}).map((subject) => subject.split('.')[DATE_AT] ?? ''))];
}

/** Returns the dates from `date` to the date of `untilMs`. */
function datesBetween(date: string, untilMs: number): string[] {
  const dates: string[] = [];
  for (let ms = Date.parse(date); ms <= untilMs; ms += DAY_MS) dates.push(dateOf(ms));
  return dates;
}
