import { readUsage } from '../ingest/limit/month-count.ts';
import { systemClock } from '../lib/clock.ts';
import type { Project } from '../projects/project.ts';
import type { CheckpointBucket } from '../projects/usage/checkpoint-bucket.ts';
import { type HourOfOutcomes, readOutcomes } from '../projects/usage/outcome-day.ts';
import type { Connections } from './connections.ts';
import { OperationError, reasonOf } from './operation-error.ts';

/** Usage of a project in a month. `month` is `YYYY-MM`; `percent` is absent without a quota. */
export type Usage = {
  id: string;
  month: string;
  current: number;
  quota?: number;
  overage: boolean;
  percent?: number;
};
export type UsageByHour = Usage & { hours: HourOfOutcomes[] };

/**
 * Number of projects that Redis is asked about at the same time. Redis must answer all of these
 * requests within its time-out.
 */
const BATCH = 100;

/** Percentage of the quota, rounded down as in ingest's answers; 100 for a quota of 0. */
const percentOf = (current: number, quota: number): number =>
  quota === 0 ? 100 : Math.floor((100 * current) / quota);

export type UsageReader = { connections: Connections; checkpoints: CheckpointBucket };

/**
 * Reads the usage of this month: the count in Redis or, if Redis has none, the checkpoint from
 * which counting would resume.
 * @throws OperationError when the usage cannot be read
 */
export async function usageOf(reader: UsageReader, project: Project): Promise<Usage> {
  const redis = await reader.connections.redis();
  const { month, count } = await readUsage(redis, project.id).catch((error: unknown) => {
    throw new OperationError('unavailable', `The usage cannot be read: ${reasonOf(error)}.`);
  });
  const figure = count ?? (await reader.checkpoints.read(project.id, month)) ?? 0;
  return {
    id: project.id,
    month,
    current: figure,
    ...(project.quota !== undefined && { quota: project.quota }),
    overage: project.overage,
    ...(project.quota !== undefined && { percent: percentOf(figure, project.quota) }),
  };
}

export async function usageOfAll(reader: UsageReader, projects: readonly Project[]): Promise<Usage[]> {
  const all: Usage[] = [];
  for (let at = 0; at < projects.length; at += BATCH)
    all.push(
      ...(await Promise.all(projects.slice(at, at + BATCH).map((project) => usageOf(reader, project)))),
    );
  return all;
}

export async function usageByHour(
  reader: UsageReader,
  project: Project,
  hours: number,
): Promise<UsageByHour> {
  const usage = await usageOf(reader, project);
  const link = await reader.connections.nats();
  return { ...usage, hours: await readOutcomes(link, project.id, { now: systemClock.now(), hours }) };
}
