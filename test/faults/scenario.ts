/** One scenario: load, one fault after the other, each followed until the system serves again by itself, then the judgement. */
import { setTimeout as pause } from 'node:timers/promises';
import type { Random } from '../../bench/random.ts';
import type { Attack } from './attacks.ts';
import type { Fault, Scene } from './fault.ts';
import { type Evidence, type Excuses, type Judgement, judge, type Terms, type Told } from './ledger.ts';
import { CLIENTS, Load } from './load.ts';
import { usageOnceRaised } from './redis-empty.ts';
import type { ProjectIds } from './sink-reader.ts';
import type { Stand } from './stand.ts';
import { usageOf } from './usage.ts';

/** Longer than this is no recovery. */
const RECOVERY_MS_MAX = 45_000;
const STORED_MS_MAX = 60_000;
const FLOOD_CLIENTS = 8;
/** Before each fault. */
const CALM_MS = 1_000;
/** Lines of our processes' logs that follow a broken promise. */
const LOGGED_MAX = 10;

export type Recovery = {
  fault: string;
  /** From the begin to the end of the fault. */
  heldSec: number;
  /** From the end of the fault until every port served for good; undefined: not within RECOVERY_MS_MAX. */
  servesAfterSec: number | undefined;
  /** From the end of the fault until all that was queued by then was in the sink; undefined: not within STORED_MS_MAX. */
  storedAfterSec: number | undefined;
  /** Why `storedAfterSec` is undefined: what the sink lacks, and what streams and consumers say. */
  unstored?: string[];
  /** By status, of requests that began while the fault lasted. */
  during: Record<string, number>;
};

/** What the tables are made from. */
export type Outcome = {
  recoveries: Recovery[];
  /** What went on all the while, and how it was answered, by status. */
  attack?: { name: string; answers: Record<string, number> };
  /** From the end of the load until everything was processed. */
  drainedSec: number | undefined;
  /** Acknowledged messages that the broker still has. */
  leftovers: number;
  judgement: Judgement;
};

/** With what was judged, for the history: too much to be kept of every scenario of an hour. */
export type Report = Outcome & { told: Told[]; terms: Terms; evidence: Evidence };

export type ScenarioOptions = {
  random: Random;
  /** Quota of the project that has one. */
  quota?: number;
  thinkMs?: number;
  clients?: number;
  /** Goes on while the faults strike and until the system serves again. */
  attack?: Attack | undefined;
};

function statuses(told: readonly Told[], from: number, to: number): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { sentAt, status } of told) {
    if (sentAt < from || sentAt > to) continue;
    counts[status] = (counts[status] ?? 0) + 1;
  }
  return counts;
}

async function storesSince(
  stand: Stand,
  load: Load,
  { since, projects }: { since: number; projects: ProjectIds },
): Promise<Pick<Recovery, 'storedAfterSec' | 'unstored'>> {
  const { queue } = stand;
  if (await queue.passed(await queue.mark(), STORED_MS_MAX))
    return { storedAfterSec: (performance.now() - since) / 1000 };
  const left = await queue.leftovers();
  const stored = await stand.stored(projects);
  const told = load.told.filter(({ status, answeredAt }) => status === 200 && answeredAt <= since);
  const missing = told.filter(({ id }) => !stored.has(id)).length;
  const lacks = `the sink lacks ${missing} of ${told.length} that were told 200 by then`;
  return { storedAfterSec: undefined, unstored: [lacks, ...left.map(({ text }) => text)] };
}

async function strike(fault: Fault, scene: Scene, load: Load, projects: ProjectIds): Promise<Recovery> {
  const began = performance.now();
  const end = await fault.strike(scene);
  await pause(fault.holdMs);
  const ended = performance.now();
  await end();
  const [servesAfterSec, storing] = await Promise.all([
    load.servesSince(ended, RECOVERY_MS_MAX),
    storesSince(scene.stand, load, { since: ended, projects }),
  ]);
  return {
    fault: fault.name,
    heldSec: (ended - began) / 1000,
    servesAfterSec,
    ...storing,
    during: statuses(load.told, began, ended),
  };
}

export async function runScenario(
  stand: Stand,
  faults: readonly Fault[],
  options: ScenarioOptions,
): Promise<Report> {
  const { random, quota = 500, thinkMs = 40, clients = CLIENTS, attack } = options;
  const { terms: projects, targets } = await stand.createProjects(quota);
  const ids = new Set(Object.values(projects).map(({ id }) => id));
  const letters = await stand.queue.deadLetters(ids);
  const shared = { random, ports: stand.ports, targets };
  const load = new Load({ ...shared, thinkMs, clients, otlp: stand.takesOtlp });
  const floods: Load[] = [];
  const excuses: Excuses = { redisLosses: [], redisCuts: [], clockSteps: 0 };
  const flood = (payloadBytes: number): Load => {
    const one = new Load({ ...shared, payloadBytes, clients: FLOOD_CLIENTS, thinkMs: 0 });
    floods.push(one);
    return one;
  };
  const recoveries: Recovery[] = [];
  load.start();
  const attacking = attack?.start(shared);
  await pause(Math.max(CALM_MS, ...faults.map(({ warmMs = 0 }) => warmMs)));
  for (const fault of faults) {
    if (recoveries.length > 0) await pause(CALM_MS);
    recoveries.push(await strike(fault, { stand, random, flood, excuses }, load, ids));
  }
  await Promise.all([load.stop(), attacking?.stop()]);
  const drainedSec = await stand.queue.drained();
  const left = await stand.queue.leftovers();
  const told = [load, ...floods, ...(attacking ? [attacking] : [])].flatMap((one) => one.told);
  const hasTally = stand.backing.store?.keepsTally ?? true;
  const terms: Terms = { projects, ...excuses, hasTally, answersAll: !faults.some(({ cuts }) => cuts) };
  const evidence: Evidence = {
    stored: await stand.stored(ids),
    deadLetters: (await stand.queue.deadLetters(ids)) - letters,
    usage: await (hasTally && excuses.redisLosses.length > 0
      ? usageOnceRaised(stand, projects, told)
      : usageOf(stand, projects)),
  };
  const judgement = judge(told, evidence, terms);
  const ndjsonDir = stand.backing.store ? undefined : stand.backing.sinkDir;
  judgement.broken.push(...judgement.lostIds.map((id) => stand.witness?.trace(id, ndjsonDir) ?? id));
  if (drainedSec === undefined) judgement.broken.push('not everything is processed');
  if (drainedSec === undefined || judgement.lost > 0) judgement.broken.push(...left.map(({ text }) => text));
  for (const { fault, servesAfterSec, unstored } of recoveries) {
    if (servesAfterSec === undefined) judgement.broken.push(`${fault}: does not serve again`);
    if (unstored) judgement.broken.push(`${fault}: does not store again`, ...unstored);
  }
  const [fault] = faults;
  if (faults.length === 1) judgement.broken.push(...((await fault?.afterwards?.(stand, terms, told)) ?? []));
  if (judgement.broken.length > 0) judgement.broken.push(...stand.errors.slice(-LOGGED_MAX));
  return {
    recoveries,
    ...(attack && attacking && { attack: { name: attack.name, answers: attacking.answers() } }),
    drainedSec,
    leftovers: left.reduce((sum, { messages }) => sum + messages, 0),
    judgement,
    told,
    terms,
    evidence,
  };
}
