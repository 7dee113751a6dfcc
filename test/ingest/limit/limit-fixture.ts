/** A real Redis and what the limit stage needs around it. */

import {
  Admission,
  type AdmissionResult,
  type CountDecision,
  type RateDecision,
  type Wanted,
} from '../../../src/ingest/limit/admission.ts';
import { type AdmitCall, admitArgs, admitKeys, parseReply } from '../../../src/ingest/limit/admit-call.ts';
import { LimitRedis } from '../../../src/ingest/limit/redis.ts';
import { type CheckpointStore, Checkpoints } from '../../../src/ingest/usage/checkpoints.ts';
import { systemClock } from '../../../src/lib/clock.ts';
import { createLog } from '../../../src/lib/log.ts';
import type { Project } from '../../../src/projects/project.ts';
import { ProjectState, type RateScope } from '../../../src/projects/project-state.ts';
import type { MonthCounts } from '../../../src/projects/usage/checkpoint-bucket.ts';

export const log = createLog('silent');
export const clock = systemClock;

/** One URL: a server. Several: a cluster. */
export async function connected(...urls: string[]): Promise<LimitRedis> {
  const redis = new LimitRedis({ urls, log, clock });
  await redis.connect();
  await until('available', () => redis.available);
  return redis;
}

/** A project as the registry knows it. `limit` and `quota` undefined: none. */
export function projectOf({
  id,
  limit,
  revision = 1,
  ...more
}: Partial<Project> & { id: string; limit?: number | undefined; revision?: number }): ProjectState {
  return new ProjectState({ ...RECORD, ...more, id }, revision, limit);
}
/** The same project as another worker keeps it. */
export const elsewhere = ({ record, revision, limit }: ProjectState): ProjectState =>
  new ProjectState(record, revision, limit);
const RECORD = {
  key: 'k',
  plan: 'Pro',
  overage: false,
  filters: [],
  allowedOrigins: [],
} as const satisfies Omit<Project, 'id'>;

export type TestAdmission = Admission & { readonly checkpoints: Checkpoints };
export type AdmissionSettings = {
  store?: CheckpointStore;
  scriptNow?: () => number;
  monotonic?: () => number;
};

/** An admission that counts from nothing unless `store` has something. */
export function admissionOn(redis: LimitRedis, settings: AdmissionSettings = {}): TestAdmission {
  const { store = new MemoryCheckpoints(), scriptNow, monotonic = clock.monotonic } = settings;
  const checkpoints = new Checkpoints({ store, clock, log });
  const own = { now: () => clock.now(), monotonic };
  const admission = new Admission({ redis, clock: own, checkpoints, log, ...(scriptNow && { scriptNow }) });
  return Object.assign(admission, { checkpoints });
}

export const admit = (admission: Admission, of: RateScope, wanted: Wanted): Promise<AdmissionResult> =>
  new Promise((resolve) => admission.admit(of, wanted, resolve));

/** A token only, as for a body that is refused. */
export async function take(admission: Admission, of: RateScope): Promise<RateDecision> {
  const { rate } = await admit(admission, of, { token: true, count: false });
  if (!rate) throw new Error('the project has no limit');
  return rate;
}

/** A position only, as for a request that has its token. */
export async function count(admission: Admission, of: ProjectState): Promise<CountDecision> {
  const { count: decision } = await admit(admission, of, { token: false, count: true });
  return decision as CountDecision;
}

/** Counts `n` requests of a project by one call: the script's own result; undefined when there was none. */
export async function countedBy(redis: LimitRedis, id: string, n: number): Promise<unknown> {
  const start = { month: new Date().toISOString().slice(0, 7), count: 0 };
  const reply = await redis.request('admit', admitKeys(id), admitArgs({ wishes: 'c'.repeat(n), start }));
  return reply?.[1];
}

/** What a worker asks of a window that knows nothing of it, and wants nothing. */
export const ASK = {
  sentAt: 0,
  need: 0,
  reserve: 0,
  needMs: 250,
  revision: 1,
  settled: [],
  known: undefined,
};

/** One call of admit.lua for a project, or for one of its windows and the `further` ones of the call. */
export async function callAdmit(redis: LimitRedis, id: string, call: AdmitCall & { window?: string }) {
  const reply = await redis.request('admit', admitKeys(id, call.window, call.further), admitArgs(call));
  if (!reply) throw new Error('the script failed');
  return parseReply(reply);
}

/** Resolves when `condition` holds; fails after ten seconds. */
export async function until(what: string, condition: () => boolean): Promise<void> {
  for (const end = Date.now() + 10_000; Date.now() < end; await pause(10)) if (condition()) return;
  throw new Error(`still not: ${what}`);
}

export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Checkpoints in memory: the bucket is not what is tested here. */
export class MemoryCheckpoints implements CheckpointStore {
  readonly groups = 4;
  readonly figures = new Map<string, number>();
  reads = 0;
  writes = 0;
  losses = 0;

  groupOf(projectId: string): number {
    return (projectId.codePointAt(projectId.length - 1) ?? 0) % this.groups;
  }

  async write(_group: number, month: string, figures: MonthCounts): Promise<void> {
    this.writes++;
    for (const [projectId, count] of figures) {
      const key = `${projectId} ${month}`;
      this.figures.set(key, Math.max(count, this.figures.get(key) ?? 0));
    }
  }

  async noteLoss(): Promise<void> {
    this.losses++;
  }

  async read(projectId: string, month: string): Promise<number | undefined> {
    this.reads++;
    return this.figures.get(`${projectId} ${month}`);
  }
}
