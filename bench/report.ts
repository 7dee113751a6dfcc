/** A run as files: raw.ndjson, summary.json, and report.html that opens offline. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { LoadResult } from './load/result.ts';
import { number } from './load/show/figures.ts';
import { ratiosOf } from './ratios.ts';
import { type BenchRecord, parseRecords, recordsToText } from './records.ts';
import { type Summary, summarise } from './summary.ts';
import { barPlot, escaped, linearTicks, linePlot, logTicks, type Series } from './svg.ts';
import { summaryText } from './text.ts';

const PERCENTILE_TICKS = [0, 50, 90, 99, 99.9, 99.99, 99.999];
const PERCENTILE_MAX = 99.999;
/** Nines, evenly spaced: 90 → 1, 99 → 2, 99.9 → 3. */
const nines = (percentile: number): number => -Math.log10(1 - Math.min(percentile, PERCENTILE_MAX) / 100);

type Named = { name: string; load: LoadResult };

/** The open-loop runs of the first round, and the peer's. */
function openRuns(records: readonly BenchRecord[]): Named[] {
  return records.flatMap((record): Named[] => {
    if (record.round !== 1) return [];
    if (record.bench === 'system') return [{ name: record.name, load: record.data.open.load }];
    return record.bench === 'peer' ? [{ name: `peer ${record.name}`, load: record.data.open }] : [];
  });
}
const saturatedRuns = (records: readonly BenchRecord[]): Named[] =>
  records.flatMap((record): Named[] => {
    if (record.bench === 'system' && record.name === 'canonical')
      return [{ name: `canonical, round ${record.round}`, load: record.data.saturation.load }];
    return record.bench === 'peer' && record.name.endsWith('canonical')
      ? [{ name: `peer, round ${record.round}`, load: record.data.saturation }]
      : [];
  });

function latencyPlot(runs: readonly Named[]): string {
  const series = runs.map(
    ({ name, load }): Series => ({
      name,
      points: load.latencyMs.points.map(
        ([percentile, ms]) => [nines(percentile), Math.max(ms, 0.01)] as const,
      ),
    }),
  );
  return linePlot({
    title: 'Latency by percentile, open loop at half of saturation',
    x: { label: 'percentile', ticks: PERCENTILE_TICKS.map((at) => [nines(at), `${at}`] as const) },
    y: {
      label: 'ms from the intended send time, logarithmic',
      ticks: logTicks(series.flatMap(({ points }) => points.map(([, y]) => y))),
      log: true,
    },
    series,
  });
}

function throughputPlot(runs: readonly Named[]): string {
  const series = runs.map(({ name, load }): Series => {
    // The last interval may be shorter than a second.
    const seconds = load.perSecond.slice(0, Math.floor(load.seconds));
    return { name, points: seconds.map(({ second, ok }) => [second, ok] as const) };
  });
  const last = Math.max(1, ...series.flatMap(({ points }) => points.map(([x]) => x)));
  return linePlot({
    title: 'Throughput over time at saturation',
    x: { label: 'second', ticks: Array.from({ length: last }, (_, i) => [i + 1, `${i + 1}`] as const) },
    y: {
      label: 'envelopes a second',
      ticks: linearTicks(series.flatMap(({ points }) => points.map(([, y]) => y))),
    },
    series,
  });
}

const PARTS = ['worker', 'redis', 'broker', 'processor'] as const;
function costPlot({ system, peers }: Summary): string {
  const bars = [
    ...system.map(({ name, costUs }) => ({ name, parts: PARTS.map((part) => costUs[part].median) })),
    ...peers.map(({ name, costUs }) => ({
      name: `peer ${name}`,
      parts: [costUs.worker.median, costUs.redis.median, costUs.broker.median, 0],
    })),
  ];
  // Megabytes per envelope cannot share an axis with kilobytes.
  const small = bars.filter(({ name }) => name !== 'large-uploads');
  return barPlot('CPU µs per envelope at saturation (a peer has no processor)', PARTS, small);
}

const cell = (value: string): string => `<td>${escaped(value)}</td>`;
function systemTable({ system, peers }: Summary): string {
  const heads = [
    'scenario',
    'accepted/s',
    'raw',
    'half rate: p50',
    'p99',
    'p99.9 ms',
    'worker µs',
    'Redis µs',
    'broker µs',
    'processor µs',
    'worker MiB',
    'failures',
    '',
  ];
  const rows = system.map((one) => {
    const headline = one.problems.length === 0;
    const show = (value: number): string => (headline ? number(value) : '–');
    const notes = [...one.problems, ...one.bottlenecks].join('; ');
    return [
      one.name,
      show(one.acceptedPerSec.median),
      one.acceptedPerSec.raw.map(number).join(' '),
      ...[
        one.p50Ms,
        one.p99Ms,
        one.p999Ms,
        one.costUs.worker,
        one.costUs.redis,
        one.costUs.broker,
        one.costUs.processor,
        one.peakRssMiB.worker,
      ].map(({ median }) => show(median)),
      `${one.failures}`,
      notes,
    ];
  });
  const peerRows = peers.map((peer) => [
    `peer ${peer.name}`,
    number(peer.acceptedPerSec.median),
    peer.acceptedPerSec.raw.map(number).join(' '),
    ...[peer.p50Ms, peer.p99Ms, peer.p999Ms, peer.costUs.worker, peer.costUs.redis, peer.costUs.broker].map(
      ({ median }) => number(median),
    ),
    '',
    number(peer.peakRssMiB.median),
    '',
    peer.problems.join('; '),
  ]);
  const body = [...rows, ...peerRows].map((row) => `<tr>${row.map(cell).join('')}</tr>`).join('\n');
  return `<table><tr>${heads.map((head) => `<th>${escaped(head)}</th>`).join('')}</tr>\n${body}</table>`;
}

const STYLE = `body{font-family:sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#222;background:#fff}svg{max-width:760px;width:100%;display:block;margin:1.5em 0}
table{border-collapse:collapse;font-size:13px}td,th{padding:3px 8px;border-bottom:1px solid #ddd;text-align:right}td:first-child,th:first-child{text-align:left}pre{background:#f5f5f5;padding:1em;overflow-x:auto;font-size:12px}`;

/** Figures by name, of one run: what two runs on one machine can be compared by. */
function comparable(summary: Summary): Map<string, number> {
  const { system } = summary;
  return new Map([
    ...ratiosOf(summary).map(({ name, value }) => [name, value] as const),
    ...system.map(({ name, costUs }) => [`${name}: worker µs`, costUs.worker.median] as const),
    ...system.map(({ name, acceptedPerSec }) => [`${name}: accepted/s`, acceptedPerSec.median] as const),
    ...system.map(({ name, p99Ms }) => [`${name}: p99 ms at half the rate`, p99Ms.median] as const),
  ]);
}

function besideTable(summary: Summary, earlier: Summary): string {
  const before = comparable(earlier);
  const rows = [...comparable(summary)].flatMap(([name, now]) => {
    const then = before.get(name);
    if (then === undefined || then === 0) return [];
    const cells = [name, number(then), number(now), `× ${(now / then).toFixed(2)}`];
    return [`<tr>${cells.map(cell).join('')}</tr>`];
  });
  const { date, commit, cpu, natsServer } = earlier.environment;
  return `<h2>Beside an earlier run</h2><p>${escaped(`${date}, commit ${commit}, ${cpu}, nats-server ${natsServer}.`)}</p>
<table><tr><th></th><th>then</th><th>now</th><th></th></tr>\n${rows.join('\n')}</table>`;
}

export function reportHtml(records: readonly BenchRecord[], summary: Summary, earlier?: Summary): string {
  const open = openRuns(records);
  const saturated = saturatedRuns(records);
  const { environment: e } = summary;
  return `<!doctype html>
<html lang="en"><meta charset="utf-8"><title>sluice benchmark ${escaped(e.date)}</title><style>${STYLE}</style>
<h1>sluice benchmark, ${escaped(e.date)}</h1>
<p>${escaped(`${e.cpu}, ${e.cores} cores, ${e.memoryGiB} GiB, ${e.kernel}. Node ${e.node}, Redis ${e.redis}, nats-server ${e.natsServer}. sluice ${e.sluice}, commit ${e.commit}. Medians of ${summary.rounds} rounds, seed ${summary.seed}.`)}</p>
<p>Generator, worker, Redis, broker and processor shared these cores. bench/README.md says what each figure means and does not.</p>
${systemTable(summary)}
${open.length > 0 ? latencyPlot(open) : ''}
${saturated.length > 0 ? throughputPlot(saturated) : ''}
${summary.system.length > 0 ? costPlot(summary) : ''}
${earlier ? besideTable(summary, earlier) : ''}
<h2>All figures</h2><pre>${escaped(summaryText(summary))}</pre></html>
`;
}

const summaryIn = (folder: string): Summary =>
  JSON.parse(readFileSync(join(folder, 'summary.json'), 'utf8')) as Summary;

/** Writes the three files into `folder`. @param beside the folder of an earlier run to compare with */
export function writeReport(
  folder: string,
  records: readonly BenchRecord[],
  summary: Summary,
  beside?: string,
): void {
  const earlier = beside === undefined ? undefined : summaryIn(beside);
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'raw.ndjson'), recordsToText(records));
  writeFileSync(join(folder, 'summary.json'), `${JSON.stringify(summary, undefined, 1)}\n`);
  writeFileSync(join(folder, 'report.html'), reportHtml(records, summary, earlier));
}

/** Makes summary and report anew from the raw lines of a folder and the machine that its summary names. */
export function rewriteReport(folder: string, beside?: string): Summary {
  const records = parseRecords(readFileSync(join(folder, 'raw.ndjson'), 'utf8'));
  const { environment, seed } = summaryIn(folder);
  const summary = summarise(records, { environment, seed });
  writeReport(folder, records, summary, beside);
  return summary;
}
