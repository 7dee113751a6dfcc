/**
 * One project attacks, another one works: `npm run bench -- isolation [--seconds N] [--only PART] [--sink postgres|URL] [--processor beside|apart] [--out FILE]`. A row
 * for each attack: the other project's p99 while it is quiet and while the attack goes on (medians of windows that take turns), its answers,
 * how many of its accepted items are stored and how long after their answers, the most memory of the processor, and by how much streams and
 * sink grew.
 * Fails when any of its requests failed, when an item is missing, when its p99 doubled, when an item was stored more than two seconds later
 * than the latest quiet one, or when the processor took a gibibyte.
 *
 * With `--processor apart` the processor, and PostgreSQL if this bench started it, run only when nobody else wants a core: one machine comes no
 * nearer to a processor on a machine of its own. The time until an item is stored is then an upper bound.
 */
import { appendFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { ensureServers } from '../../src/commands/dev/install.ts';
import { hostEnvironment } from '../../src/config.ts';
import { FILTER_NAMES } from '../../src/lib/filter-names.ts';
import { SCRUBS } from '../../src/stream/frame.ts';
import { TestPostgres } from '../../test/support/postgres.ts';
import { describeEnvironment } from '../environment.ts';
import { startFresh } from '../fresh.ts';
import { Harness, OWN_DIST, type Part, type Usage } from '../harness.ts';
import { Tally } from '../hostile/asking.ts';
import { runsFirst, stepsBack, takePlaces } from '../hostile/beside.ts';
import { HostileWorker, pathOf } from '../hostile/worker.ts';
import { UsageError } from '../load/command/values.ts';
import { descendantsOf } from '../processes.ts';
import { median } from '../statistics.ts';
import type { Target } from '../workload.ts';
import { type Isolated, isolated } from './attacks.ts';
import { ndjsonView, postgresView, type SinkView } from './stored.ts';
import type { Testimony } from './witness.ts';

const MIB = 1024 * 1024;
/** As `sluice dev` has it: an attacker who fills it does so within seconds. */
const STREAM_MAX_BYTES = 256 * MIB;
const EVENTS_PER_SECOND = 100;
const UPLOADS_PER_SECOND = 2;
const BEGINS_MS = 500;
const DRAIN_MS = 60_000;
const RATIO_MAX = 2;
/** A p99 of fewer events is a matter of a few of them, and no reason for a verdict. */
const P99_EVENTS_MIN = 1_000;
const STORED_LATER_MS_MAX = 2_000;
/** Quiet and attacked windows take turns: a burst of other work on the machine then meets one window, and not the median. */
const TURNS = 3;
/** While the processor stands still, the other project's own uploads fill its share of the stream in some 40 s. */
const STOPPED_MS_MAX = 20_000;
const PROCESSOR_BYTES_MAX = 1024 * MIB;

type Scene = { harness: Harness; worker: HostileWorker; sink: SinkView; attacker: Target; other: Target };
type Row = {
  name: string;
  quiet: Testimony;
  attacked: Testimony;
  /** Of each turn, quiet → attacked. */
  p99s: string;
  attacker: string;
  missing: number;
  /** How long after its answer an event was stored, at most, ms. */
  storedMs: { quiet: number; attacked: number };
  processorBytes: number;
  /** CPU under attack, as shares of a core; the median of the turns. */
  cpu: Usage;
  /** How much more the disk holds at the end of the attack. */
  grownBytes: number;
};

async function witness({ worker, other }: Scene, ms: number): Promise<Testimony> {
  const fresh = startFresh('isolationWitness', {
    port: worker.port,
    path: pathOf(other),
    ms,
    eventsPerSecond: EVENTS_PER_SECOND,
    uploadsPerSecond: UPLOADS_PER_SECOND,
    uploadBytes: MIB,
  });
  runsFirst(fresh.pid);
  try {
    return await fresh.result;
  } finally {
    await fresh.end();
  }
}

/** How long it took until the sink had each of these events. */
function delaysOf(accepted: Testimony['accepted'], storedAt: ReadonlyMap<string, number>): number[] {
  return accepted.flatMap(({ id, at }) => {
    const stored = storedAt.get(id);
    return stored === undefined ? [] : [stored - at];
  });
}

const sharesOf = (after: Usage, before: Usage, ms: number): Usage => {
  const share = (part: Part): number => (after[part] - before[part]) / 1000 / ms;
  return {
    worker: share('worker'),
    redis: share('redis'),
    broker: share('broker'),
    processor: share('processor'),
  };
};

type Turn = {
  quiet: Testimony;
  attacked: Testimony;
  attacker: Tally;
  cpu: Usage;
  /** What streams and sink hold when the attack ends. */
  bytesAfter: number;
};

const diskBytes = async ({ harness, sink }: Scene): Promise<number> =>
  harness.streamBytes() + (await sink.bytes());

/** A quiet window, then one under attack of twice the length, and then a rest until everything is stored. */
async function turnOf(scene: Scene, attack: Isolated, ms: number): Promise<Turn> {
  const { harness, worker, attacker } = scene;
  const quiet = await witness(scene, ms / 2);
  if (attack.withoutProcessor) harness.signalProcessor('SIGSTOP');
  const under = attack.run(worker.port, pathOf(attacker), ms + 2 * BEGINS_MS);
  await new Promise((resolve) => setTimeout(resolve, BEGINS_MS));
  const cpuBefore = harness.cpu();
  const attackedFrom = performance.now();
  const attacked = await witness(scene, ms);
  const cpu = sharesOf(harness.cpu(), cpuBefore, performance.now() - attackedFrom);
  const answers = await under;
  const bytesAfter = await diskBytes(scene);
  if (attack.withoutProcessor) harness.signalProcessor('SIGCONT');
  await worker.idle();
  await harness.drained(DRAIN_MS);
  return { quiet, attacked, attacker: answers, cpu, bytesAfter };
}

function summed(counts: readonly Iterable<[kind: string, count: number]>[]): Tally {
  const tally = new Tally();
  for (const some of counts) for (const [kind, count] of some) tally.add(kind, count);
  return tally;
}

/** One testimony of several: the medians of their percentiles, and the sums of the rest. */
function joined(testimonies: readonly Testimony[]): Testimony {
  const medianOf = (figure: 'p50' | 'p99'): number => median(testimonies.map((one) => one[figure]));
  const sumOf = (kind: 'events' | 'uploads'): Record<string, number> =>
    Object.fromEntries(summed(testimonies.map((one) => Object.entries(one[kind]))).counts);
  return {
    p50: medianOf('p50'),
    p99: medianOf('p99'),
    events: sumOf('events'),
    uploads: sumOf('uploads'),
    uploadMsMax: Math.max(...testimonies.map(({ uploadMsMax }) => uploadMsMax)),
    accepted: testimonies.flatMap(({ accepted }) => accepted),
  };
}

async function rowOf(scene: Scene, attack: Isolated, ms: number): Promise<Row> {
  const { harness, sink } = scene;
  const before = await diskBytes(scene);
  harness.forgetPeaks();
  const turns: Turn[] = [];
  const [count, length] = attack.withoutProcessor ? [1, Math.min(ms, STOPPED_MS_MAX)] : [TURNS, ms / TURNS];
  while (turns.length < count) turns.push(await turnOf(scene, attack, length));
  const quiet = joined(turns.map((turn) => turn.quiet));
  const attacked = joined(turns.map((turn) => turn.attacked));
  const accepted = [...quiet.accepted, ...attacked.accepted];
  const storedAt = await sink.storedAt(accepted.map(({ id }) => id));
  const latest = ({ accepted }: Testimony): number => Math.max(0, ...delaysOf(accepted, storedAt));
  const cpuOf = (part: Part): number => median(turns.map(({ cpu }) => cpu[part]));
  return {
    name: attack.name,
    quiet,
    attacked,
    p99s: turns.map((turn) => `${turn.quiet.p99.toFixed(1)} → ${turn.attacked.p99.toFixed(1)}`).join(', '),
    attacker: `${summed(turns.map(({ attacker }) => attacker.counts))}`,
    missing: accepted.length - storedAt.size,
    storedMs: { quiet: latest(quiet), attacked: attack.withoutProcessor ? 0 : latest(attacked) },
    processorBytes: harness.peakRss().processor,
    cpu: {
      worker: cpuOf('worker'),
      redis: cpuOf('redis'),
      broker: cpuOf('broker'),
      processor: cpuOf('processor'),
    },
    grownBytes: Math.max(...turns.map(({ bytesAfter }) => bytesAfter)) - before,
  };
}

const text = (counts: Record<string, number>): string =>
  Object.entries(counts)
    .map(([kind, count]) => `${count} × ${kind}`)
    .join(', ');
const mib = (bytes: number): string => (bytes / MIB).toFixed(0);
const countOf = ({ events }: Testimony): number =>
  Object.values(events).reduce((sum, count) => sum + count, 0);
const isAll200 = (counts: Record<string, number>): boolean =>
  Object.keys(counts).every((kind) => kind === '200');

export function problemsOf(row: Row): string[] {
  const { name, quiet, attacked, missing, storedMs, processorBytes } = row;
  const problems: string[] = [];
  if (!isAll200(attacked.events))
    problems.push(`${name}: events of the other project: ${text(attacked.events)}`);
  if (!isAll200(attacked.uploads))
    problems.push(`${name}: uploads of the other project: ${text(attacked.uploads)}`);
  if (missing > 0) problems.push(`${name}: ${missing} accepted items are not stored`);
  const isEnough = Math.min(countOf(quiet), countOf(attacked)) >= P99_EVENTS_MIN;
  if (isEnough && attacked.p99 > RATIO_MAX * quiet.p99)
    problems.push(`${name}: p99 ${attacked.p99.toFixed(1)} ms, quiet ${quiet.p99.toFixed(1)} ms`);
  const later = storedMs.attacked - storedMs.quiet;
  if (later > STORED_LATER_MS_MAX)
    problems.push(`${name}: stored ${(later / 1000).toFixed(1)} s later than while it is quiet`);
  if (processorBytes > PROCESSOR_BYTES_MAX)
    problems.push(`${name}: the processor took ${mib(processorBytes)} MiB`);
  return problems;
}

function lineOf(row: Row): string {
  const { name, quiet, attacked, p99s, attacker, missing, storedMs, processorBytes, cpu, grownBytes } = row;
  const seconds = (value: number): string => (value / 1000).toFixed(1);
  const ms = (value: number): string => value.toFixed(1).padStart(8);
  const figures = `${ms(quiet.p50)} ${ms(quiet.p99)} |${ms(attacked.p50)} ${ms(attacked.p99)}  × ${(attacked.p99 / quiet.p99).toFixed(2)}`;
  const stored = attacked.accepted.length + quiet.accepted.length - missing;
  return [
    `${name.padEnd(24)} ${figures}`,
    `${''.padEnd(24)} p99 by turn: ${p99s}`,
    `${''.padEnd(24)} events ${text(attacked.events)}; uploads ${text(attacked.uploads)}, at most ${attacked.uploadMsMax.toFixed(0)} ms; ${stored} stored, ${missing} missing`,
    `${''.padEnd(24)} stored after at most ${seconds(storedMs.quiet)} s quiet, ${seconds(storedMs.attacked)} s attacked; processor ${mib(processorBytes)} MiB; disk + ${mib(grownBytes)} MiB`,
    `${''.padEnd(24)} of a core: ${Object.entries(cpu)
      .map(([part, share]) => `${part} ${(share * 100).toFixed(0)} %`)
      .join(', ')}`,
    `${''.padEnd(24)} attacker: ${attacker}`,
  ].join('\n');
}

const TABLE_HEAD = [
  '| Attack | p99, quiet → attacked | Stored after at most, quiet → attacked | Processor | Disk | Answers to the attacker |',
  '|---|---|---|---|---|---|',
];

/** A row of bench/hostile/README.md. */
function tableLineOf({ name, quiet, attacked, storedMs, processorBytes, grownBytes, attacker }: Row): string {
  const seconds = (value: number): string => (value / 1000).toFixed(1);
  const p99 = `${quiet.p99.toFixed(1)} → ${attacked.p99.toFixed(1)} ms, × ${(attacked.p99 / quiet.p99).toFixed(1)}`;
  const stored = `${seconds(storedMs.quiet)} → ${seconds(storedMs.attacked)} s`;
  const answers = attacker.replaceAll(/(\d+) (\d{3})/g, '$1 × $2').replaceAll(' · ', ', ');
  const cells = [name, p99, stored, `${mib(processorBytes)} MiB`, `+ ${mib(grownBytes)} MiB`, answers];
  return `| ${cells.join(' | ')} |`;
}

/** @returns a line that says which of them share the cores with ingest */
function processorPlace(place: string, pids: readonly number[]): string {
  if (place === 'beside') return 'the processor competes for the cores';
  const isApart = pids.every((pid) => stepsBack(pid));
  return isApart
    ? 'the processor runs when nobody else wants a core; "stored after" is an upper bound'
    : 'the processor competes for the cores: chrt could not set it apart';
}

/** @returns exit status: 1 when the other project suffered */
export async function isolationCommand(args: string[]): Promise<number> {
  const { values } = parseArgs({
    args,
    options: {
      seconds: { type: 'string', default: '20' },
      only: { type: 'string', default: '' },
      sink: { type: 'string' },
      processor: { type: 'string', default: 'beside' },
      out: { type: 'string' },
    },
  });
  if (!['beside', 'apart'].includes(values.processor))
    throw new UsageError(`--processor is beside or apart, not ${values.processor}`);
  const bins = ensureServers(hostEnvironment(), (line) => process.stderr.write(`${line}\n`));
  const { cpu, cores, commit } = describeEnvironment(bins);
  const say = (line: string): void => {
    process.stdout.write(`${line}\n`);
    if (values.out !== undefined) appendFileSync(values.out, `${line}\n`);
  };
  const postgres =
    values.sink === 'postgres'
      ? await TestPostgres.start({ settings: { track_commit_timestamp: 'on' } })
      : undefined;
  const sinkUrl = postgres?.url ?? values.sink;
  const harness = await Harness.start({
    dist: OWN_DIST,
    bins,
    streamMaxBytes: STREAM_MAX_BYTES,
    sink: sinkUrl,
  });
  try {
    await harness.startProcessor();
    const base = { plan: 'Platform', overage: false, allowedOrigins: [], filters: FILTER_NAMES } as const;
    const limited = { ...base, rateLimit: 600 };
    const scrubbed = { ...base, scrub: SCRUBS };
    const targets = await harness.createProjects([base, base, limited, scrubbed] as never);
    const [attacker, other, bounded, scrubbing] = targets as [Target, Target, Target, Target];
    const attackers = { limited: bounded, scrubbed: scrubbing };
    const worker = new HostileWorker();
    const sink = sinkUrl ? await postgresView(sinkUrl) : ndjsonView(worker.sinkDir);
    const scene = { harness, worker, sink, attacker, other };
    say(`isolation (${cpu}, ${cores} cores, ${commit}, everything on this machine)`);
    takePlaces();
    const server = postgres ? [postgres.pid, ...descendantsOf(postgres.pid)] : [];
    say(processorPlace(values.processor, [...harness.pids().processor, ...server]));
    say(
      `other: ${EVENTS_PER_SECOND} events and ${UPLOADS_PER_SECOND} uploads of 1 MiB a second, every other one a recording; the attacker runs when nobody else wants a core`,
    );
    say(`${''.padEnd(24)} quiet p50      p99 | attacked p50  p99, ms`);
    await witness(scene, 3_000);
    const problems: string[] = [];
    let isShort = false;
    const table = [...TABLE_HEAD];
    for (const attack of isolated().filter(({ name }) => name.includes(values.only))) {
      const who = attack.by ? attackers[attack.by] : attacker;
      const row = await rowOf({ ...scene, attacker: who }, attack, Number(values.seconds) * 1000);
      say(lineOf(row));
      isShort ||= countOf(row.quiet) < P99_EVENTS_MIN;
      problems.push(...problemsOf(row));
      table.push(tableLineOf(row));
    }
    say(table.join('\n'));
    await sink.close();
    if (isShort) say(`no verdict on p99: it needs ${P99_EVENTS_MIN} events, quiet too (--seconds 20)`);
    say(problems.length === 0 ? 'holds' : ['DOES NOT HOLD', ...problems].join('\n'));
    return problems.length === 0 ? 0 : 1;
  } finally {
    await harness.stop();
    await postgres?.close();
  }
}
