/**
 * Writes each active project's monthly count to a durable place, so that counting can resume when Redis comes back empty.
 *
 * A count is written within CHECKPOINT_MS_MAX of the moment at which it was noted, and a project at most once in that time; what was
 * noted meanwhile is joined. Several workers count the same project, and the last note of one may be older than what another has
 * written: the store keeps the larger figure. A note costs one Map look-up; writes are spread over time, since each falls due by
 * its own note.
 */
import type { Clock } from '../lib/clock.ts';
import type { Log } from '../lib/log.ts';
import { CHECKPOINT_MS_MAX } from '../limits.ts';

/** Where the figures stand: the `sluice_counters` bucket, keyed by project and month (YYYY-MM). */
export interface CheckpointStore {
  /** Keeps the larger of `count` and what stands there: within a month usage only grows. */
  write(projectId: string, month: string, count: number): void | Promise<void>;
  /** The stored figure, or undefined when there is none. Rejects when it cannot be known. */
  read(projectId: string, month: string): Promise<number | undefined>;
}

type Note = { projectId: string; month: string; count: number; dueAt: number };

/** Notes fall due a little early, so that the tick and the write fit into the time. */
const DUE_AFTER_MS = CHECKPOINT_MS_MAX - 1_000;
const TICK_MS = 250;
/** Written per tick at most: a publish costs about 0.1 ms of the worker's loop. */
const WRITES_PER_TICK_MAX = 200;

export type CheckpointsOptions = { store: CheckpointStore; clock: Clock; log: Log };

export class Checkpoints {
  readonly #store: CheckpointStore;
  readonly #clock: Clock;
  readonly #log: Log;
  /** By project; the earliest due first, because every note waits for the same time. */
  readonly #notes = new Map<string, Note>();
  readonly #timer: NodeJS.Timeout;

  constructor(options: CheckpointsOptions) {
    this.#store = options.store;
    this.#clock = options.clock;
    this.#log = options.log;
    this.#timer = setInterval(() => this.#writeDue(), TICK_MS);
    this.#timer.unref();
  }

  note(projectId: string, month: string, count: number): void {
    const note = this.#notes.get(projectId);
    if (note && note.month === month) {
      note.count = Math.max(note.count, count);
      return;
    }
    // The month turned: the last figure of the old one is billed, so it is not lost.
    if (note) {
      this.#notes.delete(projectId);
      void this.#write(note);
    }
    this.#notes.set(projectId, { projectId, month, count, dueAt: this.#clock.monotonic() + DUE_AFTER_MS });
  }

  /** The stored figure. Rejects when the store cannot tell. */
  read(projectId: string, month: string): Promise<number | undefined> {
    return this.#store.read(projectId, month);
  }

  /** Writes everything that was noted, and stops. */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    const notes = [...this.#notes.values()];
    this.#notes.clear();
    await Promise.all(notes.map((note) => this.#write(note)));
  }

  #writeDue(): void {
    const now = this.#clock.monotonic();
    let writes = 0;
    for (const note of this.#notes.values()) {
      if (note.dueAt > now || writes++ >= WRITES_PER_TICK_MAX) return;
      this.#notes.delete(note.projectId);
      void this.#write(note);
    }
  }

  async #write({ projectId, month, count }: Note): Promise<void> {
    try {
      await this.#store.write(projectId, month, count);
    } catch (error) {
      // The next note of this project tries again; until then the checkpoint is older than it should be.
      this.#log.warn({ err: error, project: projectId, month, count }, 'quota checkpoint not written');
    }
  }
}
