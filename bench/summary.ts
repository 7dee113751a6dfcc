/** Medians over rounds, with the raw values beside them. Pure: records in, summary out. */
import type { Environment } from './environment.ts';
import type { Usage } from './harness.ts';
import type { BenchRecord } from './records.ts';
import { median } from './statistics.ts';
import type { SystemRun } from './system/run.ts';

/** A median and what it was taken from. */
export type Figure = { median: number; raw: readonly number[] };

export type SystemSummary = {
  name: string;
  title: string;
  acceptedPerSec: Figure;
  /** Answers as expected per second; more than accepted only where refusals are expected. */
  answeredPerSec: Figure;
  openRate: Figure;
  p50Ms: Figure;
  p99Ms: Figure;
  p999Ms: Figure;
  /** CPU microseconds per answered envelope at saturation; the processor's from the drain. */
  costUs: Record<keyof Usage, Figure>;
  /** The same in open loop at half the rate, where batches are smaller. */
  openCostUs: Record<Exclude<keyof Usage, 'processor'>, Figure>;
  /** Megabytes (10^6 bytes) of a request at saturation. */
  requestMb: Figure;
  /** The broker's for handing an envelope to the processor. */
  drainBrokerUs: Figure;
  workerBusy: Figure;
  redisCalls: Figure;
  publishes: Figure;
  drainPerSec: Figure;
  peakRssMiB: Record<keyof Usage, Figure>;
  generatorUs: Figure;
  /** Cores that other programs used meanwhile, the busier phase of each run; absent in old records. */
  foreignCores: Figure;
  /** Requests that failed, of all rounds. */
  failures: number;
  /** With any of these there is no headline. */
  problems: readonly string[];
  /** Why figures may be the generator's. */
  bottlenecks: readonly string[];
};

export type PeerSummary = {
  name: string;
  acceptedPerSec: Figure;
  p50Ms: Figure;
  p99Ms: Figure;
  p999Ms: Figure;
  costUs: Record<'worker' | 'redis' | 'broker', Figure>;
  peakRssMiB: Figure;
  problems: readonly string[];
};
/** `ratio`, and the median cost of each side's bursts in CPU microseconds of the workers, by round. */
export type PairSummary = {
  name: string;
  ratio: Figure;
  firstUs: Figure;
  secondUs: Figure;
  problems: readonly string[];
};
/** A line of a table: what, and its figures by unit. */
export type Row = { name: string; figures: Record<string, Figure> };

export type Summary = {
  environment: Environment;
  rounds: number;
  seed: number;
  /** Jobs that found nothing: their rounds are missing among the others' figures. */
  failedJobs: readonly string[];
  /** Checksums of the workloads, by scenario. */
  workloads: Record<string, string>;
  system: readonly SystemSummary[];
  peers: readonly PeerSummary[];
  pairs: readonly PairSummary[];
  components: readonly Row[];
  micro: readonly Row[];
};

const MIB = 1024 * 1024;

type Of<B extends BenchRecord['bench']> = Extract<BenchRecord, { bench: B }>;
const ofBench = <B extends BenchRecord['bench']>(records: readonly BenchRecord[], bench: B): Of<B>[] =>
  records.filter((record): record is Of<B> => record.bench === bench);

function byName<T extends { name: string }>(records: readonly T[]): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const record of records) groups.set(record.name, [...(groups.get(record.name) ?? []), record]);
  return groups;
}

export function figure<T>(runs: readonly T[], read: (run: T) => number): Figure {
  const raw = runs.map((run) => Number(read(run).toPrecision(6)));
  return { median: median(raw), raw };
}

const perPart = (make: (part: keyof Usage) => Figure): Record<keyof Usage, Figure> => ({
  worker: make('worker'),
  redis: make('redis'),
  broker: make('broker'),
  processor: make('processor'),
});
const sum = (counts: Record<string, number>): number => Object.values(counts).reduce((a, b) => a + b, 0);

function summariseSystem(name: string, records: readonly Of<'system'>[]): SystemSummary {
  const runs = records.map(({ data }) => data);
  const of = (read: (run: SystemRun) => number): Figure => figure(runs, read);
  const answered = (run: SystemRun): number => Math.max(1, run.saturation.load.expectedInAll);
  const phases = runs.flatMap(({ saturation, open }) => [saturation, open]);
  return {
    name,
    title: records[0]?.title ?? '',
    acceptedPerSec: of((run) => (run.saturation.load.ratePerSec * run.saturation.accepted) / answered(run)),
    answeredPerSec: of((run) => run.saturation.load.ratePerSec),
    openRate: of((run) => run.open.load.ratePerSec),
    p50Ms: of((run) => run.open.load.latencyMs.p50 ?? Number.NaN),
    p99Ms: of((run) => run.open.load.latencyMs.p99 ?? Number.NaN),
    p999Ms: of((run) => run.open.load.latencyMs.p999 ?? Number.NaN),
    costUs: perPart((part) =>
      of((run) => (part === 'processor' ? run.drain.processorUs : run.saturation.costUs[part])),
    ),
    openCostUs: {
      worker: of((run) => run.open.costUs.worker),
      redis: of((run) => run.open.costUs.redis),
      broker: of((run) => run.open.costUs.broker),
    },
    requestMb: of((run) => run.saturation.load.sentBytes / answered(run) / 1e6),
    drainBrokerUs: of((run) => run.drain.brokerUs),
    workerBusy: of((run) => run.saturation.busy.worker),
    redisCalls: of((run) => sum(run.saturation.redisCalls) / answered(run)),
    publishes: of((run) => run.saturation.publishes / answered(run)),
    drainPerSec: of((run) => run.drain.envelopes / run.drain.seconds),
    peakRssMiB: perPart((part) => of((run) => run.peakRss[part] / MIB)),
    foreignCores: of((run) => Math.max(run.saturation.foreignCores ?? 0, run.open.foreignCores ?? 0)),
    generatorUs: of((run) => run.saturation.load.generator.cpuUsPerRequest),
    failures: phases.reduce((all, { load }) => all + load.failed, 0),
    problems: [...new Set(runs.flatMap(({ problems }) => problems))],
    bottlenecks: [...new Set(phases.flatMap(({ load }) => load.generator.bottleneck))],
  };
}

function summarisePeer(name: string, records: readonly Of<'peer'>[]): PeerSummary {
  const runs = records.map(({ data }) => data);
  return {
    name,
    acceptedPerSec: figure(runs, (run) => run.saturation.ratePerSec),
    p50Ms: figure(runs, (run) => run.open.latencyMs.p50 ?? Number.NaN),
    p99Ms: figure(runs, (run) => run.open.latencyMs.p99 ?? Number.NaN),
    p999Ms: figure(runs, (run) => run.open.latencyMs.p999 ?? Number.NaN),
    costUs: {
      worker: figure(runs, (run) => run.costUs.worker),
      redis: figure(runs, (run) => run.costUs.redis),
      broker: figure(runs, (run) => run.costUs.broker),
    },
    peakRssMiB: figure(runs, (run) => run.peakRssBytes / MIB),
    problems: [...new Set(runs.flatMap(({ problems }) => problems))],
  };
}

function summarisePair(name: string, records: readonly Of<'pair'>[]): PairSummary {
  const runs = records.map(({ data }) => data);
  return {
    name,
    ratio: figure(runs, ({ ratio }) => ratio),
    firstUs: figure(runs, ({ costUs }) => median(costUs.first)),
    secondUs: figure(runs, ({ costUs }) => median(costUs.second)),
    problems: [...new Set(runs.flatMap(({ problems }) => problems))],
  };
}

type RowRecord = Of<'component'> | Of<'micro'>;

/** The lines that one record of such a bench adds to. */
function linesOf(record: RowRecord): [name: string, values: Record<string, number>][] {
  if (record.bench === 'micro')
    return record.data.map((row) => [`${record.name}: ${row.name}`, { ns: row.nsPerOperation }]);
  if (record.name === 'uws') {
    const { load, serverUs } = record.data;
    const values = {
      'requests/s': load.ratePerSec,
      'server µs': serverUs,
      'generator µs': load.generator.cpuUsPerRequest,
    };
    return [[`bare uWebSockets.js, ${record.mix}`, values]];
  }
  if (record.name === 'redis-script')
    return record.data.map((row) => [
      `bare Redis script, pipelines of ${row.depth}`,
      { 'calls/s': row.callsPerSec, 'redis µs': row.redisUsPerCall, 'client µs': row.clientUsPerCall },
    ]);
  return record.data.map((row) => [
    `bare JetStream, ${row.envelopesPerMessage === 1 ? 'one message per envelope' : `frames of ${row.envelopesPerMessage}`}`,
    {
      'envelopes/s': row.envelopesPerSec,
      'MB/s': row.megabytesPerSec,
      'broker µs': row.brokerUsPerEnvelope,
      'client µs': row.clientUsPerEnvelope,
    },
  ]);
}

function summariseRows(records: readonly RowRecord[]): Row[] {
  const lines = records.flatMap(linesOf).map(([name, values]) => ({ name, values }));
  return [...byName(lines)].map(([name, runs]) => {
    const units = Object.keys(runs[0]?.values ?? {});
    return {
      name,
      figures: Object.fromEntries(
        units.map((unit) => [unit, figure(runs, ({ values }) => values[unit] ?? 0)]),
      ),
    };
  });
}

export function summarise(
  records: readonly BenchRecord[],
  context: { environment: Environment; seed: number },
): Summary {
  const system = ofBench(records, 'system');
  return {
    ...context,
    rounds: Math.max(0, ...records.map(({ round }) => round)),
    failedJobs: ofBench(records, 'failed').map(
      ({ round, name, data }) => `${name}, round ${round}: ${data.error}`,
    ),
    workloads: Object.fromEntries(system.map(({ name, data }) => [name, data.saturation.load.workload])),
    system: [...byName(system)].map(([name, runs]) => summariseSystem(name, runs)),
    peers: [...byName(ofBench(records, 'peer'))].map(([name, runs]) => summarisePeer(name, runs)),
    pairs: [...byName(ofBench(records, 'pair'))].map(([name, runs]) => summarisePair(name, runs)),
    components: summariseRows(ofBench(records, 'component')),
    micro: summariseRows(ofBench(records, 'micro')),
  };
}
