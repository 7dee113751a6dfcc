/**
 * Latencies by stage, kind of envelope and status, as HDR histograms of microseconds that can be
 * added up.
 */
import {
  build,
  decodeFromCompressedBase64,
  encodeIntoCompressedBase64,
  type Histogram,
  type JsHistogram,
} from 'hdr-histogram-js';

/**
 * Used instead of a status when a request got no answer. NO_ANSWER: its connection broke.
 * TIMED_OUT: it was given up after the time-out.
 */
export const NO_ANSWER = 0;
export const TIMED_OUT = 1;

const LATENCY_US_MAX = 3_600_000_000;
const STATUSES = 1_000;
export const KINDS_MAX = 1_000;

export const newHistogram = (): Histogram =>
  build({
    bitBucketSize: 32,
    lowestDiscernibleValue: 1,
    highestTrackableValue: LATENCY_US_MAX,
    numberOfSignificantValueDigits: 3,
  });

/** Converts milliseconds to the whole microseconds of a histogram, cut at LATENCY_US_MAX. */
export const microseconds = (ms: number): number =>
  Math.min(LATENCY_US_MAX, Math.max(0, Math.round(ms * 1000)));

export const encodeHistogram = (histogram: Histogram): string => encodeIntoCompressedBase64(histogram);

/**
 * Reads the text that encodeHistogram() makes.
 * @throws when the text is no such histogram
 */
export function decodeHistogram(text: string): Histogram {
  const histogram = newHistogram();
  histogram.add(decodeFromCompressedBase64(text, 32, false));
  return histogram;
}

/** Yields each value of the histogram with its count. */
export function* histogramSteps(histogram: Histogram): Generator<[us: number, count: number]> {
  const iterator = (histogram as unknown as JsHistogram).recordedValuesIterator;
  iterator.reset();
  while (iterator.hasNext()) {
    const { valueIteratedTo, countAddedInThisIterationStep } = iterator.next();
    yield [valueIteratedTo, countAddedInThisIterationStep];
  }
}

export type Place = { stage: number; kind: number };
/** One histogram of a recording as JSON; `hdr` is HdrHistogram's compressed form in base64. */
export type Recorded = { stage: number; kind: string; status: number; hdr: string };

/**
 * Whether a request counts for the headline latency: one that succeeded, or one that timed out (at
 * the time that it took). Refusals and broken connections are left out. They are quick, so they
 * would make the figures of an overloaded server better.
 */
export const isHeadline = (status: number): boolean =>
  status === TIMED_OUT || (status >= 200 && status < 400);

export class Recording {
  readonly kinds: readonly string[];
  readonly #histograms = new Map<number, Histogram>();

  constructor(kinds: readonly string[]) {
    this.kinds = kinds;
  }

  static from(kinds: readonly string[], recorded: readonly Recorded[], stageOffset = 0): Recording {
    const recording = new Recording(kinds);
    for (const { stage, kind, status, hdr } of recorded)
      recording
        .#histogram({ stage: stage + stageOffset, kind: kinds.indexOf(kind) }, status)
        .add(decodeHistogram(hdr));
    return recording;
  }

  record(place: Place, status: number, us: number): void {
    this.#histogram(place, status).recordValue(us);
  }

  #histogram({ stage, kind }: Place, status: number): Histogram {
    const key = (stage * KINDS_MAX + kind) * STATUSES + status;
    let histogram = this.#histograms.get(key);
    if (!histogram) {
      histogram = newHistogram();
      this.#histograms.set(key, histogram);
    }
    return histogram;
  }

  #places(): (Place & { status: number; histogram: Histogram })[] {
    return [...this.#histograms].map(([key, histogram]) => ({
      status: key % STATUSES,
      kind: Math.floor(key / STATUSES) % KINDS_MAX,
      stage: Math.floor(key / STATUSES / KINDS_MAX),
      histogram,
    }));
  }

  /** Returns the sum of the histograms for whose place `matches` is true. */
  sum(matches: (place: Place & { status: number }) => boolean): Histogram {
    const sum = newHistogram();
    for (const place of this.#places()) if (matches(place)) sum.add(place.histogram);
    return sum;
  }

  add(other: Recording): void {
    for (const { kind, histogram, ...place } of other.#places()) {
      const name = other.kinds[kind] as string;
      this.#histogram({ ...place, kind: this.kinds.indexOf(name) }, place.status).add(histogram);
    }
  }

  /** Counts requests by status, in one stage or in all. */
  statuses(stage?: number): Map<number, number> {
    const counts = new Map<number, number>();
    for (const place of this.#places())
      if (stage === undefined || place.stage === stage)
        counts.set(place.status, (counts.get(place.status) ?? 0) + place.histogram.totalCount);
    return counts;
  }

  /** Returns the indexes of the kinds that occurred. */
  kindsSeen(): number[] {
    return [...new Set(this.#places().map(({ kind }) => kind))].sort((a, b) => a - b);
  }

  toRecorded(): Recorded[] {
    return this.#places().map(({ stage, kind, status, histogram }) => ({
      stage,
      kind: this.kinds[kind] as string,
      status,
      hdr: encodeHistogram(histogram),
    }));
  }
}
