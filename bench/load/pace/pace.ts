/**
 * When requests are due: a rate that changes linearly within a segment and may jump between two.
 *
 * Request k of a segment that begins at rate a and gains s a second is due after t seconds, where a·t + s·t²/2 = k. The
 * rates are intended ones: nothing that the server does moves a due time.
 */

/** Rates per second; times in milliseconds from the start of the run. */
export type Segment = { name: string; fromMs: number; toMs: number; fromRate: number; toRate: number };
/** A rate that holds instead of the planned one for a while. */
export type Spike = { atMs: number; forMs: number; rate: number };
/** A target to which the rate moves within a time; a time of 0 is a jump. */
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
  // This form of the root does not lose its digits when the rate hardly changes.
  return (2000 * k) / (fromRate + Math.sqrt(Math.max(0, fromRate * fromRate + 2 * gain * k)));
}

export class Pace {
  readonly #segments: readonly Segment[];
  /** Of each segment; not whole, so that a change of segments is no hiccup. */
  readonly #requests: Float64Array;
  #at = 0;
  /** How many requests of the present segment were due. */
  #k = 0;

  /** @param phase what there is of a request when it begins: parts of one plan take turns by it */
  constructor(segments: readonly Segment[], phase = 0) {
    this.#segments = segments;
    this.#k = phase;
    this.#requests = Float64Array.from(segments, requestsOf);
  }

  /** Place of the segment that the request of the last next() belongs to. */
  get segment(): number {
    return this.#at;
  }

  /**
   * When the requests were due that next() has yet to give, until a moment: at most `samples` moments in a segment, each with the
   * number of requests that it stands for.
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

  /** Milliseconds from the start at which one more request is due; Infinity after the last one. */
  next(): number {
    for (; this.#at < this.#segments.length; this.#at++) {
      const requests = this.#requests[this.#at] as number;
      if (this.#k < requests) {
        const segment = this.#segments[this.#at] as Segment;
        return segment.fromMs + msUntil(this.#k++, segment);
      }
      // What is left of a request is the first part of the next segment's first one.
      this.#k -= requests;
    }
    return Number.POSITIVE_INFINITY;
  }
}

export const rateText = (from: number, to: number): string =>
  from === to ? `${Math.round(to)}/s` : `${Math.round(from)} → ${Math.round(to)}/s`;

/** Segments of the stages; the first begins at `startRate`. */
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

/** What is left of a segment outside the spike. */
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

/** A spike replaces the plan while it lasts, and ends with it. */
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
