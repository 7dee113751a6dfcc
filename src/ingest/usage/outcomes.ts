import { type Clock, systemClock } from '../../lib/clock.ts';
import type { Log } from '../../lib/log.ts';
import { Slot } from '../../lib/slots.ts';
import { LEDGER_FLUSH_MS, LEDGER_WRITES_PER_FLUSH_MAX } from '../../limits.ts';
import { isConflict } from '../../projects/bucket.ts';
import { keyId } from '../../projects/project.ts';
import type { ProjectState } from '../../projects/project-state.ts';
import {
  addCount,
  addCounts,
  countName,
  type DayOfOutcomes,
  ledgerKey,
  NAMES_MAX,
  parseDay,
} from '../../projects/usage/outcome-day.ts';
import { changeRecord } from '../../projects/usage/records.ts';
import type { NatsLink } from '../../stream/nats.ts';

const WRITES_IN_FLIGHT_MAX = 8;

/**
 * State in a project's slot: counts since the last `#gather`, whether `#fresh` lists the project,
 * and how many of the project's days are not written yet.
 */
type Fresh = {
  isListed: boolean;
  accepted: number;
  others: Record<string, number> | undefined;
  /**
   * Name of the count of each refused key, by reason and key. The names are kept because each holds
   * the key's id, a hash: a flood of refused requests must not compute a hash for each request.
   */
  keyNames: Map<string, string> | undefined;
  unwritten: number;
};
const FRESH = new Slot<Fresh>(
  () => ({ isListed: false, accepted: 0, others: undefined, keyNames: undefined, unwritten: 0 }),
  ({ isListed, unwritten }) => isListed || unwritten > 0,
);

/**
 * Returns the name of the count that a request adds to. Once a project has had NAMES_MAX pairs of
 * reason and key, the names of further pairs leave out the key.
 */
function nameOf(fresh: Fresh, outcome: string, reason: string | undefined, key: string | undefined): string {
  if (reason === undefined) return outcome;
  if (key === undefined) return countName(outcome, reason);
  fresh.keyNames ??= new Map();
  const reasonAndKey = `${reason} ${key}`;
  const known = fresh.keyNames.get(reasonAndKey);
  if (known !== undefined) return known;
  if (fresh.keyNames.size >= NAMES_MAX) return countName(outcome, reason);
  const name = countName(outcome, reason, keyId(key));
  fresh.keyNames.set(reasonAndKey, name);
  return name;
}

type PendingDay = { project: ProjectState; day: DayOfOutcomes };
type LedgerOptions = { link: NatsLink; log: Log; clock?: Clock };

/**
 * Counts the outcomes of each project's requests by hour, with their reasons, over all workers.
 * `sluice usage` shows them.
 *
 * The hot path only raises a counter of the project. Every LEDGER_FLUSH_MS the new counts are added
 * to one record per project and day, by compare-and-set: read the record, add, write, and begin
 * again when another worker was faster. A flush writes at most LEDGER_WRITES_PER_FLUSH_MAX
 * projects, those that have waited longest first. So ten thousand active projects cost no more than
 * a few hundred, and each has its turn every few minutes.
 *
 * These counts are statistics, not accounting. A worker that is killed loses what it has not
 * written (with ten thousand active projects up to 200 s). A write whose answer was lost may count
 * twice. A request just before the full hour may count in the next hour. Counts that cannot be
 * written wait in memory; the number of projects bounds them. The processor removes days that are
 * too old (old-days.ts).
 */
export class OutcomeLedger {
  readonly #options: Required<LedgerOptions>;
  /** Projects with new counts, which `#gather` moves to `#pending`. */
  #fresh: ProjectState[] = [];
  /**
   * Gathered counts that are not written yet, by the key of their record, each with its project.
   */
  readonly #pending = new Map<string, PendingDay>();
  #flushing: Promise<void> | undefined;
  readonly #timer: NodeJS.Timeout;

  constructor({ clock = systemClock, ...options }: LedgerOptions) {
    this.#options = { ...options, clock };
    this.#timer = setInterval(() => void this.flush(LEDGER_WRITES_PER_FLUSH_MAX), LEDGER_FLUSH_MS);
    this.#timer.unref();
  }

  /** @param key the key that was refused, if the reason lies in the key */
  note(project: ProjectState, outcome: string, reason?: string, key?: string): void {
    if (project.isDeleted) return;
    const fresh = FRESH.of(project);
    if (!fresh.isListed) {
      fresh.isListed = true;
      this.#fresh.push(project);
    }
    if (outcome === 'accepted') fresh.accepted++;
    else {
      fresh.others ??= {};
      addCount(fresh.others, nameOf(fresh, outcome, reason, key), 1);
    }
  }

  /**
   * Writes the new counts of at most `projects` projects. Never throws: a failure is logged, and
   * the counts wait for the next flush.
   */
  async flush(projects = Infinity): Promise<void> {
    while (this.#flushing) await this.#flushing;
    this.#gather();
    if (this.#pending.size === 0 || !this.#options.link.connected) return;
    this.#flushing = this.#write(projects);
    await this.#flushing;
    this.#flushing = undefined;
  }

  /** Stops the timer and writes all counts. */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    await this.flush();
  }

  /**
   * Moves the new counts of all projects (FRESH) into the days of `#pending`, under the current
   * hour.
   */
  #gather(): void {
    const time = new Date(this.#options.clock.now()).toISOString();
    const hour = time.slice(11, 13);
    for (const project of this.#fresh) {
      const fresh = FRESH.of(project);
      fresh.isListed = false;
      if (project.isDeleted) continue;
      const key = ledgerKey(project.id, time.slice(0, 10));
      const pending = this.#pending.get(key);
      const day = pending && !pending.project.isDeleted ? pending.day : {};
      if (fresh.accepted > 0) addCounts(day, { [hour]: { accepted: fresh.accepted } });
      if (fresh.others) addCounts(day, { [hour]: fresh.others });
      if (pending) FRESH.of(pending.project).unwritten--;
      fresh.unwritten++;
      this.#pending.set(key, { project, day });
      fresh.accepted = 0;
      fresh.others = undefined;
      fresh.keyNames = undefined;
    }
    this.#fresh = [];
  }

  async #write(projects: number): Promise<void> {
    // A key leaves the map when its counts are written, and the next counts put it at the end. So
    // the first keys have waited longest.
    const queue = [...this.#pending.keys()].slice(0, projects).values();
    // An error that is not a conflict means that the broker is away: the writers stop, and one log
    // line is enough. A conflict only means that others write the same record.
    let isAway = false;
    const writer = async (): Promise<void> => {
      for (const key of queue) {
        if (isAway) return;
        await this.#writeKey(key).catch((error) => {
          if (!isAway)
            this.#options.log.warn({ key, err: error }, 'outcomes: not written, kept for the next flush');
          isAway ||= !isConflict(error);
        });
      }
    };
    await Promise.all(Array.from({ length: WRITES_IN_FLIGHT_MAX }, writer));
  }

  /**
   * Adds pending counts to the record that has this key in the bucket.
   * @throws when the broker does not take the write; the key then comes last in the next flush
   */
  async #writeKey(key: string): Promise<void> {
    const pending = this.#pending.get(key);
    if (!pending) return;
    this.#pending.delete(key);
    const { project, day } = pending;
    try {
      await changeRecord(this.#options.link, key, (text) => {
        if (project.isDeleted) return undefined;
        const sum = parseDay(text);
        addCounts(sum, day);
        return JSON.stringify(sum);
      });
      FRESH.of(project).unwritten--;
    } catch (error) {
      this.#pending.set(key, pending);
      throw error;
    }
  }
}
