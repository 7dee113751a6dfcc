/** A summary as a person reads it in a terminal. */
import { number } from './load/show/figures.ts';
import { ratiosOf } from './ratios.ts';
import type { Figure, PeerSummary, Row, Summary, SystemSummary } from './summary.ts';

const of = ({ median }: Figure): string => number(median);
const spread = ({ raw }: Figure): string => (raw.length < 2 ? '' : `   (${raw.map(number).join(', ')})`);

const line = (label: string, text: string): string => `  ${label.padEnd(34)} ${text}`;
const costs = (cost: Record<string, Figure>): string =>
  Object.entries(cost)
    .map(([part, figure]) => `${part} ${of(figure)}`)
    .join(' · ');

/** CPU seconds of the worker are what an envelope costs anywhere; wall-clock rates are this machine's. */
export const perCore = ({ costUs, acceptedPerSec, answeredPerSec }: SystemSummary): number =>
  ((1e6 / costUs.worker.median) * acceptedPerSec.median) / answeredPerSec.median;

/** Where bytes decide the cost, not requests. */
const LARGE_MB_MIN = 0.25;

function perMegabyte({ costUs: { worker, processor }, requestMb }: SystemSummary): string[] {
  if (requestMb.median < LARGE_MB_MIN) return [];
  const ms = ({ median }: Figure): string => number(median / requestMb.median / 1000);
  return [line('CPU ms per MB', `worker ${ms(worker)} · processor ${ms(processor)}`)];
}

/** The bench's own starting and ending of processes takes less. */
const FOREIGN_CORES_MAX = 0.3;

function systemText(one: SystemSummary): string[] {
  const head = `${one.name}: ${one.title}`;
  if (one.problems.length > 0)
    return [head, ...one.problems.map((problem) => `  NO HEADLINE: ${problem}`), ''];
  return [
    head,
    line('accepted/s at saturation', `${of(one.acceptedPerSec)}${spread(one.acceptedPerSec)}`),
    ...(one.answeredPerSec.median > one.acceptedPerSec.median * 1.01
      ? [line('answered/s, refusals included', of(one.answeredPerSec))]
      : []),
    line('accepted/s per core of worker CPU', number(perCore(one))),
    line('worker busy at saturation', `${number(one.workerBusy.median * 100)} % of a core`),
    line(
      `latency at ${of(one.openRate)}/s, open loop`,
      `p50 ${of(one.p50Ms)} · p99 ${of(one.p99Ms)} · p99.9 ${of(one.p999Ms)} ms`,
    ),
    line('CPU µs per envelope, saturated', costs(one.costUs)),
    ...perMegabyte(one),
    line('CPU µs per envelope, at half', costs(one.openCostUs)),
    line('per envelope', `${of(one.redisCalls)} Redis calls · ${of(one.publishes)} publishes`),
    line(
      'processor drains',
      `${of(one.drainPerSec)} envelopes/s, at ${of(one.drainBrokerUs)} µs of the broker`,
    ),
    line('peak RSS, MiB', costs(one.peakRssMiB)),
    line('failures', `${one.failures}`),
    line('generator µs per request', of(one.generatorUs)),
    ...one.bottlenecks.map((why) => line('CAUTION', why)),
    ...(one.foreignCores.median > FOREIGN_CORES_MAX
      ? [
          line(
            'CAUTION',
            `other programs used ${of(one.foreignCores)} cores meanwhile${spread(one.foreignCores)}`,
          ),
        ]
      : []),
    '',
  ];
}

const peerText = (peer: PeerSummary): string[] =>
  peer.problems.length > 0
    ? [`peer ${peer.name}`, ...peer.problems.map((problem) => `  NO HEADLINE: ${problem}`), '']
    : [
        `peer ${peer.name}: one process`,
        line('accepted/s at saturation', `${of(peer.acceptedPerSec)}${spread(peer.acceptedPerSec)}`),
        line(
          'latency at half, open loop',
          `p50 ${of(peer.p50Ms)} · p99 ${of(peer.p99Ms)} · p99.9 ${of(peer.p999Ms)} ms`,
        ),
        line('CPU µs per envelope, saturated', costs(peer.costUs)),
        line('peak RSS, MiB', of(peer.peakRssMiB)),
        '',
      ];

const rowsText = (title: string, rows: readonly Row[]): string[] => {
  if (rows.length === 0) return [];
  const width = Math.max(...rows.map(({ name }) => name.length)) + 2;
  const cells = ({ figures }: Row): string =>
    Object.entries(figures)
      .map(([unit, figure]) => `${of(figure).padStart(10)} ${unit}`)
      .join('  ');
  return [title, ...rows.map((row) => `  ${row.name.padEnd(width)}${cells(row)}`), ''];
};

const ratiosText = (summary: Summary): string[] => {
  const lines = ratiosOf(summary).map(({ name, value, bound, wish, raw }) =>
    line(
      name,
      `${number(value).padEnd(8)} bound ${bound}, hoped for ${wish}${raw === '' ? '' : `   (${raw})`}`,
    ),
  );
  return lines.length > 0 ? ['one beside another', ...lines, ''] : [];
};

export function summaryText(summary: Summary): string {
  const { environment: e } = summary;
  return [
    `${e.cpu}, ${e.cores} cores, ${e.memoryGiB} GiB, ${e.kernel}; Node ${e.node}, Redis ${e.redis}, nats-server ${e.natsServer}`,
    `sluice ${e.sluice} (${e.commit}), ${e.date}; median of ${summary.rounds}, seed ${summary.seed}; everything on this machine`,
    '',
    ...summary.failedJobs.map((job) => `FAILED ${job}\n`),
    ...summary.system.flatMap(systemText),
    ...summary.peers.flatMap(peerText),
    ...summary.pairs.flatMap(({ name, problems }) =>
      problems.map((problem) => `NO HEADLINE: ${name}: ${problem}`),
    ),
    ...ratiosText(summary),
    ...rowsText('the speed of light here', summary.components),
    ...rowsText('micro, per operation', summary.micro),
  ].join('\n');
}
