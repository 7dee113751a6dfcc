/** Rules that end a run before its time: `--until` (as wanted) and `--abort-on` (as failed). */
import type { Second } from '../result.ts';

/** Asked once a second. */
export type StopRule = (second: Second) => { reason: string; failed: boolean } | undefined;

export type Condition = { figure: 'p50' | 'p99' | 'failures'; above: number; text: string };

/** A condition must hold for so many seconds on end: one slow second is no reason. */
const SECONDS_ON_END = 3;

/** `p99>500` (ms), `p50>20`, `failures>1%`. @returns undefined when it is none of these */
export function parseCondition(text: string): Condition | undefined {
  const [, figure, number, percent] = /^(p50|p99|failures)>(\d+(?:\.\d+)?)(%?)$/.exec(text) ?? [];
  if (figure === undefined || (figure === 'failures') !== (percent === '%')) return undefined;
  const above = figure === 'failures' ? Number(number) / 100 : Number(number);
  return { figure: figure as Condition['figure'], above, text };
}

function figureOf({ ok, failed, p50Ms, p99Ms }: Second, figure: Condition['figure']): number {
  if (figure === 'p50') return p50Ms;
  return figure === 'p99' ? p99Ms : failed / Math.max(1, ok + failed);
}

export function abortOn(condition: Condition): StopRule {
  let seconds = 0;
  return (second) => {
    seconds = figureOf(second, condition.figure) > condition.above ? seconds + 1 : 0;
    if (seconds < SECONDS_ON_END) return undefined;
    return { reason: `${condition.text} for ${SECONDS_ON_END} seconds (--abort-on)`, failed: true };
  };
}

export function untilRequests(wanted: number): StopRule {
  let answered = 0;
  return ({ ok, failed }) => {
    answered += ok + failed;
    return answered >= wanted
      ? { reason: `${answered} requests were answered (--until)`, failed: false }
      : undefined;
  };
}

export function untilTime(at: Date): StopRule {
  return () =>
    Date.now() >= at.getTime() ? { reason: `it is ${at.toISOString()} (--until)`, failed: false } : undefined;
}

/** The first rule that ends the run. */
export function firstOf(rules: readonly StopRule[]): StopRule | undefined {
  if (rules.length === 0) return undefined;
  return (second) => {
    // Every rule sees every second.
    const found = rules.map((rule) => rule(second));
    return found.find((end) => end !== undefined);
  };
}
