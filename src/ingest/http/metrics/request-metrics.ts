import { ITEM_TYPES, type ItemType, SKIPPED_TYPES, type SkippedType } from '../../../lib/item-types.ts';
import { Distribution, SECONDS_BOUNDS } from '../../../lib/metrics/distribution.ts';
import { OUTCOMES, type Outcome } from '../answers/outcome.ts';

export type EndpointName = 'ingest' | 'heartbeat';

const zeroes = <K extends string>(names: readonly K[]): Record<K, number> =>
  Object.fromEntries(names.map((name) => [name, 0])) as Record<K, number>;

/** Plain counters. The request path increments them, and the admin port reads them. */
export class RequestMetrics {
  readonly outcomes: Record<EndpointName, Record<Outcome, number>> = {
    ingest: zeroes(OUTCOMES),
    heartbeat: zeroes(OUTCOMES),
  };
  /** Answers outside the endpoints, by status code. */
  readonly otherStatuses: Record<string, number> = {};
  /** Items that the broker has acknowledged, by type. */
  readonly items: Record<ItemType, number> = zeroes(ITEM_TYPES);
  /** Items of types that are not stored, in envelopes that were answered 200. */
  readonly skipped: Record<SkippedType, number> = zeroes(SKIPPED_TYPES);
  /** Items that were dropped because their category was over its limit. */
  readonly rateLimited: Record<ItemType, number> = zeroes(ITEM_TYPES);
  /** Bodies and heads that were answered 400, 413, 415 or 417, by the reason in the answer. */
  readonly refusedBodies: Record<string, number> = {};
  /**
   * Requests of known projects whose outcome has a reason, by outcome and reason with a space
   * between.
   */
  readonly reasons: Record<string, number> = {};
  /** Body bytes, as transmitted, that finished requests had received before their outcome. */
  bytes = 0;
  /** Seconds from a request's head to its outcome. */
  readonly duration = new Distribution(SECONDS_BOUNDS);
  #endedBefore = -1;

  refuseBody(reason: string): void {
    this.refusedBodies[reason] = (this.refusedBodies[reason] ?? 0) + 1;
  }

  noteReason(outcome: Outcome, reason: string): void {
    const name = `${outcome} ${reason}`;
    this.reasons[name] = (this.reasons[name] ?? 0) + 1;
  }

  other(status: string): void {
    const code = status.slice(0, 3);
    this.otherStatuses[code] = (this.otherStatuses[code] ?? 0) + 1;
  }

  /** Whether a request has ended since the last call; true at the first call. */
  takeNews(): boolean {
    const others = Object.values(this.otherStatuses).reduce((sum, count) => sum + count, 0);
    const ended = this.duration.count + others;
    const isNew = ended !== this.#endedBefore;
    this.#endedBefore = ended;
    return isNew;
  }
}
