import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Admission, RateDecision } from '../../../src/ingest/limit/admission.ts';
import { admitArgs } from '../../../src/ingest/limit/admit-call.ts';
import { LimitRedis } from '../../../src/ingest/limit/redis.ts';
import { heartbeatKey, quotaKey, rateKey } from '../../../src/ingest/limit/scripts.ts';
import { freeze, thaw } from '../../support/freeze.ts';
import { lastingPort, redisServer, type TestServer, temporaryFolder } from '../../support/servers.ts';
import {
  ASK,
  admissionOn,
  clock,
  connected,
  countedBy,
  log,
  pause,
  projectOf,
  take as takeOf,
  until,
} from './limit-fixture.ts';
import { answers, operator as tell } from './redis-cluster.ts';

let server: TestServer;
let redis: LimitRedis;
const toClose: (() => unknown)[] = [];

beforeEach(async () => {
  server = await redisServer();
  redis = await connected(server.url);
});
afterEach(async () => {
  for (const close of toClose.splice(0)) await close();
  await redis.close();
  thaw(server.pid);
  await server.close();
});

const count = (n = 1) => countedBy(redis, 'p', n);
/** Started with Redis's month, which is this machine's. */
const thisMonth = (): string => new Date().toISOString().slice(0, 7);
const counted = async (): Promise<number> => ((await count(0)) as [string, number])[1];

function limiter(): Admission {
  const made = admissionOn(redis);
  toClose.push(() => made.close());
  return made;
}
/** Runs in the same turn as the flush, right after it. */
function stall(): void {
  for (const end = performance.now() + 400; performance.now() < end; );
}
/** Queued behind what this turn has queued; no timer runs in between. */
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const limited = projectOf({ id: 'p', limit: 60 });
const take = (of: Admission): Promise<RateDecision> => takeOf(of, limited);

const operator = (command: string): Promise<string> => tell(server.port, command);

describe('LimitRedis', () => {
  it('sends what was called in one turn together and answers each call', async () => {
    const replies = await Promise.all([count(), count(2), count()]);
    expect(replies.map((reply) => (reply as [string, number])[1])).toEqual([0, 1, 3]);
    expect(redis.stats.calls.admit).toBe(1);
    expect(redis.stats.duration.counts.reduce((a, b) => a + b)).toBe(3);
  });

  it('joins what comes while a batch is under way, and waits for its reply a few milliseconds at most', async () => {
    await count();
    await freeze(server.pid);
    const first = count();
    await turn();
    expect(redis.stats.calls.admit).toBe(2);
    const second = count();
    await turn();
    const third = count();
    await until('sent without a reply', () => redis.stats.calls.admit > 2);
    thaw(server.pid);
    const replies = await Promise.all([first, second, third]);
    expect(replies.map((reply) => (reply as [string, number])[1])).toEqual([1, 2, 3]);
    expect(redis.stats.calls.admit).toBe(3);
  });

  it('sends calls of all scripts of a turn in one command, which runs them in their order, each with its own keys', async () => {
    const turnOfAll = (): Promise<unknown[]> =>
      Promise.all([
        countedBy(redis, 'p', 3),
        redis.request('heartbeat', [heartbeatKey('t')], ['', 2]),
        redis.request('refund', [quotaKey('p')], [thisMonth()]),
        redis.request(
          'admit',
          [quotaKey('p'), rateKey('p')],
          admitArgs({ wishes: 'bt', limit: 60, ask: { ...ASK, need: 2 } }),
        ),
        redis.request('setUsage', [quotaKey('q')], [thisMonth(), 7, '']),
      ]);
    await turnOfAll();
    await operator('CONFIG RESETSTAT');
    // Of a window's result: what was granted, and what is booked then.
    const window = (granted: number, booked: number): unknown =>
      expect.objectContaining({ 0: granted, 4: booked });
    const month = thisMonth();
    expect(await turnOfAll()).toEqual([[month, 3, 3], [2, 0], [1], [window(2, 4), [month, 5, 1]], [0, 7]]);
    expect(await operator('INFO commandstats')).toContain('cmdstat_evalsha:calls=1,');
    expect(await counted()).toBe(6);
  });

  it('survives SCRIPT FLUSH without running anything twice', async () => {
    await count();
    expect(await operator('SCRIPT FLUSH')).toContain('OK');
    await Promise.all([count(), count(), count()]);
    expect(await counted()).toBe(4);
    expect(redis.available).toBe(true);
  });

  it('puts a prefix of its URL before all keys, of calls that go alone and of those that go together', async () => {
    const prefixed = await connected(`${server.url}?keyPrefix=app:`);
    toClose.push(() => prefixed.close());
    const ask = () => countedBy(prefixed, 'p', 1);
    await ask();
    await Promise.all([ask(), ask()]);
    expect(await Promise.all([ask(), ask()])).toEqual([
      [thisMonth(), 3, 1],
      [thisMonth(), 4, 1],
    ]);
    expect(await operator(`HGET app:${quotaKey('p')} ${thisMonth()}`)).toContain('5');
    expect(await operator('DBSIZE')).toContain(':1');
  });

  it('refuses within a second when Redis hangs, at once while it hangs, and recovers without a restart', async () => {
    const rate = limiter();
    expect(await take(rate)).toMatchObject({ kind: 'admitted' });
    await freeze(server.pid);
    const before = performance.now();
    const waiting = await Promise.all([take(rate), take(rate)]);
    expect(performance.now() - before).toBeLessThan(1000);
    expect(waiting).toEqual([{ kind: 'unavailable' }, { kind: 'unavailable' }]);
    expect(redis.available).toBe(false);
    expect(rate.knownRefusal(projectOf({ id: 'q', limit: 60 }))).toEqual({
      kind: 'unavailable',
    });
    expect(await count()).toBeUndefined();
    thaw(server.pid);
    await until('available', () => redis.available);
    expect(await take(rate)).toMatchObject({ kind: 'admitted' });
  });

  it('drops the connection on which a call hung', async () => {
    const connections = async (): Promise<number> =>
      Number(/total_connections_received:(\d+)/.exec(await operator('INFO stats'))?.[1]);
    await count();
    const before = await connections();
    await freeze(server.pid);
    await count();
    thaw(server.pid);
    await until('available', () => redis.available);
    // One more is the operator's own.
    expect(await connections()).toBeGreaterThan(before + 1);
  });

  it('does not blame Redis for a stall of its own process', async () => {
    await count();
    const stalled = count();
    setImmediate(stall);
    expect(await stalled).toEqual([thisMonth(), 1, 1]);
    expect(redis.available).toBe(true);
  });

  it('never runs a call twice when the server hangs with it', async () => {
    await count();
    await freeze(server.pid);
    expect(await Promise.all([count(), count(), count()])).toEqual([undefined, undefined, undefined]);
    thaw(server.pid);
    await until('available', () => redis.available);
    await pause(300);
    expect(await counted()).toBeLessThanOrEqual(4);
  });

  type Change = () => unknown;
  const command =
    (text: string): Change =>
    async () =>
      expect(await operator(text)).toContain('OK');
  it.each<[name: string, harm: Change, fix: Change]>([
    ['is out of memory', command('CONFIG SET maxmemory 1'), command('CONFIG SET maxmemory 0')],
    ['is read-only', command('REPLICAOF 127.0.0.1 1'), command('REPLICAOF NO ONE')],
    [
      'is short of replicas',
      command('CONFIG SET min-replicas-to-write 1'),
      command('CONFIG SET min-replicas-to-write 0'),
    ],
    [
      'is a replica that has lost its master (MASTERDOWN)',
      async () => {
        await operator('CONFIG SET replica-serve-stale-data no');
        await operator('REPLICAOF 127.0.0.1 1');
        await answers(server.port, 'PING', 'MASTERDOWN');
      },
      command('REPLICAOF NO ONE'),
    ],
    [
      'cannot persist (MISCONF)',
      async () => {
        // A folder in the place of the file: the snapshot cannot be put there.
        mkdirSync(join(server.dir, 'dump.rdb'));
        await operator('CONFIG SET save "3600 1"');
        await operator('BGSAVE');
        await answers(server.port, 'SET probe 1', 'MISCONF');
      },
      command('CONFIG SET save ""'),
    ],
    [
      'wants a password (NOAUTH)',
      async () => {
        await operator('CONFIG SET requirepass secret');
        await operator('AUTH secret\r\nCLIENT KILL TYPE normal SKIPME yes');
      },
      () => operator('AUTH secret\r\nCONFIG SET requirepass ""'),
    ],
    [
      'is busy with a script',
      async () => {
        await operator('CONFIG SET busy-reply-threshold 1');
        const stuck = connect(server.port, '127.0.0.1', () => stuck.write('EVAL "while true do end" 0\r\n'));
        stuck.on('error', () => undefined);
        toClose.push(() => stuck.destroy());
        await answers(server.port, 'PING', 'BUSY');
      },
      command('SCRIPT KILL'),
    ],
  ])('takes a server that %s for away, and comes back with it', async (_name, harm, fix) => {
    await count();
    await harm();
    expect(await count()).toBeUndefined();
    await pause(600); // long enough to look whether it is back
    expect(await count()).toBeUndefined();
    await fix();
    await expect.poll(() => count(), { timeout: 10_000 }).toEqual([thisMonth(), 1, 1]);
    expect(redis.available).toBe(true);
  });

  it('refuses while a server that was started again reads its files (LOADING), then counts on', async () => {
    await count(7);
    // Large enough that the server looks at its clients while it reads them.
    await operator('CONFIG SET rdbcompression no');
    for (let key = 0; key < 30; key++) await operator(`SET filler-${key} ${'x'.repeat(4_000)}`);
    await operator('BGREWRITEAOF');
    await answers(server.port, 'INFO persistence', 'aof_rewrite_in_progress:0');
    server.process.kill('SIGKILL');
    await server.exited;
    // Each key of the file takes 50 ms to load.
    const settings = ['--key-load-delay', '50000', '--loading-process-events-interval-bytes', '1024'];
    const base = ['--port', `${server.port}`, '--dir', server.dir, '--appendonly', 'yes', '--save', ''];
    const loading = spawn(server.bin, [...base, ...settings], { stdio: 'ignore' });
    toClose.push(async () => {
      loading.kill('SIGKILL');
      await once(loading, 'exit');
    });
    await answers(server.port, 'PING', 'LOADING');
    await pause(300);
    expect(redis.available).toBe(false);
    expect(await count()).toBeUndefined();
    await until('available', () => redis.available);
    expect(await count()).toEqual([thisMonth(), 7, 1]);
  });

  it('waits for a server that is not there yet', async () => {
    const port = await lastingPort();
    const early = new LimitRedis({ urls: [`redis://127.0.0.1:${port}`], log, clock });
    toClose.push(() => early.close());
    await early.connect();
    expect(early.available).toBe(false);
    const late = await redisServer({ port, dir: temporaryFolder('redis') });
    toClose.push(() => late.close());
    await until('available', () => early.available);
  });

  it('settles everything when it is closed, and refuses afterwards', async () => {
    await freeze(server.pid);
    const waiting = count();
    await pause(10);
    await redis.close();
    expect(await waiting).toBeUndefined();
    expect(await count()).toBeUndefined();
  });

  it('comes back to eight workers without a herd: each connects once and sends a handful of PINGs', async () => {
    const workers = await Promise.all(Array.from({ length: 8 }, () => connected(server.url)));
    toClose.push(() => Promise.all(workers.map((worker) => worker.close())));
    server.process.kill('SIGKILL');
    await until('all away', () => workers.every((worker) => !worker.available));
    await pause(2_000);
    const next = await redisServer({ port: server.port, dir: temporaryFolder('redis') });
    toClose.push(() => next.close());
    await until('all available', () => workers.every((worker) => worker.available));
    await pause(1_000);
    const figure = async (section: string, name: RegExp): Promise<number> =>
      Number(name.exec(await operator(`INFO ${section}`))?.[1] ?? 0);
    // The operator's own, those that asked whether it had started, and one for each of nine workers.
    expect(await figure('stats', /total_connections_received:(\d+)/)).toBeLessThanOrEqual(9 + 9);
    expect(await figure('commandstats', /cmdstat_ping:calls=(\d+)/)).toBeLessThanOrEqual(3 * 9);
  });
});
