import type { Log } from '../../lib/log.ts';
import { CHECKPOINT_READ_MS_MAX } from '../../limits.ts';
import type { NatsLink } from '../../stream/nats.ts';
import { COUNTERS_BUCKET } from '../../stream/topology.ts';
import { openBucket } from '../bucket.ts';
import { changeRecord, readRecord, recordKeys, removeRecords } from './records.ts';

/** For each project by id, its usage in the month. */
export type MonthCounts = Map<string, number>;

/**
 * Number of groups of projects. Each group has one record a month. A worker that counts projects of
 * all groups sends some thirty requests a second, however many projects there are. With a hundred
 * thousand projects a record has 20 KB.
 */
const GROUPS = 128;
/**
 * Reads of one record within this time share one answer: when Redis comes back empty, or a month
 * begins, all projects ask at once.
 */
const READ_KEPT_MS = 500;
/** Number of records that are read at the same time when the records of all projects are read. */
const READ_AT_ONCE = 16;
/** A read that gets no answer is repeated after this time. */
const READ_AGAIN_MS = 250;

/** Key of a group's checkpoints: `checkpoints.<YYYY-MM>.<group>`. */
const checkpointKey = (month: string, group: number | '*'): string => `checkpoints.${month}.${group}`;
/**
 * Key of a group's counts of deleted projects: `deleted.<YYYY-MM>.<group>`. The sink's tally
 * includes these counts, so they are subtracted from it.
 */
const deletedKey = (month: string, group: number): string => `deleted.${month}.${group}`;

/**
 * Key of the note that Redis lost counts. The note stays until the counts are compared with the
 * tally.
 */
const LOSS_KEY = 'lost';

/** The note of a loss: the UTC month (`YYYY-MM`) by the broker's clock, and the note's revision. */
export type NotedLoss = { month: string; revision: number };

/**
 * Checkpoints of the monthly usage, from which counting resumes when Redis comes back empty.
 *
 * Usage only grows within a month, so the larger of two counts is the newer. A write reads the
 * record, raises the counts that are smaller than its own, and stores the record by
 * compare-and-set. Otherwise a slow worker could set a count back, and positions would be given
 * twice.
 */
export class CheckpointBucket {
  /** Number of groups. Groups are numbered from 0, and a project is always in the same group. */
  readonly groups: number = GROUPS;
  readonly #options: { link: NatsLink; log: Log };
  /** Reads that are under way or just done, by key. */
  readonly #reading = new Map<string, Promise<MonthCounts>>();

  constructor(options: { link: NatsLink; log: Log }) {
    this.#options = options;
  }

  groupOf(projectId: string): number {
    let hash = 0;
    for (let i = 0; i < projectId.length; i++) hash = (hash * 31 + projectId.charCodeAt(i)) >>> 0;
    return hash % GROUPS;
  }

  /**
   * Raises the checkpoints of projects of one group.
   * @param month `YYYY-MM`
   * @throws when it is not certain that the checkpoints are stored
   */
  async write(group: number, month: string, figures: ReadonlyMap<string, number>): Promise<void> {
    if (!this.#options.link.connected) throw new Error('not connected to NATS');
    await this.#change(checkpointKey(month, group), (stored) => {
      let raised = false;
      for (const [projectId, count] of figures) {
        if (count <= (stored.get(projectId) ?? -1)) continue;
        stored.set(projectId, count);
        raised = true;
      }
      return raised;
    });
  }

  /**
   * Reads a project's checkpoint, at most half a second old; undefined when there is none.
   * @throws when the bucket does not answer for CHECKPOINT_READ_MS_MAX, or the broker is away
   */
  async read(projectId: string, month: string): Promise<number | undefined> {
    const figures = await this.#readTogether(checkpointKey(month, this.groupOf(projectId)));
    return figures.get(projectId);
  }

  /**
   * Reads the checkpoints of all projects.
   * @throws when the bucket does not answer, or the broker is away
   */
  async readAll(month: string): Promise<MonthCounts> {
    const keys = await recordKeys(this.#options.link, checkpointKey(month, '*'));
    const all: MonthCounts = new Map();
    for (let at = 0; at < keys.length; at += READ_AT_ONCE) {
      const records = keys.slice(at, at + READ_AT_ONCE).map((key) => this.#stored(key));
      for (const counts of await Promise.all(records))
        for (const [projectId, count] of counts) all.set(projectId, count);
    }
    return all;
  }

  #readTogether(key: string): Promise<MonthCounts> {
    let reading = this.#reading.get(key);
    if (!reading) {
      reading = this.#storedSoon(key);
      this.#reading.set(key, reading);
      const forget = (): void => {
        this.#reading.delete(key);
      };
      reading.then(() => setTimeout(forget, READ_KEPT_MS).unref(), forget);
    }
    return reading;
  }

  /**
   * Asks every READ_AGAIN_MS, and takes the first answer. A request may be lost with its
   * connection, or because the bucket has no leader for a moment.
   */
  #storedSoon(key: string): Promise<MonthCounts> {
    const endsAt = performance.now() + CHECKPOINT_READ_MS_MAX;
    let timer: NodeJS.Timeout | undefined;
    const first = new Promise<MonthCounts>((resolve, reject) => {
      let failure: unknown = new Error('no connection to NATS, or no answer');
      const ask = (): void => {
        if (this.#options.link.isAway || performance.now() > endsAt) reject(failure);
        else if (this.#options.link.connected)
          this.#stored(key).then(resolve, (error) => {
            failure = error;
          });
      };
      timer = setInterval(ask, READ_AGAIN_MS);
      ask();
    });
    return first.finally(() => clearInterval(timer));
  }

  /** Sets a project's checkpoint to any count, for `sluice usage reconcile`. */
  async replace(projectId: string, month: string, count: number): Promise<void> {
    await this.#change(checkpointKey(month, this.groupOf(projectId)), (stored) => {
      stored.set(projectId, count);
      return true;
    });
  }

  /**
   * Removes the checkpoint of a deleted project.
   * @returns the removed count; undefined when there was no checkpoint
   */
  async remove(projectId: string, month: string): Promise<number | undefined> {
    let removed: number | undefined;
    await this.#change(checkpointKey(month, this.groupOf(projectId)), (stored) => {
      removed = stored.get(projectId);
      return stored.delete(projectId);
    });
    return removed;
  }

  /**
   * Adds the count of a deleted project to the counts of earlier projects with its id. The sink's
   * tally of this id includes all these counts, so they are subtracted from it.
   */
  async addDeleted(projectId: string, month: string, count: number): Promise<void> {
    await this.#change(deletedKey(month, this.groupOf(projectId)), (stored) => {
      stored.set(projectId, (stored.get(projectId) ?? 0) + count);
      return count > 0;
    });
  }

  /** Count that earlier projects with this id reached in the month. */
  async readDeleted(projectId: string, month: string): Promise<number> {
    const figures = await this.#stored(deletedKey(month, this.groupOf(projectId)));
    return figures.get(projectId) ?? 0;
  }

  /** Ids under which a project was deleted in the month. */
  async deletedIds(month: string): Promise<Set<string>> {
    const ids = new Set<string>();
    for (let group = 0; group < GROUPS; group++)
      for (const id of (await this.#stored(deletedKey(month, group))).keys()) ids.add(id);
    return ids;
  }

  /**
   * Notes that Redis lost counts.
   * @throws when it is not certain that the note is stored
   */
  async noteLoss(): Promise<void> {
    if (!this.#options.link.connected) throw new Error('not connected to NATS');
    await (await openBucket(this.#options.link, COUNTERS_BUCKET)).put(LOSS_KEY, '');
  }

  /**
   * Reads the note of a loss; undefined when there is none.
   * @throws when the bucket does not answer
   */
  async readLoss(): Promise<NotedLoss | undefined> {
    const entry = await (await openBucket(this.#options.link, COUNTERS_BUCKET)).get(LOSS_KEY);
    if (entry?.operation !== 'PUT') return undefined;
    return { month: entry.created.toISOString().slice(0, 'YYYY-MM'.length), revision: entry.revision };
  }

  /** Removes the note, unless a later note has replaced it. */
  async forgetLoss({ revision }: NotedLoss): Promise<void> {
    await removeRecords(this.#options.link, LOSS_KEY, revision);
  }

  /**
   * Changes one record.
   * @param change returns whether there is something to write
   */
  #change(key: string, change: (figures: MonthCounts) => boolean): Promise<void> {
    return changeRecord(this.#options.link, key, (text) => {
      const figures = this.#parse(key, text);
      return change(figures) ? textOf(figures) : undefined;
    });
  }

  async #stored(key: string): Promise<MonthCounts> {
    return this.#parse(key, await readRecord(this.#options.link, key));
  }

  /**
   * Reads a record's text. Spoiled text counts as an empty record, and the next write replaces it.
   */
  #parse(key: string, text = '{}'): MonthCounts {
    try {
      return figuresOf(JSON.parse(text) as Record<string, unknown>);
    } catch (error) {
      this.#options.log.warn({ key, err: error }, 'counters: a spoiled checkpoint is taken for none');
      return new Map();
    }
  }
}

/**
 * The form of a record: two lists of the same length. In an object, V8 would sort numeric ids and
 * print them as names, at three times the cost.
 */
type Columns = { ids: readonly unknown[]; counts: readonly unknown[] };

const textOf = (figures: MonthCounts): string =>
  JSON.stringify({ ids: [...figures.keys()], counts: [...figures.values()] } satisfies Columns);

/** Reads both forms of a record. Earlier builds wrote an object from id to count. */
function figuresOf(record: Columns | Record<string, unknown>): MonthCounts {
  const { ids, counts } = record;
  if (!Array.isArray(ids) || !Array.isArray(counts))
    return new Map(Object.entries(record).filter((entry): entry is [string, number] => isCount(entry[1])));
  const figures: MonthCounts = new Map();
  ids.forEach((id, i) => {
    const count = counts[i];
    if (typeof id === 'string' && isCount(count)) figures.set(id, count);
  });
  return figures;
}

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;
