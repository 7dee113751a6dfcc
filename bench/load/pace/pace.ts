/**
 * Decides when requests are due, at a rate that changes linearly within a segment and may jump
 * between two segments.
 *
 * A segment begins at the rate `a`, in requests per second, and the rate grows by `s` each second.
 * Request `k` of the segment is due after `t` seconds, where `a·t + s·t²/2 = k`. Nothing that the
 * server does moves a due time.
 */

/** Rates are in requests per second, times in milliseconds from the start of the plan. */
export type Segment = { name: string; fromMs: number; toMs: number; fromRate: number; toRate: number };
/** A rate that replaces the planned one for a while. */
export type Spike = { atMs: number; forMs: number; rate: number };
/** A rate that is reached after `forMs` of linear change. When `forMs` is 0, the rate jumps. */
export type Stage = { forMs: number; rate: number };

export const rateAt = ({ fromMs, toMs, fromRate, toRate }: Segment, ms: number): number =>
  toMs === fromMs ? toRate : fromRate + ((toRate - fromRate) * (ms - fromMs)) / (toMs - fromMs);

const requestsOf = ({ fromMs, toMs, fromRate, toRate }: Segment): number =>
  ((fromRate + toRate) / 2 / 1000) * (toMs - fromMs);

/** Milliseconds from the segment's start until `k` requests are due. */
function msUntil(k: number, { fromMs, toMs, fromRate, toRate }: Segment): number {
  if (k === 0) return 0;
  if (fromRate === toRate) return (1000 * k) / fromRate;
  const gain = ((toRate - fromRate) / (toMs - fromMs)) * 1000;
  // The usual formula of the root would lose digits when the rate hardly changes; this form does
  // not.
  return (2000 * k) / (fromRate + Math.sqrt(Math.max(0, fromRate * fromRate + 2 * gain * k)));
}

export class Pace {
  readonly #segments: readonly Segment[];
  /**
   * Number of requests of each segment. The numbers have fractions, so that no request is delayed
   * or early where segments meet.
   */
  readonly #requests: Float64Array;
  #at = 0;
  /** How many requests of the current segment were due so far. */
  #k = 0;

  /**
   * @param phase fraction of a request, 0 to 1, from which the count begins: it delays all
   * requests, so that generators that share a plan take turns
   */
  constructor(segments: readonly Segment[], phase = 0) {
    this.#segments = segments;
    this.#k = phase;
    this.#requests = Float64Array.from(segments, requestsOf);
  }

  /** Index of the segment of the request that next() returned last. */
  get segment(): number {
    return this.#at;
  }

  /**
   * Returns when the requests are due that next() has not returned yet, up to `untilMs`: at most
   * `samples` moments for each segment, each with the number of requests that it stands for.
   */
  waiting(untilMs: number, samples: number): (readonly [ms: number, count: number])[] {
    const found: (readonly [number, number])[] = [];
    let first = this.#k;
    for (let at = this.#at; at < this.#segments.length; at++) {
      const segment = this.#segments[at] as Segment;
      if (segment.fromMs >= untilMs) break;
      const toMs = Math.min(untilMs, segment.toMs);
      const end = requestsOf({ ...segment, toMs, toRate: rateAt(segment, toMs) });
      const stride = Math.max(1, Math.ceil((end - first) / samples));
      for (let k = first; k < end; k += stride)
        found.push([segment.fromMs + msUntil(k, segment), Math.min(stride, Math.ceil(end - k))]);
      first += Math.max(0, Math.ceil(end - first)) - (this.#requests[at] as number);
    }
    return found;
  }

  /**
   * Returns when the next request is due, in milliseconds from the start of the plan; Infinity
   * after the last one.
   */
  next(): number {
    for (; this.#at < this.#segments.length; this.#at++) {
      const requests = this.#requests[this.#at] as number;
      if (this.#k < requests) {
        const segment = this.#segments[this.#at] as Segment;
        return segment.fromMs + msUntil(this.#k++, segment);
      }
      // A fraction of a request that is left belongs to the first request of the next segment.
      this.#k -= requests;
    }
    return Number.POSITIVE_INFINITY;
  }
}

export const rateText = (from: number, to: number): string =>
  from === to ? `${Math.round(to)}/s` : `${Math.round(from)} → ${Math.round(to)}/s`;

/** Makes a segment of each stage. The first begins at the rate `startRate`. */
export function segmentsOf(stages: readonly Stage[], startRate: number): Segment[] {
  const segments: Segment[] = [];
  let [fromMs, fromRate] = [0, startRate];
  for (const { forMs, rate } of stages) {
    const toMs = fromMs + forMs;
    if (forMs > 0) segments.push({ name: rateText(fromRate, rate), fromMs, toMs, fromRate, toRate: rate });
    [fromMs, fromRate] = [toMs, rate];
  }
  return segments;
}

/** Returns the parts of a segment that are outside the spike. */
function around(segment: Segment, { atMs, forMs }: Spike): Segment[] {
  const parts: Segment[] = [];
  const cut = (fromMs: number, toMs: number): void => {
    if (toMs <= fromMs) return;
    const fromRate = rateAt(segment, fromMs);
    parts.push({ ...segment, fromMs, toMs, fromRate, toRate: rateAt(segment, toMs) });
  };
  cut(segment.fromMs, Math.min(segment.toMs, atMs));
  cut(Math.max(segment.fromMs, atMs + forMs), segment.toMs);
  return parts;
}

/**
 * Inserts spikes into a plan. A spike replaces the plan while it lasts, and is cut at the end of
 * the plan.
 */
export function withSpikes(segments: readonly Segment[], spikes: readonly Spike[]): Segment[] {
  let all = [...segments];
  const end = all.at(-1)?.toMs ?? 0;
  for (const spike of spikes) {
    const toMs = Math.min(end, spike.atMs + spike.forMs);
    if (spike.atMs >= toMs) continue;
    const { atMs: fromMs, rate } = spike;
    const itself = { name: `spike ${Math.round(rate)}/s`, fromMs, toMs, fromRate: rate, toRate: rate };
    all = [...all.flatMap((segment) => around(segment, spike)), itself];
    all.sort((a, b) => a.fromMs - b.fromMs);
  }
  return all;
}
