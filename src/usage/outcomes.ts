import type { JetStreamManager } from '@nats-io/jetstream';
import { type Clock, DAY_MS, systemClock } from '../lib/clock.ts';
import type { Log } from '../lib/log.ts';
import { LEDGER_FLUSH_MS, LEDGER_WRITES_PER_FLUSH_MAX, OUTCOME_DAYS_KEPT } from '../limits.ts';
import { isConflict, openBucket } from '../projects/bucket.ts';
import type { ProjectState } from '../projects/project-state.ts';
import type { NatsLink } from '../stream/nats.ts';
import { COUNTERS_BUCKET } from '../stream/topology.ts';
import { addCounts, type DayOfOutcomes, ledgerKey, parseDay } from './outcome-day.ts';
import { changeRecord } from './records.ts';

const WRITES_IN_FLIGHT_MAX = 8;

const DATE_CHARS = 'YYYY-MM-DD'.length;
const STREAM = `KV_${COUNTERS_BUCKET}`;
/** Its value: the oldest date that the bucket has. */
const OLDEST_KEY = 'outcomes.oldest';
/**
 * Average pause between a worker's looks for old days; random, so that one of a hundred workers
 * finds them first.
 */
const OLD_DAYS_LOOK_MS = 600_000;

/** After so many days without a look the days that are there are asked for. */
const NEAR_DAYS = 100;

const dateOf = (ms: number): string => new Date(ms).toISOString().slice(0, DATE_CHARS);

type PendingDay = { project: ProjectState; day: DayOfOutcomes };
type LedgerOptions = { link: NatsLink; log: Log; clock?: Clock };

/**
 * The outcomes of a project's requests, by hour, over all workers: `sluice usage` shows them.
 *
 * The hot path only raises a number on the project. Every LEDGER_FLUSH_MS the new counts go to one
 * key per project and day, by compare-and-set: read the day, add, write, and begin again when
 * another worker was faster. One key per day, not one per worker and hour, keeps the bucket small;
 * it costs two requests per active project, worker and flush. A flush writes
 * LEDGER_WRITES_PER_FLUSH_MAX projects, the longest waiting first. So ten thousand active projects
 * cost no more than a few hundred, and their turn comes every few minutes.
 *
 * These are statistics, not accounting. A worker that is killed loses what it has not written (with
 * ten thousand active projects up to 200 s), a write whose answer was lost may count twice, and a
 * request just before the full hour may count in the next. Counts that cannot be written wait in
 * memory, bounded by the number of projects. Days are kept for OUTCOME_DAYS_KEPT; the first worker
 * that notices removes older ones of all projects together.
 */
export class OutcomeLedger {
  readonly #link: NatsLink;
  readonly #log: Log;
  readonly #clock: Clock;
  /** Projects with requests that were not gathered yet. */
  #fresh: ProjectState[] = [];
  /** Key → what is not written yet, and whose. */
  readonly #pending = new Map<string, PendingDay>();
  #flushing: Promise<void> | undefined;
  readonly #timer: NodeJS.Timeout;
  readonly #remover: NodeJS.Timeout;
  #closing = false;

  constructor({ link, log, clock = systemClock }: LedgerOptions) {
    this.#link = link;
    this.#log = log;
    this.#clock = clock;
    this.#timer = setInterval(() => void this.flush(LEDGER_WRITES_PER_FLUSH_MAX), LEDGER_FLUSH_MS);
    this.#timer.unref();
    this.#remover = setInterval(() => void this.removeOldDays(), OLD_DAYS_LOOK_MS * (0.5 + Math.random()));
    this.#remover.unref();
  }

  note(project: ProjectState, outcome: string): void {
    if (project.isDeleted) return;
    if (!project.isGathered) {
      project.isGathered = true;
      this.#fresh.push(project);
    }
    if (outcome === 'accepted') project.freshAccepted++;
    else {
      project.freshOthers ??= {};
      project.freshOthers[outcome] = (project.freshOthers[outcome] ?? 0) + 1;
    }
  }

  /**
   * Writes the new counts of at most `projects`. Never throws: failures are logged, and their
   * counts kept for the next time.
   */
  async flush(projects = Infinity): Promise<void> {
    while (this.#flushing) await this.#flushing;
    this.#gather();
    if (this.#pending.size === 0 || !this.#link.connected) return;
    this.#flushing = this.#write(projects);
    await this.#flushing;
    this.#flushing = undefined;
  }

  /** Writes everything. */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    clearInterval(this.#remover);
    this.#closing = true;
    await this.flush();
  }

  /** Moves the fresh numbers under the hour of this moment. */
  #gather(): void {
    const time = new Date(this.#clock.now()).toISOString();
    const hour = time.slice(11, 13);
    for (const project of this.#fresh) {
      project.isGathered = false;
      if (project.isDeleted) continue;
      const key = ledgerKey(project.id, time.slice(0, 10));
      const pending = this.#pending.get(key);
      const day = pending && !pending.project.isDeleted ? pending.day : {};
      if (project.freshAccepted > 0) addCounts(day, { [hour]: { accepted: project.freshAccepted } });
      if (project.freshOthers) addCounts(day, { [hour]: project.freshOthers });
      if (pending) pending.project.unwritten--;
      project.unwritten++;
      this.#pending.set(key, { project, day });
      project.freshAccepted = 0;
      project.freshOthers = undefined;
    }
    this.#fresh = [];
  }

  async #write(projects: number): Promise<void> {
    // A key that is written leaves the map and comes back at its end: the first ones wait longest.
    const queue = [...this.#pending.keys()].slice(0, projects).values();
    // Where the broker is away one line says so. That others write one record says nothing of it.
    let isAway = false;
    const writer = async (): Promise<void> => {
      for (const key of queue) {
        if (isAway) return;
        await this.#writeKey(key).catch((error) => {
          if (!isAway) this.#log.warn({ key, err: error }, 'outcomes: not written, kept for the next flush');
          isAway ||= !isConflict(error);
        });
      }
    };
    await Promise.all(Array.from({ length: WRITES_IN_FLIGHT_MAX }, writer));
  }

  /** @throws when the broker does not take it; it is the last one of the next flush then */
  async #writeKey(key: string): Promise<void> {
    const pending = this.#pending.get(key);
    if (!pending) return;
    this.#pending.delete(key);
    const { project, day } = pending;
    try {
      await changeRecord(this.#link, key, (text) => {
        if (project.isDeleted) return undefined;
        const sum = parseDay(text);
        addCounts(sum, day);
        return JSON.stringify(sum);
      });
      project.unwritten--;
    } catch (error) {
      this.#pending.set(key, pending);
      throw error;
    }
  }

  /**
   * Removes days that are too old. Never throws: failures are logged, and the next look finds them
   * again.
   *
   * One request removes a date for all projects: to ask for each project's days costs nats-server
   * 2.9 a tenth of a second each with ten thousand of them. The days are purged from the stream,
   * because a deletion through the bucket would leave a marker for each day, for ever. The broker's
   * clock has a say in what is too old: this worker's clock may be wrong, and the figures are those
   * of all workers.
   */
  async removeOldDays(): Promise<void> {
    try {
      const kv = await openBucket(this.#link, COUNTERS_BUCKET);
      const entry = await kv.get(OLDEST_KEY);
      const before = entry?.operation === 'PUT' ? entry.string() : undefined;
      if (before !== undefined && before >= dateOf(this.#keptFrom(this.#clock.now()))) return;
      // Patient: a broker may take seconds for a list of all days.
      const manager = await this.#link.manager();
      const { state } = await manager.streams.info(STREAM);
      // A bucket that never held anything has no day, and the year 1 for its last message.
      if (state.last_seq === 0) return;
      const keptFrom = this.#keptFrom(Math.min(this.#clock.now(), Date.parse(state.last_ts)));
      const isNear = before !== undefined && keptFrom - Date.parse(before) < NEAR_DAYS * DAY_MS;
      const dates = isNear ? datesBetween(before, keptFrom) : await datesThere(manager);
      for (const date of dates) {
        if (this.#closing) return;
        if (date < dateOf(keptFrom))
          await manager.streams.purge(STREAM, { filter: `$KV.${COUNTERS_BUCKET}.${ledgerKey('*', date)}` });
      }
      await kv.put(OLDEST_KEY, dateOf(keptFrom), { previousSeq: entry?.revision ?? 0 });
    } catch (error) {
      if (!isConflict(error)) this.#log.warn({ err: error }, 'outcomes: old days not removed');
    }
  }

  #keptFrom(now: number): number {
    return now - OUTCOME_DAYS_KEPT * DAY_MS;
  }
}

/** All dates in the bucket. */
async function datesThere(manager: JetStreamManager): Promise<string[]> {
  const filter = `$KV.${COUNTERS_BUCKET}.${ledgerKey('*', '*')}`;
  const { state } = await manager.streams.info(STREAM, { subjects_filter: filter });
  return [...new Set(Object.keys(state.subjects ?? {}).map((subject) => subject.slice(-DATE_CHARS)))];
}

/** From `date` to that of `untilMs`. */
function datesBetween(date: string, untilMs: number): string[] {
  const dates: string[] = [];
  for (let ms = Date.parse(date); ms <= untilMs; ms += DAY_MS) dates.push(dateOf(ms));
  return dates;
}
