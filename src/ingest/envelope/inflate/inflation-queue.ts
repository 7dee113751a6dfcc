/**
 * Queue of compressed bodies that were whole before they were inflated, and that the event loop
 * cannot inflate: they are too large, or inflate to too much (19 KB may be 19 MiB).
 *
 * A worker stores some hundred MB a second, and an answer is due two seconds after the last byte.
 * If all these bodies were inflated as they come, all would be late. So only a few are in work at a
 * time, from their first byte to the stored envelope. The next is the oldest body of the project
 * that has the fewest bytes in work. The others wait, compressed, for at most a second. The bytes
 * that all these bodies inflate to are shared fairly between projects (lib/fair-share.ts): a body
 * beyond the share is refused at once and costs next to nothing.
 *
 * A body claims its inflated size itself, or an ordinary ratio is assumed. A body that turns out to
 * be larger counts as the largest allowed from then on, and is refused when there is no room for
 * that.
 *
 * Storing a body that *swells* (inflates to many times its size) takes half a second of CPU in the
 * worker, the broker and the processor. So each such body adds to a debt of its project, and the
 * debt shrinks with time. While the debt is larger than the free amount (SWOLLEN_FREE_MIB), the
 * project *rests*: its new bodies that swell are refused at once, and its waiting ones are not
 * started. But it rests only if another project has sent a request after the latest body of the
 * debt was begun, or in the 2 s before (OTHERS_SEND_MS).
 */
import type { Clock } from '../../../lib/clock.ts';
import { FairShare, nextInTurn } from '../../../lib/fair-share.ts';
import { remove } from '../../../lib/in-flight.ts';
import type { Slotted } from '../../../lib/slots.ts';
import {
  INFLATED_AT_ONCE_BYTES_MAX,
  INFLATING_BYTES_MAX,
  INFLATION_WAIT_MS_MAX,
  SWOLLEN_FREE_MIB,
  SWOLLEN_REST_MS_PER_MIB,
} from '../../../limits.ts';

const MIB = 1024 * 1024;
/** Time in ms for which a project counts as sending after its last request. */
const OTHERS_SEND_MS = 2_000;
const FREE_MS = SWOLLEN_FREE_MIB * SWOLLEN_REST_MS_PER_MIB;

/** A body that was whole before an inflater began, and is not inflated in the event loop. */
export type QueuedBody = {
  project: Slotted;
  /** Inflated size in bytes, as far as it is known. */
  bytes: number;
  /** Whether the inflated size is many times the size of the body. */
  swells: boolean;
  /** Inflated bytes that have come out so far. */
  inflated(): number;
  start(): void;
  refuse(): void;
};

type Waiting = { body: QueuedBody; timer: NodeJS.Timeout };
/**
 * A body in work. `since` (monotonic ms) is OTHERS_SEND_MS before its start. When another project
 * has sent a request after `since`, the body's project may have to rest.
 */
type Active = { body: QueuedBody; since: number };
type Debt = { since: number; paidAt: number; timer: NodeJS.Timeout };

export class InflationQueue {
  /** Inflated bytes of all bodies that wait or are in work. */
  readonly share = new FairShare(INFLATING_BYTES_MAX);
  readonly #waiting: Waiting[] = [];
  readonly #active: Active[] = [];
  readonly #debts = new Map<Slotted, Debt>();
  readonly #clock: Pick<Clock, 'monotonic'>;
  #lastUse: Slotted | undefined;
  /**
   * `#lastAt`: when the last request of any project came; its project is `#lastUse`. `#otherAt`:
   * when the last request of another project than `#lastUse` came. Both are monotonic ms.
   */
  #lastAt = Number.NEGATIVE_INFINITY;
  #otherAt = Number.NEGATIVE_INFINITY;

  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#clock = clock;
  }

  /**
   * Notes that a request of the project has come.
   * @param at monotonic ms, by the clock of this queue
   */
  note(project: Slotted, at: number): void {
    if (project !== this.#lastUse) this.#otherAt = this.#lastAt;
    this.#lastUse = project;
    this.#lastAt = at;
  }

  /** Adds a body. This call may itself call the body's `start` or `refuse`. */
  add(body: QueuedBody): void {
    const { project, bytes } = body;
    const isFull = this.share.total + bytes > INFLATING_BYTES_MAX || !this.share.allows(project);
    if (isFull || this.#mustRest(body)) return body.refuse();
    this.share.add(project, bytes);
    const timer = setTimeout(() => {
      this.leave(body);
      body.refuse();
    }, INFLATION_WAIT_MS_MAX);
    this.#waiting.push({ body, timer });
    this.#startNext();
  }

  /**
   * Whether the project holds at most its share. If not, a body of the project would be refused.
   */
  allows(project: Slotted): boolean {
    return this.share.allows(project);
  }

  /**
   * Notes that a body inflates to more than was known.
   * @param bytes its new size
   * @returns false when the body must be refused: with the new size, all bodies of the queue or
   * those in work would inflate to too much
   */
  grow(body: QueuedBody, bytes: number): boolean {
    this.share.add(body.project, bytes - body.bytes);
    body.bytes = bytes;
    return this.share.total <= INFLATING_BYTES_MAX && this.#atWork <= 2 * INFLATED_AT_ONCE_BYTES_MAX;
  }

  /**
   * Notes that a body inflates to many times its size.
   * @returns false when the body must be refused, because its project rests (see the head of this
   * file)
   */
  swell(body: QueuedBody): boolean {
    if (this.#mustRest({ project: body.project, swells: true })) return false;
    body.swells = true;
    return true;
  }

  /** Removes a body whose envelope is stored or refused. Idempotent. */
  leave(body: QueuedBody): void {
    const waiting = this.#waiting.find((one) => one.body === body);
    const active = this.#active.find((one) => one.body === body);
    if (waiting) {
      clearTimeout(waiting.timer);
      remove(this.#waiting, waiting);
    } else if (active) {
      remove(this.#active, active);
      if (body.swells) this.#owe(active);
    } else return;
    this.share.add(body.project, -body.bytes);
    this.#startNext();
  }

  #owe({ body, since }: Active): void {
    const { project } = body;
    const now = this.#clock.monotonic();
    const before = this.#debts.get(project);
    clearTimeout(before?.timer);
    // An earlier debt counts as at most FREE_MS: a project that sends alone does not rest, and must
    // not pay for that time later. An earlier debt may also be overpaid, because the timer that
    // removes it may be late.
    const unpaidMs = before ? Math.max(0, Math.min(FREE_MS, before.paidAt - now)) : 0;
    const ms = unpaidMs + (body.inflated() / MIB) * SWOLLEN_REST_MS_PER_MIB;
    const timer = setTimeout(() => this.#debts.delete(project), ms).unref();
    this.#debts.set(project, { since, paidAt: now + ms, timer });
  }

  #mustRest({ project, swells }: Pick<QueuedBody, 'project' | 'swells'>): boolean {
    const debt = swells ? this.#debts.get(project) : undefined;
    if (!debt || debt.paidAt - this.#clock.monotonic() <= FREE_MS) return false;
    return (project === this.#lastUse ? this.#otherAt : this.#lastAt) > debt.since;
  }

  get #atWork(): number {
    return this.#active.reduce((sum, { body }) => sum + body.bytes, 0);
  }

  #startNext(): void {
    const ready = this.#waiting.filter(({ body }) => !this.#mustRest(body));
    const next = nextInTurn(ready, ({ body: { project } }) =>
      this.#active.reduce((sum, { body }) => sum + (body.project === project ? body.bytes : 0), 0),
    );
    if (!next) return;
    const atWork = this.#atWork;
    if (atWork > 0 && atWork + next.body.bytes > INFLATED_AT_ONCE_BYTES_MAX) return;
    clearTimeout(next.timer);
    remove(this.#waiting, next);
    this.#active.push({ body: next.body, since: this.#clock.monotonic() - OTHERS_SEND_MS });
    next.body.start();
    this.#startNext();
  }
}
