import type { Clock } from '../lib/clock.ts';
import type { Log } from '../lib/log.ts';
import {
  WORK_BEHIND_MS,
  WORK_HEAVY_MS,
  WORK_NAMED_EVERY_MS,
  WORK_OTHERS_MS,
  WORK_PART_MAX,
} from '../limits.ts';
import type { NatsLink } from '../stream/nats.ts';
import { HEAVY_SUBJECT, WorkDebts } from '../stream/work.ts';

export type HeavyProjectsOptions = { link: NatsLink; clock: Clock; log: Log };

/**
 * The processor's side of stream/work.ts: names the projects whose work makes it late.
 *
 * A project's debt is reckoned at the moments at which the broker stored its frames. So it says how
 * fast the project sends, however late its frames are processed. A project may need half of the
 * processor's time: a millisecond of work is two of debt.
 */
export class HeavyProjects {
  readonly #link: NatsLink;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #debts = new WorkDebts();
  /** When a project was named last, monotonic ms. */
  readonly #namedAt = new Map<string, number>();
  /** The last project that was seen; when it was, and when any other one was, monotonic ms. */
  #last = '';
  #lastAt = Number.NEGATIVE_INFINITY;
  #otherAt = Number.NEGATIVE_INFINITY;

  constructor({ link, clock, log }: HeavyProjectsOptions) {
    this.#link = link;
    this.#clock = clock;
    this.#log = log;
  }

  /**
   * An item was processed.
   * @param workMs as `workOn` in stream/work.ts estimates it @param storedAt of its frame, Unix ms
   */
  note(projectId: string, workMs: number, storedAt: number): void {
    const now = this.#clock.monotonic();
    if (projectId !== this.#last) [this.#last, this.#otherAt] = [projectId, this.#lastAt];
    this.#lastAt = now;
    const owes = this.#debts.add(projectId, workMs / WORK_PART_MAX, storedAt);
    if (owes < WORK_HEAVY_MS || this.#clock.now() - storedAt < WORK_BEHIND_MS) return;
    if (now - this.#otherAt < WORK_OTHERS_MS) this.name(projectId);
  }

  /** All workers refuse the project for a while. */
  name(projectId: string): void {
    const now = this.#clock.monotonic();
    const before = this.#namedAt.get(projectId) ?? Number.NEGATIVE_INFINITY;
    if (now - before < WORK_NAMED_EVERY_MS) return;
    for (const [id, at] of this.#namedAt) if (now - at > WORK_OTHERS_MS) this.#namedAt.delete(id);
    this.#namedAt.set(projectId, now);
    if (now - before > WORK_OTHERS_MS)
      this.#log.warn({ project: projectId }, 'processor: a project sends more than can be processed in time');
    const { connection } = this.#link;
    if (this.#link.connected && !connection.isDraining()) connection.publish(HEAVY_SUBJECT, projectId);
  }
}
