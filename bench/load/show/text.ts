/** A result as a terminal shows it. */
import type { RunDocument } from '../document.ts';
import type { Knee } from '../pace/knee.ts';
import type { LoadResult } from '../result.ts';
import { verificationText } from '../verify/verify.ts';
import { number } from './figures.ts';

const counts = (of: Record<string, number>): string =>
  Object.entries(of)
    .map(([name, count]) => `${name}: ${count}`)
    .join(', ') || 'none';

function stageLines({ stages }: LoadResult): string[] {
  if (stages.length < 2) return [];
  const width = Math.max(...stages.map(({ name }) => name.length));
  return stages.map(
    ({ name, ok, failed, fromMs, toMs, latencyMs: l }) =>
      `  ${name.padEnd(width)}  ${number((ok / Math.max(1, toMs - fromMs)) * 1000).padStart(8)}/s  p50 ${number(l.p50)}  p99 ${number(l.p99)}  max ${number(l.max)} ms${failed > 0 ? `  failed ${failed}` : ''}`,
  );
}

export function kneeText({ lastGoodRate, firstBadRate, steps }: Knee): string {
  const bad = steps.filter(({ good }) => !good).at(-1);
  if (lastGoodRate === undefined)
    return `knee: not even ${steps[0]?.rate}/s was good: ${bad?.why.join('; ')}`;
  const beyond =
    firstBadRate === undefined
      ? `the search ended there: ${bad?.why.join('; ') ?? 'it was stopped'}`
      : `${number(firstBadRate)}/s was not: ${bad?.why.join('; ')}`;
  return `knee: ${number(lastGoodRate)}/s was good, ${beyond}`;
}

export function loadText(result: LoadResult): string {
  const { latencyMs: l, generator: g } = result;
  const rate =
    result.loop === 'open' ? `open loop, up to ${number(result.targetRate ?? 0)}/s wanted` : 'closed loop';
  return [
    `${rate}, ${result.connections} connections, ${number(result.seconds)} s, workload ${result.workload}`,
    `answered as expected ${number(result.ratePerSec)}/s (${result.expected}), failed ${result.failed} (${counts(result.failures)}), statuses ${counts(result.statuses)}`,
    `latency ms: mean ${number(l.mean)}  p50 ${number(l.p50)}  p90 ${number(l.p90)}  p95 ${number(l.p95)}  p99 ${number(l.p99)}  p99.9 ${number(l.p999)}  max ${number(l.max)}${result.loop === 'open' ? ', from the intended send time' : ''}, refusals left out`,
    ...stageLines(result),
    `generator: ${number(g.cpuUsPerRequest)} µs CPU per request, ${number(g.busy * 100)} % of a core, late by p50 ${number(g.lateP50Ms)} p99 ${number(g.lateP99Ms)} ms`,
    ...g.bottleneck.map((why) => `CAUTION: ${why}; the figures are the generator's, not the server's`),
    ...(result.stopped ? [`ended early: ${result.stopped.reason}`] : []),
  ].join('\n');
}

export function documentText(document: RunDocument): string {
  return [
    loadText(document),
    ...(document.knee ? [kneeText(document.knee)] : []),
    ...(document.verification ? [verificationText(document.verification)] : []),
  ].join('\n');
}
