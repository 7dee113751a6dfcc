import type { Clock } from '../lib/clock.ts';
import type { Log } from '../lib/log.ts';
import {
  DEBTS_SWEPT_MIN,
  WORK_BEHIND_MS,
  WORK_HEAVY_MS,
  WORK_NAMED_EVERY_MS,
  WORK_OTHERS_MS,
  WORK_PART_MAX,
  WORK_STREAM_MS,
} from '../limits.ts';
import type { NatsLink } from '../stream/nats.ts';
import { HEAVY_SUBJECT } from '../stream/work.ts';
import type { Delivery } from './delivery.ts';

export type HeavyProjectsOptions = { link: NatsLink; clock: Clock; log: Log };

/** A project's debt in ms, and by stream when its newest frame was stored, Unix ms. */
type Sent = { owes: number; storedAt: Map<string, number> };

/**
 * Tells the workers which projects' work makes the processor late; the workers then refuse requests
 * of these projects. This is the processor's side of stream/work.ts.
 *
 * A project's debt, in ms, grows with its work and shrinks with the time that passes. Each
 * millisecond of work adds two milliseconds of debt, so a project that needs less than half of the
 * processor's time never owes much. The time is counted between the moments at which the broker
 * stored the project's frames, so the debt shows how fast the project sends, however late its
 * frames are processed.
 *
 * One stream may be later than another, so time is counted in each stream by itself. If a project
 * sends in n streams, a millisecond in one of them pays off an n-th of a millisecond. A redelivered
 * frame, which is older than the frames before it, pays off nothing.
 */
export class HeavyProjects {
  readonly #options: HeavyProjectsOptions;
  readonly #sent = new Map<string, Sent>();
  #sweepSize = DEBTS_SWEPT_MIN;
  /** When each project was named last, monotonic ms. */
  readonly #namedAt = new Map<string, number>();
  /**
   * `#last`: the project whose work was noted last, at `#lastAt`. `#otherAt`: when that of any
   * other project was noted last. Monotonic ms.
   */
  #last = '';
  #lastAt = Number.NEGATIVE_INFINITY;
  #otherAt = Number.NEGATIVE_INFINITY;

  constructor(options: HeavyProjectsOptions) {
    this.#options = options;
  }

  /**
   * Adds an item's work to its project's debt. Calls {@link name} if the project owes too much, the
   * frame is late, and other projects send, too.
   * @param workMs as `workOn` in stream/work.ts estimates it
   * @param frame its stream, and when the broker stored it, Unix ms
   */
  note(projectId: string, workMs: number, { stream, storedAt }: Pick<Delivery, 'stream' | 'storedAt'>): void {
    const now = this.#options.clock.monotonic();
    if (projectId !== this.#last) [this.#last, this.#otherAt] = [projectId, this.#lastAt];
    this.#lastAt = now;
    const sent = this.#sentBy(projectId, storedAt);
    sent.owes = Math.max(0, sent.owes - paidOff(sent, stream, storedAt)) + workMs / WORK_PART_MAX;
    if (sent.owes < WORK_HEAVY_MS || this.#options.clock.now() - storedAt < WORK_BEHIND_MS) return;
    if (now - this.#otherAt < WORK_OTHERS_MS) this.name(projectId);
  }

  /**
   * Tells all workers to refuse the project for a while. Does nothing if the project was named
   * within the last WORK_NAMED_EVERY_MS.
   */
  name(projectId: string): void {
    const now = this.#options.clock.monotonic();
    const before = this.#namedAt.get(projectId) ?? Number.NEGATIVE_INFINITY;
    if (now - before < WORK_NAMED_EVERY_MS) return;
    for (const [id, at] of this.#namedAt) if (now - at > WORK_OTHERS_MS) this.#namedAt.delete(id);
    this.#namedAt.set(projectId, now);
    if (now - before > WORK_OTHERS_MS)
      this.#options.log.warn(
        { project: projectId },
        'processor: a project sends more than can be processed in time',
      );
    const { connection } = this.#options.link;
    if (this.#options.link.connected && !connection.isDraining())
      connection.publish(HEAVY_SUBJECT, projectId);
  }

  #sentBy(projectId: string, now: number): Sent {
    const known = this.#sent.get(projectId);
    if (known) return known;
    if (this.#sent.size >= this.#sweepSize) this.#sweep(now);
    const sent: Sent = { owes: 0, storedAt: new Map() };
    this.#sent.set(projectId, sent);
    return sent;
  }

  /**
   * Forgets projects whose debt is paid.
   * @param now when the broker stored the frame in hand, Unix ms
   */
  #sweep(now: number): void {
    for (const [projectId, { owes, storedAt }] of this.#sent)
      if (Math.max(...storedAt.values()) + owes <= now) this.#sent.delete(projectId);
    this.#sweepSize = Math.max(DEBTS_SWEPT_MIN, 2 * this.#sent.size);
  }
}

/**
 * Returns the part of the debt, in ms, that is paid off at this frame: the time since the project's
 * newest frame in the stream, divided by the number of streams in which the project sends. Returns
 * 0 for the first frame, and for one older than the newest. Notes a newer frame as the newest.
 */
function paidOff(sent: Sent, stream: string, storedAt: number): number {
  const before = sent.storedAt.get(stream) ?? storedAt;
  if (storedAt < before) return 0;
  sent.storedAt.set(stream, storedAt);
  if (storedAt === before) return 0;
  let streams = 0;
  for (const at of sent.storedAt.values()) if (storedAt - at < WORK_STREAM_MS) streams++;
  return (storedAt - before) / streams;
}
