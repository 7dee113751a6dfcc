/** One worker's copy of the registry in a process of its own: what it takes to load, to keep, and to go on after the broker's restarts. */
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { TurnMeter, type Turns } from './turns.ts';

export type ReplicaOptions = {
  /** Build folder of the version under test. */
  dist: string;
  natsUrl: string;
  projects: number;
  /** Of the broker; after each, the project with the next id of {@link markerId} is made. */
  restarts: number;
};

export type ReplicaResult = {
  loadMs: number;
  loading: Turns;
  bytesPerProject: number;
  /** The longest turns from one restart to the next, and the times from reconnecting to the new project. */
  afterRestarts: Turns[];
  changesMs: number[];
};

/** What a replica says when it is done with a step: 0 for having loaded, then the restarts. */
export const SAID_SUBJECT = 'bench.projects.said';
/** Tells the replicas that nothing is looked at any more. */
export const LEAVE_SUBJECT = 'bench.projects.leave';
/** Beyond all ids that are seeded. */
export const markerId = (restart: number): string => `${9_000_000_000 + restart}`;

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await sleep(5);
}

function memory(collect: () => void): number {
  collect();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

export async function runReplica(options: ReplicaOptions): Promise<ReplicaResult> {
  const { dist, natsUrl, projects, restarts } = options;
  const load = (path: string) => import(pathToFileURL(join(dist, path)).href);
  const { NatsLink } = (await load('stream/nats.js')) as typeof import('../../src/stream/nats.ts');
  const { Replica } = (await load('projects/replica.js')) as typeof import('../../src/projects/replica.ts');
  const { createLog } = (await load('lib/log.js')) as typeof import('../../src/lib/log.ts');
  const { systemClock: clock } = (await load('lib/clock.js')) as typeof import('../../src/lib/clock.ts');
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;

  const log = createLog('silent');
  const link = await NatsLink.connect({ urls: [natsUrl], name: 'bench', log, waitForServer: true });
  const replica = new Replica({ link, planLimits: 'table', log, clock });
  const left = new Promise<void>((resolve) => link.subscribe(LEAVE_SUBJECT, () => resolve()));
  const before = memory(collect);
  const meter = new TurnMeter();
  const began = performance.now();
  await replica.start();
  const loadMs = performance.now() - began;
  const loading = meter.take();
  const bytesPerProject = (memory(collect) - before) / projects;
  link.connection.publish(SAID_SUBJECT, '0');
  await sleep(0); // the collection was a turn of its own
  meter.take();
  const changesMs: number[] = [];
  const turns: Turns[] = [];
  for (let n = 1; n <= restarts; n++) {
    await until(() => !link.connected);
    if (n > 1) turns.push(meter.take());
    await until(() => link.connected);
    const connectedAt = performance.now();
    await until(() => replica.findProject(markerId(n)) !== undefined);
    changesMs.push(performance.now() - connectedAt);
    link.connection.publish(SAID_SUBJECT, `${n}`);
  }
  await left;
  turns.push(meter.take());
  meter.stop();
  await replica.stop();
  await link.close();
  return { loadMs, loading, bytesPerProject, afterRestarts: turns, changesMs };
}
