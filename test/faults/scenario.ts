/** One scenario: load, one fault after the other, each followed until the system serves again by itself, then the judgement. */
import { setTimeout as pause } from 'node:timers/promises';
import type { Random } from '../../bench/random.ts';
import type { Fault, Scene } from './faults.ts';
import { type Evidence, type Judgement, judge, type RedisLoss, type Terms, type Told } from './ledger.ts';
import { Load } from './load.ts';
import type { Stand } from './stand.ts';

/** Longer than this is no recovery. */
const RECOVERY_MS_MAX = 45_000;
const FLOOD_CLIENTS = 8;
/** Between faults. */
const CALM_MS = 1_000;

export type Recovery = {
  fault: string;
  /** From the begin to the end of the fault. */
  heldSec: number;
  /** From the end of the fault until every port served for good; undefined: not within RECOVERY_MS_MAX. */
  servesAfterSec: number | undefined;
  /** By status, of requests that began while the fault lasted. */
  during: Record<string, number>;
};

export type Report = {
  recoveries: Recovery[];
  /** From the end of the load until everything was processed. */
  drainedSec: number | undefined;
  /** Acknowledged messages that the broker still has. */
  leftovers: number;
  judgement: Judgement;
  /** For the history. */
  told: Told[];
  terms: Terms;
  evidence: Evidence;
};

export type ScenarioOptions = {
  random: Random;
  /** Before the first fault. */
  warmMs?: number;
  /** Quota of the project that has one. */
  quota?: number;
  thinkMs?: number;
  /** Looks at the stand when everything is drained. @returns sentences about what is wrong */
  afterwards?(terms: Terms, told: readonly Told[]): Promise<string[]>;
};

function statuses(told: readonly Told[], from: number, to: number): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { sentAt, status } of told) {
    if (sentAt < from || sentAt > to) continue;
    counts[status] = (counts[status] ?? 0) + 1;
  }
  return counts;
}

async function strike(fault: Fault, scene: Scene, load: Load): Promise<Recovery> {
  const began = performance.now();
  const end = await fault.strike(scene);
  await pause(fault.holdMs);
  const ended = performance.now();
  await end();
  const servesAfterSec = await load.servesSince(ended, RECOVERY_MS_MAX);
  return {
    fault: fault.name,
    heldSec: (ended - began) / 1000,
    servesAfterSec,
    during: statuses(load.told, began, ended),
  };
}

export async function runScenario(
  stand: Stand,
  faults: readonly Fault[],
  options: ScenarioOptions,
): Promise<Report> {
  const { random, warmMs = CALM_MS, quota = 500, thinkMs = 40 } = options;
  const { terms: projects, targets } = await stand.createProjects(quota);
  const letters = await stand.deadLetters();
  const shared = { random, ports: stand.ports, targets };
  const load = new Load({ ...shared, thinkMs });
  const floods: Load[] = [];
  const redisLosses: RedisLoss[] = [];
  const flood = (payloadBytes: number): Load => {
    const one = new Load({ ...shared, payloadBytes, clients: FLOOD_CLIENTS, thinkMs: 0 });
    floods.push(one);
    return one;
  };
  const recoveries: Recovery[] = [];
  load.start();
  await pause(warmMs);
  for (const fault of faults) {
    recoveries.push(await strike(fault, { stand, random, flood, redisLosses }, load));
    await pause(CALM_MS);
  }
  await load.stop();
  const drainedSec = await stand.drained();
  const left = await stand.leftovers();
  const told = [load, ...floods].flatMap((one) => one.told);
  const terms: Terms = { projects, redisLosses, answersAll: !faults.some(({ cuts }) => cuts) };
  const evidence: Evidence = {
    stored: await stand.stored(),
    deadLetters: (await stand.deadLetters()) - letters,
    usage: await stand.usage(projects),
  };
  const judgement = judge(told, evidence, terms);
  judgement.broken.push(...judgement.lostIds.map((id) => stand.witness.trace(id, stand.sinkDir)));
  if (drainedSec === undefined)
    judgement.broken.push('not everything is processed', ...left.map(({ text }) => text));
  for (const { fault, servesAfterSec } of recoveries)
    if (servesAfterSec === undefined) judgement.broken.push(`${fault}: does not serve again`);
  judgement.broken.push(...((await options.afterwards?.(terms, told)) ?? []));
  return {
    recoveries,
    drainedSec,
    leftovers: left.reduce((sum, { messages }) => sum + messages, 0),
    judgement,
    told,
    terms,
    evidence,
  };
}
