import type { Log } from '../../lib/log.ts';
import { CHECKPOINT_READ_MS_MAX } from '../../limits.ts';
import type { NatsLink } from '../../stream/nats.ts';
import { COUNTERS_BUCKET } from '../../stream/topology.ts';
import { openBucket } from '../bucket.ts';
import { changeRecord, readRecord, removeRecords } from './records.ts';

/** Project id → position in the month. */
export type MonthCounts = Map<string, number>;

/**
 * Records that the projects of a month share. A worker that counts projects of all groups sends
 * some thirty requests a second, for a thousand projects as for a hundred thousand; with the latter
 * a record has 20 KB.
 */
const GROUPS = 128;
/**
 * Reads of one record join within this time: when Redis comes back empty, or a month begins, all
 * projects ask at once.
 */
const READ_KEPT_MS = 500;
/** A record that nobody has given yet is asked for again after this. */
const READ_AGAIN_MS = 250;

/** `checkpoints.<YYYY-MM>.<group>` */
const checkpointKey = (month: string, group: number): string => `checkpoints.${month}.${group}`;
/**
 * Counts of deleted projects, which are in the tally still: the same records,
 * `deleted.<YYYY-MM>.<group>`.
 */
const deletedKey = (month: string, group: number): string => `deleted.${month}.${group}`;

/** The key of a note: Redis lost counts, and they have not been compared with the tally yet. */
const LOSS_KEY = 'lost';

/** The note of a loss: the UTC month of the broker's clock, `YYYY-MM`, and the note's revision. */
export type NotedLoss = { month: string; revision: number };

/**
 * Checkpoints of the monthly usage, from which counting resumes when Redis comes back empty.
 *
 * Usage only grows within a month, so of two figures the larger is the newer. A write reads the
 * record and yields to a larger figure, by compare-and-set. Otherwise a worker that was slow for a
 * moment could set the figure back, and a start from it would admit requests that were already
 * counted.
 */
export class CheckpointBucket {
  /** A project is always in the same one, from 0 on. */
  readonly groups: number = GROUPS;
  readonly #options: { link: NatsLink; log: Log };
  /** Reads under way, by key. */
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
   * Raises the figures of projects of one group; `month` is `YYYY-MM`.
   * @throws when they may not be stored
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
   * The checkpoint, at most half a second old; undefined when there is none.
   * @throws when the bucket does not answer for CHECKPOINT_READ_MS_MAX, or the broker is away
   */
  async read(projectId: string, month: string): Promise<number | undefined> {
    const figures = await this.#readTogether(checkpointKey(month, this.groupOf(projectId)));
    return figures.get(projectId);
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
   * The first answer counts. A lost connection swallows a question, and so does a bucket that has
   * no leader for a moment.
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

  /** Sets the figure, larger or smaller: for a reconciliation. */
  async replace(projectId: string, month: string, count: number): Promise<void> {
    await this.#change(checkpointKey(month, this.groupOf(projectId)), (stored) => {
      stored.set(projectId, count);
      return true;
    });
  }

  /** Removes the figure of a deleted project. @returns it */
  async remove(projectId: string, month: string): Promise<number | undefined> {
    let removed: number | undefined;
    await this.#change(checkpointKey(month, this.groupOf(projectId)), (stored) => {
      removed = stored.get(projectId);
      return stored.delete(projectId);
    });
    return removed;
  }

  /**
   * Notes what was counted under the id of a project that is deleted: the processor's tally knows
   * ids only.
   */
  async addDeleted(projectId: string, month: string, count: number): Promise<void> {
    await this.#change(deletedKey(month, this.groupOf(projectId)), (stored) => {
      stored.set(projectId, (stored.get(projectId) ?? 0) + count);
      return count > 0;
    });
  }

  /** Count that earlier projects of this id reached in the month. */
  async readDeleted(projectId: string, month: string): Promise<number> {
    const figures = await this.#stored(deletedKey(month, this.groupOf(projectId)));
    return figures.get(projectId) ?? 0;
  }

  /** The ids of which a project was deleted in the month. */
  async deletedIds(month: string): Promise<Set<string>> {
    const ids = new Set<string>();
    for (let group = 0; group < GROUPS; group++)
      for (const id of (await this.#stored(deletedKey(month, group))).keys()) ids.add(id);
    return ids;
  }

  /** Notes that Redis lost counts. @throws when the note may not be stored */
  async noteLoss(): Promise<void> {
    if (!this.#options.link.connected) throw new Error('not connected to NATS');
    await (await openBucket(this.#options.link, COUNTERS_BUCKET)).put(LOSS_KEY, '');
  }

  /** @throws when the bucket does not answer */
  async readLoss(): Promise<NotedLoss | undefined> {
    const entry = await (await openBucket(this.#options.link, COUNTERS_BUCKET)).get(LOSS_KEY);
    if (entry?.operation !== 'PUT') return undefined;
    return { month: entry.created.toISOString().slice(0, 'YYYY-MM'.length), revision: entry.revision };
  }

  /** Removes the note, but not one that was written later. */
  async forgetLoss({ revision }: NotedLoss): Promise<void> {
    await removeRecords(this.#options.link, LOSS_KEY, revision);
  }

  /** `change` says whether there is something to write. */
  #change(key: string, change: (figures: MonthCounts) => boolean): Promise<void> {
    return changeRecord(this.#options.link, key, (text) => {
      const figures = this.#parse(key, text);
      return change(figures) ? textOf(figures) : undefined;
    });
  }

  async #stored(key: string): Promise<MonthCounts> {
    return this.#parse(key, await readRecord(this.#options.link, key));
  }

  /** Spoiled text counts as none, and is written over. */
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
 * A record: two lists of the same length. V8 would sort and print numeric ids as names, at three
 * times the cost.
 */
type Columns = { ids: readonly unknown[]; counts: readonly unknown[] };

const textOf = (figures: MonthCounts): string =>
  JSON.stringify({ ids: [...figures.keys()], counts: [...figures.values()] } satisfies Columns);

/** Earlier builds wrote the figures by name. */
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
