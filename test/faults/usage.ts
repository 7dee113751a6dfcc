import { readUsage } from '../../src/ingest/limit/month-count.ts';
import { LimitRedis } from '../../src/ingest/limit/redis.ts';
import { systemClock } from '../../src/lib/clock.ts';
import { CheckpointBucket } from '../../src/projects/usage/checkpoint-bucket.ts';
import { patiently } from './queue.ts';
import { quiet, type Stand } from './stand.ts';

/** This month's usage as it stands in Redis; where that has none, the checkpoint from which counting would resume. */
export async function usageOf<Name extends string>(
  { backing, link }: Stand,
  projects: Readonly<Record<Name, { id: string }>>,
): Promise<Record<Name, number>> {
  const redis = new LimitRedis({ urls: [backing.redis.url], log: quiet, clock: systemClock });
  await redis.connect();
  try {
    const checkpoints = new CheckpointBucket({ link, log: quiet });
    const usage: Partial<Record<Name, number>> = {};
    for (const name of Object.keys(projects) as Name[]) {
      const { id } = projects[name];
      const { month, count } = await patiently(() => readUsage(redis, id));
      usage[name] = count ?? (await checkpoints.read(id, month)) ?? 0;
    }
    return usage as Record<Name, number>;
  } finally {
    await redis.close();
  }
}
