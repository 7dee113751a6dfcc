/** Redis stands still for a moment (contract part 2, Redis stalls): requests wait, and each 200 is counted once. */
import { describe, expect, it } from 'vitest';
import { readUsage } from '../../src/ingest/limit/month-count.ts';
import { LimitRedis } from '../../src/ingest/limit/redis.ts';
import { systemClock } from '../../src/lib/clock.ts';
import { createLog } from '../../src/lib/log.ts';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { freeze, thaw } from '../support/freeze.ts';
import { type Project, System, until } from '../support/system.ts';

async function usageOf({ redis }: System, { id }: Project): Promise<number | undefined> {
  const connection = new LimitRedis({ urls: [redis.url], log: createLog('silent'), clock: systemClock });
  await connection.connect();
  try {
    return (await readUsage(connection, id)).count;
  } finally {
    await connection.close();
  }
}

/** Below the bound of 700 ms, with room for a shared machine's own stalls. */
const STALL_MS = 450;
/** A busy machine may thaw later than that; what such a stall did is not looked at. */
const LATE_MS = 100;
const TRIES_MAX = 10;

/** Three stalls. The statuses of what came during each; undefined when one was longer than wanted. */
async function stallThrice({ redis }: System, send: () => Promise<number>): Promise<number[] | undefined> {
  const answers: Promise<number>[] = [];
  let isLate = false;
  for (let round = 0; round < 3; round++) {
    const frozenAt = performance.now();
    await freeze(redis.pid);
    const end = performance.now() + STALL_MS;
    for (let i = 0; performance.now() < end; i++) {
      if (i < 30) answers.push(send());
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    thaw(redis.pid);
    isLate ||= performance.now() - frozenAt > STALL_MS + LATE_MS;
    await Promise.all(answers);
  }
  return isLate ? undefined : Promise.all(answers);
}

describe('a stall of Redis', () => {
  // At the same time, each on a system of its own.
  it.concurrent.for([
    ['limited', { plan: 'Business' }, 'table'],
    ['of a limit that is used up meanwhile', { plan: 'Business', rateLimit: 150 }, 'table'],
    ['without a limit', { plan: 'Pro' }, 'free-only'],
  ] as const)(
    'refuses no request of a project %s and bills each once',
    async ([, record, plans], { onTestFinished }) => {
      const system = await System.start({ workers: 2, env: { SLUICE_PLAN_LIMITS: plans } });
      onTestFinished(() => system.stop());
      for (let tries = 0; tries < TRIES_MAX; tries++) {
        const project = await system.createProject({ ...record, quota: 1_000_000 });
        const send = async (): Promise<number> => (await system.send(project, errorEvent(eventId()))).status;
        expect(await send()).toBe(200);
        const statuses = await stallThrice(system, send);
        if (!statuses) continue;
        expect(statuses.length).toBeGreaterThan(20);
        expect(statuses.filter((status) => status !== 200)).toEqual([]);
        return until(async () => (await usageOf(system, project)) === 1 + statuses.length);
      }
      throw new Error(`in each of ${TRIES_MAX} tries a stall was longer than wanted`);
    },
  );
});
