/**
 * Very many projects: `npm run bench -- projects [--projects 1000000] [--restarts 3] [--ref REF]`. Prints what it measured; fails when
 * a bound does not hold.
 */
import { parseArgs } from 'node:util';
import { ensureServers } from '../../src/commands/dev/install.ts';
import { hostEnvironment } from '../../src/config.ts';
import { buildRef } from '../compare.ts';
import { describeEnvironment } from '../environment.ts';
import { startFresh } from '../fresh.ts';
import { type IngestResult, runIngest, WATCHED_MS } from './ingest.ts';
import { LEAVE_SUBJECT, type ReplicaResult } from './replica.ts';
import { Stage, until } from './stage.ts';
import type { Turns } from './turns.ts';

const WORKERS = 2;
const PROJECTS_MAX = 5_000_000;
const RESTARTS_MAX = 10;
const LOADED_MS_MAX = 300_000;
const CHANGED_MS_MAX = 120_000;

/** What has to hold with a million. */
const BOUNDS = {
  readyMs: 60_000,
  turnCpuMs: 50,
  bytesPerProject: 700,
  changeMs: 5_000,
  workersLost: 0,
} as const;

type Replicas = { results: ReplicaResult[]; awayMs: number[]; consumers: number[] };

/** Two replicas at once, as two workers would be. */
async function runReplicas(
  stage: Stage,
  options: { dist: string; projects: number; restarts: number },
): Promise<Replicas> {
  const { natsUrl } = stage;
  const replicas = Array.from({ length: WORKERS }, () => startFresh('replica', { ...options, natsUrl }));
  const [awayMs, consumers]: [number[], number[]] = [[], []];
  const failed = Promise.race(replicas.map(async ({ result }) => void (await result)));
  const step = (n: number, ms: number): Promise<void> =>
    Promise.race([until(`step ${n} of the replicas`, ms, () => stage.said(`${n}`) === WORKERS), failed]);
  try {
    await step(0, LOADED_MS_MAX);
    consumers.push(await stage.consumers());
    for (let n = 1; n <= options.restarts; n++) {
      awayMs.push(await stage.restart(n));
      await step(n, CHANGED_MS_MAX);
      await new Promise((resolve) => setTimeout(resolve, WATCHED_MS));
      consumers.push(await stage.consumers());
    }
    stage.link.connection.publish(LEAVE_SUBJECT);
    return { results: await Promise.all(replicas.map(({ result }) => result)), awayMs, consumers };
  } finally {
    await Promise.all(replicas.map((replica) => replica.end()));
  }
}

const seconds = (ms: number): string => `${(ms / 1000).toFixed(1)} s`;
const list = (values: readonly number[], text: (value: number) => string): string =>
  values.map(text).join(', ');
const turnsText = (turns: readonly Turns[]): string =>
  list(
    turns.map(({ cpuMs }) => cpuMs),
    (ms) => `${ms.toFixed(0)} ms`,
  );

function report({ results, awayMs, consumers }: Replicas, ingest: IngestResult): string[] {
  const walls = results.flatMap(({ loading, afterRestarts }) => [loading, ...afterRestarts]);
  return [
    `a copy loaded in            ${list(
      results.map(({ loadMs }) => loadMs),
      seconds,
    )}`,
    `  longest turn, CPU         ${turnsText(results.map(({ loading }) => loading))}`,
    `  memory per project        ${list(
      results.map(({ bytesPerProject }) => bytesPerProject),
      (bytes) => `${bytes.toFixed(0)} bytes`,
    )}`,
    `broker away for             ${list(awayMs, seconds)}`,
    `  longest turn, CPU         ${turnsText(results.flatMap(({ afterRestarts }) => afterRestarts))}`,
    `  a change came after       ${list(
      results.flatMap(({ changesMs }) => changesMs),
      seconds,
    )}`,
    `  consumers of the bucket   ${consumers.join(', ')}`,
    `longest turn of all, with what others took of the core: ${Math.max(...walls.map(({ wallMs }) => wallMs)).toFixed(0)} ms`,
    `sluice ingest, ${WORKERS} workers    ready in ${seconds(ingest.readyMs)}, ${ingest.workersLost} workers lost, ${ingest.consumers} consumers, ${ingest.peakMib.toFixed(0)} MiB at most in a worker`,
  ];
}

/** Which bounds do not hold. */
function broken({ results, consumers }: Replicas, ingest: IngestResult): string[] {
  const worst = {
    readyMs: Math.max(ingest.readyMs, ...results.map(({ loadMs }) => loadMs)),
    turnCpuMs: Math.max(
      ...results.flatMap(({ loading, afterRestarts }) => [
        loading.cpuMs,
        ...afterRestarts.map(({ cpuMs }) => cpuMs),
      ]),
    ),
    bytesPerProject: Math.max(...results.map(({ bytesPerProject }) => bytesPerProject)),
    changeMs: Math.max(0, ...results.flatMap(({ changesMs }) => changesMs)),
    workersLost: ingest.workersLost,
  };
  const names = Object.keys(BOUNDS) as (keyof typeof BOUNDS)[];
  const over = names
    .filter((name) => worst[name] > BOUNDS[name])
    .map((name) => `${name}: ${worst[name].toFixed(0)}, at most ${BOUNDS[name]}`);
  const most = Math.max(ingest.consumers, ...consumers);
  return most > WORKERS ? [...over, `consumers: ${most}, at most ${WORKERS}`] : over;
}

/** @returns exit status: 1 when something does not hold */
export async function projectsCommand(args: string[]): Promise<number> {
  const { values } = parseArgs({
    args,
    options: {
      projects: { type: 'string', default: '1000000' },
      restarts: { type: 'string', default: '3' },
      seed: { type: 'string', default: '1' },
      ref: { type: 'string', default: '.' },
    },
  });
  const [projects, restarts] = [Number(values.projects), Number(values.restarts)];
  if (!(projects >= 1 && projects <= PROJECTS_MAX)) throw new Error(`--projects: 1 to ${PROJECTS_MAX}`);
  if (!(restarts >= 0 && restarts <= RESTARTS_MAX)) throw new Error(`--restarts: 0 to ${RESTARTS_MAX}`);
  const bins = ensureServers(hostEnvironment(), (line) => process.stderr.write(`${line}\n`));
  const { cpu, cores, commit } = describeEnvironment(bins);
  const build = buildRef(values.ref);
  const stage = await Stage.start(bins.nats, Number(values.seed));
  try {
    await stage.seed(projects);
    const { dist } = build;
    const replicas = await runReplicas(stage, { dist, projects, restarts });
    const ingest = await runIngest(stage, {
      dist,
      redis: bins.redis,
      workers: WORKERS,
      restarts: { from: restarts + 1, count: restarts },
    });
    const over = broken(replicas, ingest);
    const head = `${projects} projects (${cpu}, ${cores} cores, ${values.ref === '.' ? commit : values.ref}, everything on this machine)`;
    const last = over.length === 0 ? 'holds' : `DOES NOT HOLD: ${over.join('; ')}`;
    process.stdout.write(`${[head, ...report(replicas, ingest), last].join('\n')}\n`);
    return over.length === 0 ? 0 : 1;
  } finally {
    await stage.stop();
    build.remove();
  }
}
