/** A cluster of three with the rights of users.conf that loses a server, its quorum, or the spread of its leaders: what says so, and what heals it. */
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { connect, nkeyAuthenticator } from '@nats-io/transport-node';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createLog } from '../../src/lib/log.ts';
import { LOPSIDED_MS_MAX } from '../../src/limits.ts';
import type { Finding } from '../../src/management/doctor/check.ts';
import { Keeper } from '../../src/processor/keeper.ts';
import { NatsLink } from '../../src/stream/nats.ts';
import { isLopsided, movesFor, streamsOf } from '../../src/stream/setup/leaders.ts';
import { StreamWatch } from '../../src/stream/stream-watch.ts';
import { BUCKETS, streamNamesOf, wantedStreams } from '../../src/stream/topology.ts';
import { runCommand } from '../commands/run-command.ts';
import { NatsRoles, type Role } from '../deploy/nats-roles.ts';
import { NatsCluster } from '../support/nats-cluster.ts';
import { lastingPort, redisServer, type TestServer, temporaryFolder } from '../support/servers.ts';
import { Command, until } from '../support/system.ts';

const log = createLog('silent');
const MAX_BYTES = 16 * 1024 * 1024;
const wanted = wantedStreams({ replicas: 3, shards: 1, maxBytes: MAX_BYTES });
const dir = temporaryFolder('cluster-test');
const roles = new NatsRoles(dir);
let cluster: NatsCluster;
let redis: TestServer;
let link: NatsLink;
let env: Record<string, string>;
let ports: { ingest: number; ingestAdmin: number; processor: number };
const programs: Command[] = [];

const as = (role: Role): Record<string, string> => ({ ...env, SLUICE_NATS_CREDS: roles.seedFile(role) });
const linkAs = (role: 'setup' | 'processor'): Promise<NatsLink> =>
  NatsLink.connect({
    urls: cluster.urls,
    credsFile: roles.seedFile(role),
    role,
    name: 'test',
    log,
    waitForServer: true,
  });
/** What the servers denied to anybody so far. */
const denied = (): string[] =>
  readFileSync(join(dir, 'nats.log'), 'utf8')
    .split('\n')
    .filter((line) => /Violation/.test(line))
    .map((line) => line.replace(/^.*?(Publish|Subscription) Violation/, '$1'));

const sluice = (...args: string[]) => runCommand(args, as(args[0] === 'setup' ? 'setup' : 'cli'));
const finding = async (what: string): Promise<Finding | undefined> => {
  const { checks } = JSON.parse((await sluice('doctor', '--json')).out) as { checks: Finding[] };
  return checks.find((one) => one.what === what);
};
const metrics = async (port: number): Promise<string> =>
  (await fetch(`http://127.0.0.1:${port}/metrics`).catch(() => undefined))?.text() ?? '';
const bothSay = (line: string) => async (): Promise<boolean> => {
  const texts = await Promise.all([ports.ingestAdmin, ports.processor].map(metrics));
  return texts.every((text) => text.split('\n').includes(line));
};
const natsOf = async (port: number): Promise<string | undefined> => {
  const ready = await fetch(`http://127.0.0.1:${port}/readyz`).catch(() => undefined);
  return ((await ready?.json()) as { checks: { nats: string } } | undefined)?.checks.nats;
};
const bothHave = (nats: string) => async (): Promise<boolean> =>
  (await natsOf(ports.ingestAdmin)) === nats && (await natsOf(ports.processor)) === nats;

async function leaders(): Promise<string[]> {
  const { streams } = await link.manager();
  const infos = await Promise.all(streamsOf(wanted).map((name) => streams.info(name)));
  return infos.map(({ cluster: of }) => `${of?.leader}`);
}

beforeAll(async () => {
  const lines = [`log_file: ${JSON.stringify(join(dir, 'nats.log'))}`, roles.config()];
  [cluster, redis] = await Promise.all([NatsCluster.start(lines), redisServer()]);
  link = await linkAs('setup');
  ports = {
    ingest: await lastingPort(),
    ingestAdmin: await lastingPort(),
    processor: await lastingPort(),
  };
  env = {
    SLUICE_NATS_URL: cluster.urls.join(','),
    SLUICE_REDIS_URL: redis.url,
    SLUICE_SINK: `ndjson:${temporaryFolder('cluster-sink')}`,
    SLUICE_STREAM_REPLICAS: '3',
    SLUICE_STREAM_MAX_BYTES: `${MAX_BYTES}`,
    SLUICE_PORT: `${ports.ingest}`,
    SLUICE_WORKERS: '1',
    SLUICE_LOG_LEVEL: 'warn',
  };
  // A cluster that has just started may not have a leader for its streams yet.
  await until(async () => (await sluice('setup')).status === 0);
  programs.push(new Command(['ingest'], { ...as('ingest'), SLUICE_ADMIN_PORT: `${ports.ingestAdmin}` }));
  programs.push(new Command(['processor'], { ...as('processor'), SLUICE_ADMIN_PORT: `${ports.processor}` }));
  await until(bothSay('sluice_stream_replicas_current{stream="SLUICE_EVENTS"} 3'));
});
afterAll(async () => {
  await Promise.all(programs.map((program) => program.stop()));
  await link?.close();
  await Promise.all([cluster?.close(), redis?.close()]);
  rmSync(dir, { recursive: true, force: true });
});

describe('leaders that are all on one server', () => {
  const led = (name: string, leader: string) => ({
    name,
    stepDown: '',
    leader,
    others: ['a', 'b', 'c'].filter((one) => one !== leader),
  });

  it('are spread by the fewest moves', () => {
    const all = Array.from({ length: 9 }, (_, n) => led(`${n}`, 'a'));
    const moves = movesFor(all);
    expect(moves).toHaveLength(6);
    expect(moves.filter(({ to }) => to === 'b')).toHaveLength(3);
    expect(movesFor([led('1', 'a'), led('2', 'b'), led('3', 'c')])).toEqual([]);
    expect(movesFor([{ ...led('1', 'a'), others: [] }])).toEqual([]);
  });

  /** Until one server leads most of the streams. */
  async function crowd(): Promise<void> {
    await until(async () => {
      const names = await leaders().catch(() => []);
      if (names.length > 0 && isLopsided(names)) return true;
      for (const [at, name] of streamsOf(wanted).entries())
        if (names[at] !== 'node0')
          await link.connection
            .request(`$JS.API.STREAM.LEADER.STEPDOWN.${name}`, '', { timeout: 5_000 })
            .catch(() => undefined);
      await new Promise((resolve) => setTimeout(resolve, 500));
      return false;
    }, 120_000);
  }

  it('are named by doctor, and spread by setup --balance', async () => {
    await crowd();
    const names = (await leaders()).sort();
    const found = [...new Set(names)].map((name) => `${name} ${names.filter((one) => one === name).length}`);
    expect(await finding('leaders of streams')).toMatchObject({ state: 'warn', found: found.join(', ') });
    expect((await sluice('setup', '--balance')).status).toBe(0);
    await until(async () => !isLopsided(await leaders()));
    expect(await finding('leaders of streams')).toMatchObject({ state: 'ok' });
  });

  it('are spread by the processor when that lasts for minutes', async () => {
    await crowd();
    let now = 0;
    const clock = { now: () => Date.now(), monotonic: () => now };
    const ofProcessor = await linkAs('processor');
    const watch = new StreamWatch({
      nats: async () => ofProcessor,
      clock,
      streams: streamNamesOf(1),
      buckets: BUCKETS,
    });
    const keeper = new Keeper({ link: ofProcessor, watch, wanted, clock, log, lookMs: 100 });
    await keeper.start();
    try {
      await new Promise((resolve) => setTimeout(resolve, 500));
      expect(isLopsided(await leaders())).toBe(true);
      // Minutes go by at each look: a broker may refuse a first request during an election.
      await until(async () => {
        now += 2 * LOPSIDED_MS_MAX;
        return !isLopsided(await leaders().catch(() => ['', '']));
      });
    } finally {
      await keeper.stop();
      await ofProcessor.close();
    }
    expect(denied()).toEqual([]);
  });
});

it('a server that is lost shows in the metrics of both programs and in doctor, until it is back', async () => {
  await cluster.kill(2);
  await until(bothSay('sluice_stream_replicas_current{stream="SLUICE_EVENTS"} 2'));
  expect(await bothSay('sluice_stream_replicas{stream="SLUICE_EVENTS"} 3')()).toBe(true);
  expect(await bothSay('sluice_jetstream_available 1')()).toBe(true);
  expect(await finding('stream SLUICE_EVENTS replicas')).toMatchObject({
    state: 'fail',
    found: '2 of 3 are current (node2)',
  });
  await cluster.restart(2);
  await until(bothSay('sluice_stream_replicas_current{stream="SLUICE_EVENTS"} 3'));
  expect(await finding('stream SLUICE_EVENTS replicas')).toBeUndefined();
});

it('a cluster without quorum is away, though its last server is connected', async () => {
  await Promise.all([cluster.kill(1), cluster.kill(2)]);
  await until(bothHave('away'));
  await until(bothSay('sluice_jetstream_available 0'));
  expect(await bothSay('sluice_stream_replicas_current{stream="SLUICE_EVENTS"} 0')()).toBe(true);
  await Promise.all([cluster.restart(1), cluster.restart(2)]);
  await until(bothHave('ok'));
  await until(bothSay('sluice_stream_replicas_current{stream="SLUICE_EVENTS"} 3'));
});

it('a server that is drained gives its leaders away before it ends', async () => {
  await until(async () => {
    await sluice('setup', '--balance');
    return (await leaders().catch((): string[] => [])).includes('node1');
  });
  process.kill(cluster.pid(1), 'SIGUSR2'); // nats-server --signal ldm
  await until(async () => !(await leaders().catch(() => ['node1'])).includes('node1'));
  await cluster.kill(1);
  await cluster.restart(1);
  await until(bothSay('sluice_stream_replicas_current{stream="SLUICE_EVENTS"} 3'));
});

describe('a server that does not come back', () => {
  const copies = async (): Promise<string[]> => {
    const { cluster: of } = await (await link.manager()).streams.info('SLUICE_EVENTS');
    const current = (of?.replicas ?? []).filter((one) => one.current && !one.offline);
    return [`${of?.leader}`, ...current.map(({ name }) => name)].sort();
  };

  it('has a successor of its name, with an empty disk', async () => {
    await cluster.kill(2);
    await until(bothSay('sluice_stream_replicas_current{stream="SLUICE_EVENTS"} 2'));
    await cluster.replace(2, 'node2');
    await until(bothSay('sluice_stream_replicas_current{stream="SLUICE_EVENTS"} 3'));
  });

  it('has a successor of another name, which gets the copies when the old one is removed', async () => {
    await cluster.kill(2);
    await cluster.replace(2, 'node3');
    const seed = Buffer.from(readFileSync(roles.seedFile('sys'), 'utf8').trim());
    const sys = await connect({ servers: cluster.urls[0], authenticator: nkeyAuthenticator(seed) });
    await until(async () => {
      // What `nats server cluster peer-remove node2` sends.
      const removed = await sys
        .request('$JS.API.SERVER.REMOVE', JSON.stringify({ peer: 'node2' }), { timeout: 5_000 })
        .then(
          (msg) => msg.json() as { success?: boolean },
          () => undefined,
        );
      return removed?.success === true;
    });
    await sys.close();
    await until(async () => (await copies().catch(() => [])).join() === 'node0,node1,node3');
    await until(bothSay('sluice_stream_replicas_current{stream="SLUICE_EVENTS"} 3'));
    expect(denied()).toEqual([]);
  });
});
