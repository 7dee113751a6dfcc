/**
 * One project attacks, another one works: `npm run bench -- isolation [--seconds N] [--only PART] [--out FILE]`. A row for each attack:
 * the other project's p99 while it is quiet and while the attack goes on, its answers, and how many of its accepted items are stored.
 * Fails when any of its requests failed, when an item is missing, or when its p99 doubled.
 */
import { appendFileSync, createReadStream, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { hostEnvironment } from '../../src/config.ts';
import { ensureServers } from '../../src/dev/install.ts';
import { FILTERS } from '../../src/lib/filter-names.ts';
import { describeEnvironment } from '../environment.ts';
import { startFresh } from '../fresh.ts';
import { Harness, OWN_DIST } from '../harness.ts';
import { runsFirst, takePlaces } from '../hostile/beside.ts';
import { HostileWorker, pathOf } from '../hostile/worker.ts';
import type { Target } from '../workload.ts';
import { type Isolated, isolated } from './attacks.ts';
import type { Testimony } from './witness.ts';

const MIB = 1024 * 1024;
/** As `sluice dev` has it: an attacker who fills it does so within seconds. */
const STREAM_MAX_BYTES = 256 * MIB;
const EVENTS_PER_SECOND = 100;
const UPLOADS_PER_SECOND = 2;
const BEGINS_MS = 500;
const DRAIN_MS = 60_000;
const RATIO_MAX = 2;

type Scene = { harness: Harness; worker: HostileWorker; attacker: Target; other: Target };
type Row = { name: string; quiet: Testimony; attacked: Testimony; attacker: string; missing: number };

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

/** How many of these events the sink does not have. */
async function missingOf({ worker }: Scene, ids: readonly string[]): Promise<number> {
  const missing = new Set(ids);
  const files = readdirSync(worker.sinkDir, { recursive: true, encoding: 'utf8' });
  for (const file of files.filter((name) => name.endsWith('.ndjson')))
    for await (const line of createInterface({ input: createReadStream(join(worker.sinkDir, file)) }))
      missing.delete(/"event_id":"([0-9a-f]{32})"/.exec(line)?.[1] ?? '');
  return missing.size;
}

async function rowOf(scene: Scene, attack: Isolated, ms: number): Promise<Row> {
  const { harness, worker, attacker } = scene;
  const quiet = await witness(scene, ms / 2);
  if (attack.withoutProcessor) harness.signalProcessor('SIGSTOP');
  const under = attack.run(worker.port, pathOf(attacker), ms + 2 * BEGINS_MS);
  await new Promise((resolve) => setTimeout(resolve, BEGINS_MS));
  const attacked = await witness(scene, ms);
  const answers = await under;
  if (attack.withoutProcessor) harness.signalProcessor('SIGCONT');
  await worker.idle();
  await harness.drained(DRAIN_MS);
  const missing = await missingOf(scene, [...quiet.accepted, ...attacked.accepted]);
  return { name: attack.name, quiet, attacked, attacker: `${answers}`, missing };
}

const text = (counts: Record<string, number>): string =>
  Object.entries(counts)
    .map(([kind, count]) => `${count} × ${kind}`)
    .join(', ');
const isAll200 = (counts: Record<string, number>): boolean =>
  Object.keys(counts).every((kind) => kind === '200');

export function problemsOf({ name, quiet, attacked, missing }: Row): string[] {
  const problems: string[] = [];
  if (!isAll200(attacked.events))
    problems.push(`${name}: events of the other project: ${text(attacked.events)}`);
  if (!isAll200(attacked.uploads))
    problems.push(`${name}: uploads of the other project: ${text(attacked.uploads)}`);
  if (missing > 0) problems.push(`${name}: ${missing} accepted items are not stored`);
  if (attacked.p99 > RATIO_MAX * quiet.p99)
    problems.push(`${name}: p99 ${attacked.p99.toFixed(1)} ms, quiet ${quiet.p99.toFixed(1)} ms`);
  return problems;
}

function lineOf({ name, quiet, attacked, attacker, missing }: Row): string {
  const ms = (value: number): string => value.toFixed(1).padStart(8);
  const figures = `${ms(quiet.p50)} ${ms(quiet.p99)} |${ms(attacked.p50)} ${ms(attacked.p99)}  × ${(attacked.p99 / quiet.p99).toFixed(2)}`;
  const stored = attacked.accepted.length + quiet.accepted.length - missing;
  return [
    `${name.padEnd(24)} ${figures}`,
    `${''.padEnd(24)} events ${text(attacked.events)}; uploads ${text(attacked.uploads)}, at most ${attacked.uploadMsMax.toFixed(0)} ms; ${stored} stored, ${missing} missing`,
    `${''.padEnd(24)} attacker: ${attacker}`,
  ].join('\n');
}

/** @returns exit status: 1 when the other project suffered */
export async function isolationCommand(args: string[]): Promise<number> {
  const { values } = parseArgs({
    args,
    options: {
      seconds: { type: 'string', default: '20' },
      only: { type: 'string', default: '' },
      out: { type: 'string' },
    },
  });
  const bins = ensureServers(hostEnvironment(), (line) => process.stderr.write(`${line}\n`));
  const { cpu, cores, commit } = describeEnvironment(bins);
  const say = (line: string): void => {
    process.stdout.write(`${line}\n`);
    if (values.out !== undefined) appendFileSync(values.out, `${line}\n`);
  };
  const harness = await Harness.start({ dist: OWN_DIST, bins, streamMaxBytes: STREAM_MAX_BYTES });
  try {
    await harness.startProcessor();
    const base = { plan: 'Platform', overage: false, allowedOrigins: [], filters: FILTERS } as const;
    const limited = { ...base, rateLimit: 600 };
    const targets = await harness.createProjects([base, base, limited] as never);
    const [attacker, other, bounded] = targets as [Target, Target, Target];
    const scene = { harness, worker: new HostileWorker(), attacker, other };
    say(`isolation (${cpu}, ${cores} cores, ${commit}, everything on this machine)`);
    takePlaces();
    say(
      `other: ${EVENTS_PER_SECOND} events and ${UPLOADS_PER_SECOND} uploads of 1 MiB a second; the attacker runs when nobody else wants a core`,
    );
    say(`${''.padEnd(24)} quiet p50      p99 | attacked p50  p99, ms`);
    await witness(scene, 3_000);
    const problems: string[] = [];
    for (const attack of isolated().filter(({ name }) => name.includes(values.only))) {
      const who = attack.name.includes('limit') ? bounded : attacker;
      const row = await rowOf({ ...scene, attacker: who }, attack, Number(values.seconds) * 1000);
      say(lineOf(row));
      problems.push(...problemsOf(row));
    }
    say(problems.length === 0 ? 'holds' : ['DOES NOT HOLD', ...problems].join('\n'));
    return problems.length === 0 ? 0 : 1;
  } finally {
    await harness.stop();
  }
}
