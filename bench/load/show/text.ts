/** Makes the text of a result for a terminal. */
import type { RunDocument } from '../document.ts';
import type { Knee } from '../pace/knee.ts';
import type { LoadResult } from '../result.ts';
import { NO_HEADERS } from '../verify/ledger.ts';
import { verificationText } from '../verify/verify.ts';
import { number } from './figures.ts';

export const counts = (of: Record<string, number>): string =>
  Object.entries(of)
    .map(([name, count]) => `${name}: ${count}`)
    .join(', ') || 'none';

function stageLines({ stages }: LoadResult): string[] {
  if (stages.length < 2) return [];
  const width = Math.max(...stages.map(({ name }) => name.length));
  return stages.map(
    ({ name, ratePerSec, late, failed, latencyMs: l }) =>
      `  ${name.padEnd(width)}  ${number(ratePerSec).padStart(8)}/s  p50 ${number(l.p50)}  p99 ${number(l.p99)}  max ${number(l.max)} ms${late > 0 ? `  ${late} after its end` : ''}${failed > 0 ? `  failed ${failed}` : ''}`,
  );
}

/** Shares of late and of waiting requests above which a caution is shown before the figures. */
const [LATE_SHARE, WAITED_SHARE] = [0.03, 0.05];

/** Returns the cautions that a reader should know before the figures, as sentences. */
export function cautionsOf(result: LoadResult): string[] {
  const { generator, late, waited, expected, failed, connections, waitMs: wait, serviceMs: service } = result;
  const cautions = generator.bottleneck.map(
    (why) => `${why}; the figures are the generator's, not the server's`,
  );
  if (late > LATE_SHARE * expected)
    cautions.push(`${late} of ${expected} expected answers came after the end: the server did not keep up`);
  const share = waited / Math.max(1, expected + failed);
  if (share > WAITED_SHARE)
    cautions.push(
      `${Math.round(share * 100)} % of the requests found all ${connections} connections busy and waited for one (p50 ${number(wait.p50)}, p99 ${number(wait.p99)} ms); the server took p50 ${number(service.p50)}, p99 ${number(service.p99)} ms from the sending. More --connections tell which of the two is the limit`,
    );
  return cautions;
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

/** Whether no 200 had a header of sluice, so that nothing says whether requests are stored. */
export const saysNothingOfStores = ({ unstored, statuses }: LoadResult): boolean =>
  unstored[NO_HEADERS] !== undefined && unstored[NO_HEADERS] === statuses['200'];

function unstoredLine(result: LoadResult): string[] {
  const told = Object.values(result.unstored).reduce((sum, count) => sum + count, 0);
  if (told === 0) return [];
  if (saysNothingOfStores(result))
    return [
      `the server does not say what it stores: none of its ${told} answers 200 has usage headers (--verify-with asks any server)`,
    ];
  return [`told 200 and not stored: ${told} (${counts(result.unstored)})`];
}

export function loadText(result: LoadResult): string {
  const { latencyMs: l, generator: g, waitMs: wait, serviceMs: service } = result;
  const rate =
    result.loop === 'open' ? `open loop, up to ${number(result.targetRate ?? 0)}/s wanted` : 'closed loop';
  return [
    `${rate}, ${result.connections} connections, ${number(result.seconds)} s, workload ${result.workload}`,
    `answered as expected ${number(result.ratePerSec)}/s (${result.answered}${result.late > 0 ? `, and ${result.late} after the end` : ''}), failed ${result.failed} (${counts(result.failures)}), statuses ${counts(result.statuses)}`,
    ...unstoredLine(result),
    `latency ms: mean ${number(l.mean)}  p50 ${number(l.p50)}  p90 ${number(l.p90)}  p95 ${number(l.p95)}  p99 ${number(l.p99)}  p99.9 ${number(l.p999)}  max ${number(l.max)}${result.loop === 'open' ? ', from the intended send time' : ''}, refusals left out`,
    `of these waited for a connection p50 ${number(wait.p50)} p99 ${number(wait.p99)}, from sending to answer p50 ${number(service.p50)} p99 ${number(service.p99)} ms`,
    ...stageLines(result),
    `generator: ${number(g.cpuUsPerRequest)} µs CPU per request, ${number(g.busy * 100)} % of a core, late by p50 ${number(g.lateP50Ms)} p99 ${number(g.lateP99Ms)} ms`,
    ...cautionsOf(result).map((why) => `CAUTION: ${why}`),
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
