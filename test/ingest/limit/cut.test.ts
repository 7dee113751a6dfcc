/** Connections to Redis that are cut while Redis itself is well: a stall that refuses nobody (contract part 2, Redis stalls). */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type HeartbeatDecision, HeartbeatLimiter } from '../../../src/ingest/limit/heartbeat-limiter.ts';
import type { LimitRedis } from '../../../src/ingest/limit/redis.ts';
import { REDIS_REPLY_MS_MAX } from '../../../src/limits.ts';
import { freeze, thaw } from '../../support/freeze.ts';
import { redisServer, type TestServer } from '../../support/servers.ts';
import { TcpProxy } from '../../support/tcp-proxy.ts';
import {
  admissionOn,
  admit,
  clock,
  connected,
  countedBy,
  pause,
  projectOf,
  type TestAdmission,
  take,
  until,
} from './limit-fixture.ts';
import { STORES } from './stores.ts';

const BOTH = { token: true, count: true };
const CUTS = 3;
/** Time for a busy machine to answer calls between two cuts: without an answer they are one. */
const BETWEEN_MS = 500;

describe.each(STORES)('cuts of all connections to $name', ({ start }) => {
  it('refuse no request and no ping, and give no position twice', async () => {
    const store = await start();
    const redis = await connected(...store.urls);
    const admission = admissionOn(redis);
    const heartbeats = new HeartbeatLimiter({ redis, clock });
    const projects = Array.from({ length: 6 }, (_, i) => projectOf({ id: `p${i}`, limit: 100_000 }));
    const admitted = projects.map(() => [] as ReturnType<typeof admit>[]);
    const pings: Promise<HeartbeatDecision>[] = [];
    try {
      for (let cut = 0; cut < CUTS; cut++) {
        for (const end = performance.now() + BETWEEN_MS; performance.now() < end; await pause(2)) {
          for (const [i, project] of projects.entries()) admitted[i]?.push(admit(admission, project, BOTH));
          pings.push(heartbeats.admit(`token-${pings.length}`));
        }
        // Those that wait for their answer at this moment are cut off from it.
        await store.tell('CLIENT KILL TYPE normal');
      }
      for (const ofProject of admitted) {
        const results = await Promise.all(ofProject);
        expect(results.filter(({ rate }) => rate?.kind !== 'admitted')).toEqual([]);
        const positions = results.map(({ count }) => (count?.kind === 'counted' ? count.position : 'none'));
        expect(positions).not.toContain('none');
        expect(new Set(positions).size).toBe(positions.length);
      }
      expect(new Set(await Promise.all(pings))).toEqual(new Set(['admitted']));
      expect(redis.available).toBe(true);
    } finally {
      admission.close();
      await redis.close();
      await store.close();
    }
  });
});

describe('a cut under a call', () => {
  let server: TestServer;
  let proxy: TcpProxy;
  let redis: LimitRedis;
  let admission: TestAdmission;

  beforeEach(async () => {
    server = await redisServer();
    proxy = await TcpProxy.start(server.port);
    redis = await connected(`redis://127.0.0.1:${proxy.port}`);
    admission = admissionOn(redis);
  });
  afterEach(async () => {
    thaw(server.pid);
    admission.close();
    await redis.close();
    await proxy.close();
    await server.close();
  });

  /** The server finds in its socket what was sent, and runs it although nobody hears its answer. */
  async function losing<T>(ask: () => T): Promise<Awaited<T>> {
    await freeze(server.pid);
    const asked = ask();
    await pause(30);
    proxy.reset();
    thaw(server.pid);
    return await asked;
  }

  it('wastes what that took, so that no more than the limit is admitted', async () => {
    const project = projectOf({ id: 'p', limit: 60, quota: 1_000 });
    await admit(admission, project, BOTH);
    const some = await losing(() =>
      Promise.all(Array.from({ length: 20 }, () => admit(admission, project, BOTH))),
    );
    expect(some.map(({ rate, count }) => [rate?.kind, count?.kind])).toEqual(
      some.map(() => ['admitted', 'counted']),
    );
    const rest = await Promise.all(Array.from({ length: 60 }, () => take(admission, project)));
    expect(rest.filter(({ kind }) => kind === 'admitted')).toHaveLength(19);
    expect(rest.filter(({ kind }) => kind === 'refused')).toHaveLength(41);
    expect(await countedBy(redis, 'p', 0)).toEqual([expect.any(String), 41, 0]);
  });

  it('does not lose the start of a month from its checkpoint', async () => {
    const project = projectOf({ id: 'q', quota: 1_000 });
    const some = await losing(() =>
      Promise.all(Array.from({ length: 3 }, () => admit(admission, project, BOTH))),
    );
    expect(some.map(({ count }) => count)).toEqual(
      [1, 2, 3].map((position) => ({ kind: 'counted', position, month: expect.any(String) })),
    );
  });

  it('never runs a call again that its caller cannot ask anew', async () => {
    await countedBy(redis, 'r', 1);
    expect(await losing(() => countedBy(redis, 'r', 1))).toBeUndefined();
    expect(await countedBy(redis, 'r', 0)).toEqual([expect.any(String), 2, 0]);
  });

  it('is no absence where connections that stood without a call were cut before', async () => {
    const project = projectOf({ id: 't', limit: 60 });
    await take(admission, project);
    for (let idle = 0; idle < 2; idle++) {
      const before = proxy.joined;
      proxy.reset();
      await until('connected again', () => proxy.joined > before);
      await pause(2 * REDIS_REPLY_MS_MAX);
    }
    proxy.reset();
    expect(await take(admission, project)).toMatchObject({ kind: 'admitted' });
    expect(redis.available).toBe(true);
  });

  it('shortens no later wait: the first call after it may be as late as any', async () => {
    const project = projectOf({ id: 'v', limit: 60 });
    await take(admission, project);
    const before = proxy.joined;
    proxy.reset();
    await until('connected again', () => proxy.joined > before);
    await pause(2 * REDIS_REPLY_MS_MAX);
    await freeze(server.pid);
    const asked = take(admission, project);
    await pause(REDIS_REPLY_MS_MAX / 2);
    thaw(server.pid);
    expect(await asked).toMatchObject({ kind: 'admitted' });
    expect(redis.available).toBe(true);
  });

  it('late in a stall is decided within a second of the request', async () => {
    const project = projectOf({ id: 'u', limit: 60 });
    await take(admission, project);
    await freeze(server.pid);
    const asked = take(admission, project);
    const late = pause(1_200).then(() => 'late');
    await pause(REDIS_REPLY_MS_MAX - 20);
    proxy.reset();
    expect(await Promise.race([asked, late])).toEqual({ kind: 'unavailable' });
  });

  it('is an absence when there is no connection for longer than a stall', async () => {
    const project = projectOf({ id: 's', limit: 60 });
    await take(admission, project);
    await proxy.close();
    const cutAt = performance.now();
    expect(await take(admission, project)).toEqual({ kind: 'unavailable' });
    const waited = performance.now() - cutAt;
    expect(waited).toBeGreaterThan(REDIS_REPLY_MS_MAX / 2);
    expect(redis.available).toBe(false);
    expect(admission.knownRefusal(project)).toEqual({ kind: 'unavailable' });
  });
});
