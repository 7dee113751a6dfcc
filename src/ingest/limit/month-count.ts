/**
 * The month's count of one project. Commands read, set and forget the count by these functions, and
 * {@link Refunds} takes back counts of requests that were not queued. The requests are counted in
 * admission.ts.
 */
import type { Log } from '../../lib/log.ts';
import { admitArgs, admitKeys } from './admit-call.ts';
import type { LimitRedis, ScriptReply } from './redis.ts';
import { quotaKey, rateKey } from './scripts.ts';

function answered(reply: ScriptReply): readonly unknown[] {
  if (!reply) throw new Error('Redis does not answer');
  return reply;
}

/**
 * Reads the count of the current month, without counting. `count` is undefined when Redis has none
 * for this month.
 * @throws when Redis does not answer
 */
export async function readUsage(
  redis: LimitRedis,
  projectId: string,
): Promise<{ month: string; count: number | undefined }> {
  const reply = answered(await redis.request('admit', admitKeys(projectId), admitArgs({ wishes: '' })));
  const [month, before] = reply[1] as [string, number];
  return { month, count: before < 0 ? undefined : before };
}

/** The count that {@link setUsage} sets, and the count that its caller saw (undefined: none). */
type UsageChange = { projectId: string; month: string; count: number; seen: number | undefined };

/**
 * Sets a month's count unless the count is no longer the one that the caller saw.
 * @returns whether the count was set, and the count that Redis has now (undefined: none)
 * @throws when Redis does not answer
 */
export async function setUsage(
  redis: LimitRedis,
  change: UsageChange,
): Promise<{ set: boolean; count: number | undefined }> {
  const { projectId, month, count, seen } = change;
  const reply = await redis.request('setUsage', [quotaKey(projectId)], [month, count, seen ?? '']);
  const [set, current] = answered(reply) as [number, number];
  return { set: set === 1, count: current < 0 ? undefined : current };
}

/**
 * Raises a month's count to `count` if Redis has a lower one.
 * @returns the count before; undefined when nothing was raised
 * @throws when Redis does not answer
 */
export async function raiseUsage(
  redis: LimitRedis,
  { projectId, month, count }: Omit<UsageChange, 'seen'>,
): Promise<number | undefined> {
  const reply = await redis.request('setUsage', [quotaKey(projectId)], [month, count, 'lower']);
  const [set, , before] = answered(reply) as [number, number, number];
  return set === 1 ? before : undefined;
}

/**
 * Removes the project's counts of all months, its own rate window, and the rate windows named in
 * `windows`.
 * @returns the counts as they were, by month
 * @throws when Redis does not answer
 */
export async function forgetUsage(
  redis: LimitRedis,
  projectId: string,
  windows: readonly string[] = [],
): Promise<Map<string, number>> {
  const rateKeys = ['', ...windows].map((window) => rateKey(projectId, window));
  const reply = answered(await redis.request('forgetUsage', [quotaKey(projectId), ...rateKeys], []));
  return monthsOf(reply);
}

const MONTH = /^\d{4}-\d{2}$/;

/**
 * Reads a list of field names and values in turn. Only fields that are named by a month are counts
 * of the project. The other fields hold counts from other cells (installations of sluice to or from
 * which the project moves), and are left out.
 */
function monthsOf(pairs: readonly unknown[]): Map<string, number> {
  const months = new Map<string, number>();
  for (let at = 0; at < pairs.length; at += 2)
    if (MONTH.test(String(pairs[at]))) months.set(String(pairs[at]), Number(pairs[at + 1]));
  return months;
}

/**
 * Adds the counts of another cell (installation of sluice) to the project's counts. Of each month's
 * count only the growth since the last call is added, so a repeated call with the same counts
 * changes nothing.
 * @returns the counts of this cell, without those from the other cell
 * @throws when Redis does not answer
 */
export async function shareUsage(
  redis: LimitRedis,
  projectId: string,
  { cell, counts }: { cell: string; counts: ReadonlyMap<string, number> },
): Promise<Map<string, number>> {
  const pairs = [...counts].flat();
  return monthsOf(answered(await redis.request('shareUsage', [quotaKey(projectId)], [cell, ...pairs])));
}

/** Most refunds that wait while Redis is away. They take a few MB. */
const OWED_MAX = 50_000;

/**
 * Takes back counts of a month, for requests that were counted and certainly not queued. Each
 * refund is one decrement, which never goes below 0. It is sent once: now, or when Redis answers
 * again. A decrement whose reply is lost is not repeated, because it may have run.
 */
export class Refunds {
  readonly #options: { redis: LimitRedis; log: Log };
  readonly #onOwed: () => void;
  #owed: { projectId: string; month: string }[] = [];
  #closed = false;

  /** @param onOwed called when a refund must wait for `sendOwed` */
  constructor(options: { redis: LimitRedis; log: Log }, onOwed: () => void) {
    this.#options = options;
    this.#onOwed = onOwed;
  }

  /** Whether refunds wait for `sendOwed`. */
  get areOwed(): boolean {
    return this.#owed.length > 0;
  }

  refund(projectId: string, month: string): void {
    if (this.#options.redis.available) this.#send(projectId, month);
    else this.#owe(projectId, month);
  }

  #owe(projectId: string, month: string): void {
    if (this.#owed.length >= OWED_MAX || this.#closed) return this.#warn(projectId, month);
    this.#owed.push({ projectId, month });
    this.#onOwed();
  }

  /**
   * Ends the refunds. Refunds that still wait are logged and not made, so their requests stay
   * counted.
   */
  close(): void {
    this.#closed = true;
    for (const { projectId, month } of this.#owed.splice(0)) this.#warn(projectId, month);
  }

  /** Sends the refunds that waited, if Redis answers. The owner calls this now and then. */
  sendOwed(): void {
    if (this.#owed.length === 0 || !this.#options.redis.available) return;
    for (const { projectId, month } of this.#owed.splice(0)) this.#send(projectId, month);
  }

  #send(projectId: string, month: string): void {
    const done = (reply: ScriptReply): void => {
      if (reply?.[0] !== 1) this.#warn(projectId, month);
    };
    const unsent = (): void => this.#owe(projectId, month);
    this.#options.redis.call({ script: 'refund', keys: [quotaKey(projectId)], args: [month], done, unsent });
  }

  #warn(projectId: string, month: string): void {
    this.#options.log.warn({ project: projectId, month }, 'quota increment not taken back');
  }
}
