/** Rules that end a run early. `--until` ends it as a success, `--abort-on` as a failure. */
import type { Second } from '../result.ts';

/** Called once a second. Returns why the run must end; undefined while it goes on. */
export type StopRule = (second: Second) => { reason: string; failed: boolean } | undefined;

const FIGURES = {
  p50: ({ p50Ms }: Second) => p50Ms,
  p90: ({ p90Ms }: Second) => p90Ms,
  p95: ({ p95Ms }: Second) => p95Ms,
  p99: ({ p99Ms }: Second) => p99Ms,
  'p99.9': ({ p999Ms }: Second) => p999Ms,
  failures: ({ ok, failed }: Second) => failed / Math.max(1, ok + failed),
} as const;
export type Condition = { figure: keyof typeof FIGURES; above: number; text: string };

/**
 * A condition ends the run once it has held for this many seconds in a row, because one slow second
 * is no reason.
 */
const SECONDS_ON_END = 3;

/**
 * Parses a condition such as `p99>500` (ms), the same for other percentiles, or `failures>1%`.
 * @returns undefined when the text is no such condition
 */
export function parseCondition(text: string): Condition | undefined {
  const [, figure, number, percent] =
    /^(p50|p90|p95|p99|p99\.9|failures)>(\d+(?:\.\d+)?)(%?)$/.exec(text) ?? [];
  if (figure === undefined || (figure === 'failures') !== (percent === '%')) return undefined;
  const above = figure === 'failures' ? Number(number) / 100 : Number(number);
  return { figure: figure as Condition['figure'], above, text };
}

export function abortOn(condition: Condition): StopRule {
  let seconds = 0;
  return (second) => {
    seconds = (FIGURES[condition.figure](second) ?? 0) > condition.above ? seconds + 1 : 0;
    if (seconds < SECONDS_ON_END) return undefined;
    return { reason: `${condition.text} for ${SECONDS_ON_END} seconds (--abort-on)`, failed: true };
  };
}

export function untilTime(at: Date): StopRule {
  return () =>
    Date.now() >= at.getTime() ? { reason: `it is ${at.toISOString()} (--until)`, failed: false } : undefined;
}

/** Combines rules. The first of them that wants to end the run decides the reason. */
export function firstOf(rules: readonly StopRule[]): StopRule | undefined {
  if (rules.length === 0) return undefined;
  return (second) => {
    // Every rule is called each second, because rules count seconds.
    const found = rules.map((rule) => rule(second));
    return found.find((end) => end !== undefined);
  };
}
