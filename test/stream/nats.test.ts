import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { OutcomeLedger } from '../../src/ingest/usage/outcomes.ts';
import { systemClock as clock } from '../../src/lib/clock.ts';
import { ANSWER_MS_MAX } from '../../src/limits.ts';
import { CrashCounts } from '../../src/processor/crash-counts.ts';
import { DeadLetters } from '../../src/processor/dead-letters/dead-letters.ts';
import type { Delivery } from '../../src/processor/delivery.ts';
import { PullQueue } from '../../src/processor/pull-queue.ts';
import { ProjectStore } from '../../src/projects/project-store.ts';
import { Replica } from '../../src/projects/replica.ts';
import { CheckpointBucket } from '../../src/projects/usage/checkpoint-bucket.ts';
import { readOutcomes } from '../../src/projects/usage/outcome-day.ts';
import { NatsLink } from '../../src/stream/nats.ts';
import { Publisher } from '../../src/stream/publish/publisher.ts';
import { setupTopology } from '../../src/stream/setup/setup.ts';
import { follow } from '../../src/stream/tail.ts';
import { createNatsOperator } from '../deploy/nats-operator.ts';
import { NatsRoles } from '../deploy/nats-roles.ts';
import { projectOf } from '../ingest/limit/limit-fixture.ts';
import { link as connect, eventually, log } from '../projects/broker.ts';
import { freeze, thaw } from '../support/freeze.ts';
import {
  natsServer,
  natsServerInPlaceOf,
  natsServerWith,
  type TestServer,
  temporaryFolder,
} from '../support/servers.ts';
import { envelopeOf, MIB } from './broker.ts';

const WITHIN_MS = 30_000;
let server: TestServer;
let link: NatsLink;
afterEach(async () => {
  await link?.close();
  await server?.close();
});

it('connects again at once though the wall clock went back an hour since', async () => {
  server = await natsServer();
  const { now } = Date;
  const ahead = vi.spyOn(Date, 'now').mockImplementation(() => now() + 3_600_000);
  link = await connect(server.url);
  ahead.mockRestore();
  await server.stop();
  await eventually(WITHIN_MS, () => !link.connected);
  server = await natsServer({ port: server.port, dir: server.dir });
  await eventually(WITHIN_MS, () => link.connected);
  await link.connection.rtt();
});

it('says that it waits for a server that is not there when it starts', async () => {
  server = await natsServer();
  const { port, dir, url } = server;
  await server.stop();
  const lines: string[] = [];
  const noting = pino({}, { write: (line) => void lines.push(line) });
  const coming = NatsLink.connect({ urls: [url], name: 'test', log: noting, waitForServer: true });
  await eventually(WITHIN_MS, () => lines.some((line) => line.includes('"msg":"nats: not there yet"')));
  server = await natsServer({ port, dir });
  link = await coming;
});

it('tries a server that is away often while requests wait for it, and then a few times a second', async () => {
  server = await natsServer();
  link = await connect(server.url);
  const { port, dir } = server;
  await server.stop();
  const attempts: number[] = [];
  const gate = createServer((socket) => {
    attempts.push(performance.now());
    socket.destroy();
  }).listen(port, '127.0.0.1');
  await eventually(WITHIN_MS, () => attempts.length > 0);
  await sleep(ANSWER_MS_MAX);
  expect(attempts.length).toBeGreaterThan(10);
  attempts.length = 0;
  await eventually(WITHIN_MS, () => attempts.length >= 5);
  const times = attempts.slice(0, 5);
  expect((times[4] as number) - (times[0] as number)).toBeGreaterThan(900);
  await new Promise((resolve) => gate.close(resolve));
  server = await natsServer({ port, dir });
  await eventually(WITHIN_MS, () => link.connected);
});

it('gives up a connection to a server that stands still with more before it than the kernel takes', async () => {
  server = await natsServer();
  link = await connect(server.url);
  let losses = 0;
  link.onDisconnect(() => losses++);
  await freeze(server.pid);
  try {
    while (link.unsentBytes < MIB) {
      link.connection.publish('nobody', new Uint8Array(MIB / 2));
      await new Promise((resolve) => setImmediate(resolve));
    }
    const answered = link.connection.flush().catch(() => 'never');
    await eventually(WITHIN_MS, () => !link.connected);
    expect([await answered, losses]).toEqual(['never', 1]);
  } finally {
    thaw(server.pid);
  }
  await eventually(WITHIN_MS, () => link.connected);
  await link.connection.rtt();
});

describe('credentials in a file', () => {
  it('are read at each attempt to connect: new ones are used without a restart, torn ones do no harm', async () => {
    const [before, after] = [createNatsOperator(), createNatsOperator()];
    server = await natsServerWith(before.authConf);
    const credsFile = join(server.dir, 'user.creds');
    writeFileSync(credsFile, before.creds);
    link = await NatsLink.connect({ urls: [server.url], credsFile, name: 'test', log, waitForServer: true });
    await setupTopology(link, { replicas: 1, shards: 1, maxBytes: MIB });
    let reconnects = 0;
    let losses = 0;
    link.onReconnect(() => reconnects++);
    link.onDisconnect(() => losses++);
    await server.stop();
    const other = await natsServerInPlaceOf(server, after.authConf);
    writeFileSync(credsFile, 'half a fi');
    const torn = losses;
    await eventually(WITHIN_MS, () => losses >= torn + 5);
    expect([link.connected, reconnects]).toEqual([false, 0]);
    writeFileSync(credsFile, after.creds);
    await eventually(WITHIN_MS, () => link.connected);
    expect(reconnects).toBe(1);
    await setupTopology(link, { replicas: 1, shards: 1, maxBytes: MIB });
    await other.close();
  });
});

describe('credentials in a file of a link that hands over', () => {
  it('new ones make the next connection beside the first; while the server refuses them, nothing changes', async () => {
    const dir = temporaryFolder('seeds');
    const roles = new NatsRoles(dir);
    server = await natsServerWith(roles.config());
    const credsFile = roles.seedFile('setup');
    let refusals = 0;
    const noting = log.child({});
    noting.warn = () => void refusals++;
    link = await NatsLink.connect({
      urls: [server.url],
      credsFile,
      name: 'test',
      role: 'setup',
      log: noting,
      waitForServer: true,
      handsOver: true,
    });
    let [losses, reconnects] = [0, 0];
    link.onDisconnect(() => losses++);
    link.onReconnect(() => reconnects++);
    const first = link.connection;
    const reload = (text: string): void => {
      const file = join(server.dir, 'nats.conf');
      const own = readFileSync(file, 'utf8').split('\n').slice(0, 2);
      writeFileSync(file, [...own, text].join('\n'));
      server.process.kill('SIGHUP');
    };
    const before = roles.rotate('setup');
    roles.show('setup');
    await eventually(WITHIN_MS, () => refusals >= 1);
    expect([link.connected, link.connection === first, reconnects]).toEqual([true, true, 0]);
    reload(roles.config({ setup: before }));
    await eventually(WITHIN_MS, () => reconnects === 1);
    expect(link.connection).not.toBe(first);
    reload(roles.config());
    await eventually(WITHIN_MS, () => first.isClosed());
    await setupTopology(link, { replicas: 1, shards: 1, maxBytes: MIB });
    expect([link.connected, losses, reconnects]).toEqual([true, 0, 1]);
    rmSync(dir, { recursive: true });
  });
});

describe('a command that the server refuses', () => {
  it('is told so at once', async () => {
    server = await natsServerWith('authorization { user: other, password: one }');
    await expect(NatsLink.connect({ urls: [server.url], name: 'test', log })).rejects.toThrow(
      'Authorization',
    );
  });
});

describe('a URL of tls://', () => {
  it('is a demand: nothing is said to a server that speaks in the clear', async () => {
    server = await natsServer();
    const urls = [server.url.replace('nats://', 'tls://')];
    await expect(NatsLink.connect({ urls, name: 'test', log })).rejects.toThrow('tls');
  });
});

describe('a subscription that the server denies', () => {
  it('is there again when the server allows it', async () => {
    const user = (allowed: string): string =>
      `authorization { users: [ { user: a, password: b, permissions: { publish: ">", subscribe: { allow: ["_INBOX.>"${allowed}] } } } ] }\nno_auth_user: a`;
    server = await natsServerWith(user(''));
    let refused = 0;
    const noting = log.child({});
    noting.warn = () => void refused++;
    link = await NatsLink.connect({ urls: [server.url], name: 'test', log: noting });
    let heard = 0;
    link.subscribe('sluice.test', () => heard++);
    await eventually(WITHIN_MS, () => refused > 0);
    await server.stop();
    const other = await natsServerInPlaceOf(server, user(', "sluice.test"'));
    await eventually(WITHIN_MS, () => {
      if (link.connected) link.connection.publish('sluice.test');
      return heard > 0;
    });
    await other.close();
  });
});

describe('a connection that the client library closed by itself', () => {
  const closers: (() => unknown)[] = [];
  beforeEach(async () => {
    server = await natsServer();
    link = await connect(server.url);
    await setupTopology(link, { replicas: 1, shards: 1, maxBytes: 64 * MIB });
  });
  afterEach(async () => {
    for (const close of closers.splice(0).reverse()) await close();
  });

  /** As the library does when an authenticator throws. */
  async function breakConnection(): Promise<void> {
    const before = link.connection;
    await before.close();
    await eventually(WITHIN_MS, () => link.connected && link.connection !== before);
  }

  it('is made anew, and whatever hangs on it goes on: publisher, replica, queue, counters, ledgers, letters, tail', async () => {
    const publisher = new Publisher({ link, shards: 1, clock, log });
    const replica = new Replica({ link, planLimits: 'table', log, clock });
    const queue = new PullQueue({ link, stream: 'SLUICE_EVENTS', bytesMax: 16 * MIB, log });
    const counters = new CheckpointBucket({ link, log });
    const outcomes = new OutcomeLedger({ link, log });
    const crashes = new CrashCounts(link);
    const letters = new DeadLetters({ link, log });
    const seen: Uint8Array[] = [];
    closers.push(
      () => replica.stop(),
      () => outcomes.close(),
      () => letters.close(),
      () => queue.stop(),
      () => queue.frames.close(),
    );
    await replica.start();
    queue.start();
    const publish = (n: number): Promise<string> =>
      new Promise((resolve) =>
        publisher.publish(envelopeOf(n), { deadline: performance.now() + 5_000 }, resolve),
      );
    const taken = async (): Promise<Delivery> => {
      await queue.gather();
      await eventually(WITHIN_MS, () => !queue.frames.isEmpty);
      return queue.frames.take(() => true)[0] as Delivery;
    };
    const frame = { stream: 'SLUICE_EVENTS', sequence: 1 } as Delivery;
    const letter = {
      kind: 'frame',
      reason: 'a test',
      subject: 'sluice.events.0',
      body: Buffer.alloc(3),
    } as const;
    follow(link, 'frames', (shown) => seen.push(shown));
    expect(await publish(1)).toBe('stored');
    const early = await taken();
    await counters.write(counters.groupOf('1'), '2026-01', new Map([['1', 5]]));
    await crashes.write(frame, 1);
    await letters.publish([{ ...letter, frameId: 'before' }]);

    await breakConnection();
    await early.ackConfirmed();
    expect(await publish(2)).toBe('stored');
    await (await taken()).ackConfirmed();
    const { state } = await (await link.manager()).streams.info('SLUICE_EVENTS');
    expect(state.messages).toBe(0);
    await eventually(WITHIN_MS, () => seen.length > 0);
    const { id } = await (await ProjectStore.open(link)).create({
      plan: 'Pro',
      overage: false,
      filters: [],
      allowedOrigins: [],
    });
    await eventually(WITHIN_MS, () => replica.findProject(id) !== undefined);
    await counters.write(counters.groupOf('1'), '2026-01', new Map([['1', 7]]));
    expect(await new CheckpointBucket({ link, log }).read('1', '2026-01')).toBe(7);
    expect(await crashes.read(frame)).toBe(1);
    expect((await letters.publish([{ ...letter, frameId: 'after' }]))[0]).not.toHaveProperty('lost');
    outcomes.note(projectOf({ id: '1' }), 'accepted');
    await outcomes.flush();
    expect(await readOutcomes(link, '1', { now: Date.now(), hours: 1 })).toHaveLength(1);
  });

  it('is made anew when the server is back, if it is away just then', async () => {
    await server.stop();
    await link.connection.close();
    expect(link.connected).toBe(false);
    server = await natsServer(server);
    await eventually(WITHIN_MS, () => link.connected);
    expect((await (await link.manager()).streams.info('SLUICE_EVENTS')).state.messages).toBe(0);
  });

  it('is not made anew by a link that is closed', async () => {
    await server.stop();
    await link.connection.close();
    await link.close();
    server = await natsServer(server);
    const other = await connect(server.url);
    await other.connection.flush();
    expect(link.connected).toBe(false);
    await other.close();
  });
});
