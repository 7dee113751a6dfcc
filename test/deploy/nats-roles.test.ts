/** deploy/nats/users.conf on a real nats-server: each role does all that it must, and is denied what is none of its work. */
import { execFile, spawn, spawnSync } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import {
  connect,
  createInbox,
  headers,
  type MsgHdrs,
  type NatsConnection,
  nkeyAuthenticator,
} from '@nats-io/transport-node';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createLog } from '../../src/lib/log.ts';
import { CheckpointBucket } from '../../src/projects/usage/checkpoint-bucket.ts';
import { NatsLink } from '../../src/stream/nats.ts';
import { keepAcknowledged } from '../stream/leftovers.ts';
import { errorEvent, eventId } from '../support/envelopes.ts';
import {
  lastingPort,
  natsServerWith,
  redisServer,
  type TestServer,
  temporaryFolder,
} from '../support/servers.ts';
import { Command, MIB, until } from '../support/system.ts';
import { NatsRoles, ROLES, type Role, USERS_CONF } from './nats-roles.ts';

const CLI = new URL('../../dist/cli.js', import.meta.url).pathname;
const run = promisify(execFile);
const SECRET = 'sluice_projects';
let dir: string;
let nats: TestServer;
let redis: TestServer;
let roles: NatsRoles;
let env: Record<string, string>;
let publicPort: number;
const commands: Command[] = [];

const as = (role: Role): Record<string, string> => ({ ...env, SLUICE_NATS_CREDS: roles.seedFile(role) });
/** What the server denied to anybody so far. */
const denied = (): string[] =>
  readFileSync(join(dir, 'nats.log'), 'utf8')
    .split('\n')
    .filter((line) => /Violation/.test(line))
    .map((line) => line.replace(/^.*?(Publish|Subscription) Violation/, '$1'));

const linkAs = (role: Exclude<Role, 'sys'>): Promise<NatsLink> =>
  NatsLink.connect({
    urls: [nats.url],
    credsFile: roles.seedFile(role),
    name: 'test',
    // No program has the role of backups: the `nats` tool has.
    ...(role !== 'backup' && { role }),
    log: createLog('silent'),
  });

function connectAs(role: Role): Promise<NatsConnection> {
  const seed = readFileSync(roles.seedFile(role), 'utf8').trim();
  const inboxPrefix = `_INBOX.${role}`;
  return connect({ servers: nats.url, authenticator: nkeyAuthenticator(Buffer.from(seed)), inboxPrefix });
}

/** What a command prints. @throws with what it says against it */
const sluice = async (role: Role, ...args: string[]): Promise<string> =>
  (await run('node', [CLI, ...args], { env: { ...process.env, ...as(role) }, timeout: 60_000 })).stdout;

beforeAll(async () => {
  dir = temporaryFolder('nats-roles');
  roles = new NatsRoles(dir);
  nats = await natsServerWith(`log_file: ${JSON.stringify(join(dir, 'nats.log'))}`, roles.config());
  redis = await redisServer();
  publicPort = await lastingPort();
  env = {
    SLUICE_REDIS_URL: redis.url,
    SLUICE_NATS_URL: nats.url,
    SLUICE_STREAM_MAX_BYTES: `${64 * MIB}`,
    SLUICE_SINK: `ndjson:${join(dir, 'sink')}`,
    SLUICE_PORT: `${publicPort}`,
    SLUICE_WORKERS: '1',
    SLUICE_LOG_LEVEL: 'warn',
  };
});
afterAll(async () => {
  await Promise.all(commands.map((command) => command.stop()));
  await Promise.all([nats?.close(), redis?.close()]);
  rmSync(dir, { recursive: true, force: true });
});

it('names no key: the server refuses the file until it is filled in', async () => {
  await expect(natsServerWith(readFileSync(USERS_CONF, 'utf8'))).rejects.toThrow(/nkey/i);
});

describe('each role does its work, and the server denies it nothing', () => {
  let project: { id: string; key: string };
  const url = (): string =>
    `http://127.0.0.1:${publicPort}/api/${project.id}/envelope/?compat_key=${project.key}`;
  const send = (body: string): Promise<Response> => fetch(url(), { method: 'POST', body });
  const stored = (text: string): boolean =>
    spawnSync('grep', ['-rl', text, join(dir, 'sink')], { encoding: 'utf8' }).stdout.includes('.ndjson');

  const letters = async (): Promise<{ id: string }[]> =>
    JSON.parse(await sluice('cli', 'dead-letters', 'list', '--json'));

  it('setup makes what is missing, again and with other bounds', async () => {
    await sluice('setup', 'setup');
    expect(await sluice('setup', 'setup')).not.toContain('created');
    env.SLUICE_STREAM_MAX_BYTES = `${80 * MIB}`;
    expect(await sluice('setup', 'setup')).toContain('SLUICE_EVENTS');
    expect(denied()).toEqual([]);
  });

  it('setup makes streams for another number of shards, also where acknowledged frames are left', async () => {
    const links = await Promise.all((['setup', 'ingest', 'processor'] as const).map(linkAs));
    const [setup, ingest, processor] = links as [NatsLink, NatsLink, NatsLink];
    await keepAcknowledged(await setup.manager(), 'SLUICE_EVENTS');
    await ingest.js.publish('sluice.events.0', 'a frame');
    const consumer = await processor.js.consumers.get('SLUICE_EVENTS', 'processor');
    await (await consumer.next())?.ackAck();
    await Promise.all(links.map((link) => link.close()));
    env.SLUICE_STREAM_SHARDS = '2';
    expect(await sluice('setup', 'setup')).toContain('deleted stream SLUICE_EVENTS');
    env.SLUICE_STREAM_SHARDS = '1';
    expect(await sluice('setup', 'setup')).toContain('created stream SLUICE_EVENTS');
    expect(denied()).toEqual([]);
  });

  it('ingest and processor serve: events, a large envelope, a heartbeat, an item that nobody can store', async () => {
    const adminPort = await lastingPort();
    commands.push(new Command(['ingest'], { ...as('ingest'), SLUICE_ADMIN_PORT: `${adminPort}` }));
    const other = { SLUICE_ADMIN_PORT: `${await lastingPort()}` };
    commands.push(new Command(['processor'], { ...as('processor'), ...other }));
    const ready = (): Promise<boolean> =>
      fetch(`http://127.0.0.1:${publicPort}/readyz`).then(
        (res) => res.ok,
        () => false,
      );
    await until(ready);
    project = JSON.parse(await sluice('cli', 'project', 'create', '--plan', 'Platform', '--json'));
    const { token } = JSON.parse(await sluice('cli', 'heartbeat', 'create', '--json')) as { token: string };
    const [small, large, broken] = [eventId(), eventId(), eventId()];
    await until(async () => (await send(errorEvent(small))).ok);
    expect((await send(errorEvent(large, 'x'.repeat(3 * MIB)))).status).toBe(200);
    expect((await send(`{"event_id":"${broken}"}\n{"type":"event"}\n{no json`)).status).toBe(200);
    const beat = `http://127.0.0.1:${publicPort}/heartbeat/${token}`;
    expect((await fetch(beat, { method: 'POST' })).status).toBe(200);
    await until(() => stored(small) && stored(large) && stored(token));
    // A scrape leaves them out when the broker takes its time.
    const metrics = async (): Promise<string> =>
      (await fetch(`http://127.0.0.1:${adminPort}/metrics`)).text();
    await until(async () => (await metrics()).includes('sluice_stream_bytes{stream="SLUICE_EVENTS"}'));
    await until(async () => denied().length > 0 || (await letters()).length > 0);
    expect(denied()).toEqual([]);
  });

  it('ingest notes a loss of counts, and the processor compares and forgets it', async () => {
    const links = await Promise.all((['ingest', 'processor'] as const).map(linkAs));
    const log = createLog('silent');
    const [ingest, processor] = links.map((link) => new CheckpointBucket({ link, log })) as [
      CheckpointBucket,
      CheckpointBucket,
    ];
    await ingest.noteLoss();
    const loss = await processor.readLoss();
    expect(loss?.month).toMatch(/^\d{4}-\d\d$/);
    expect(await processor.deletedIds(`${loss?.month}`)).toEqual(new Set());
    if (loss) await processor.forgetLoss(loss);
    expect(await processor.readLoss()).toBeUndefined();
    await Promise.all(links.map((link) => link.close()));
    expect(denied()).toEqual([]);
  });

  it('setup deletes a consumer, as the runbook says, and the processor makes it again', async () => {
    const link = await linkAs('setup');
    const { consumers } = await link.manager();
    await consumers.delete('SLUICE_LOGS', 'processor');
    await until(() =>
      consumers.info('SLUICE_LOGS', 'processor').then(
        () => true,
        () => false,
      ),
    );
    await link.close();
    expect(denied()).toEqual([]);
  });

  it('the processor makes a stream again that was deleted, with its consumer', async () => {
    const link = await linkAs('setup');
    const manager = await link.manager();
    await manager.streams.delete('SLUICE_EVENTS');
    await until(() =>
      manager.consumers.info('SLUICE_EVENTS', 'processor').then(
        () => true,
        () => false,
      ),
    );
    await link.close();
    const again = eventId();
    expect((await send(errorEvent(again))).status).toBe(200);
    await until(() => stored(again));
    expect(denied()).toEqual([]);
  });

  it('commands show and change what operators work with', async () => {
    const { id } = project;
    const letter = (await letters())[0]?.id ?? '';
    // By itself: the replay takes the letter away.
    await sluice('cli', 'dead-letters', 'show', letter);
    const other = JSON.parse(await sluice('cli', 'project', 'create', '--plan', 'Free', '--json')) as {
      id: string;
    };
    const apart = [
      ['project', 'set', id, '--rate-limit', '5000'],
      ['project', 'delete', other.id, '--yes'],
      ['project', 'list'],
      ['heartbeat', 'list'],
      ['usage', id],
      ['usage', 'reconcile', id],
      ['doctor'],
    ];
    await Promise.all(apart.map((args) => sluice('cli', ...args)));
    await expect(sluice('cli', 'dead-letters', 'replay', letter)).rejects.toThrow(/was filed again, as/);
    expect(await sluice('cli', 'project', 'history', id)).toContain('5000');
    await sluice('cli', 'dead-letters', 'purge', '--all');
    expect(denied()).toEqual([]);
  });

  it('tail shows what ingest accepts', async () => {
    const tail = spawn('node', [CLI, 'tail', project.id], {
      env: { ...process.env, ...as('cli') },
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    let shown = '';
    tail.stdout.on('data', (data: Buffer) => {
      shown += data.toString();
    });
    try {
      await until(async () => {
        expect((await send(errorEvent(eventId(), 'to be seen'))).status).toBe(200);
        return shown.includes('to be seen');
      });
    } finally {
      tail.kill();
    }
    expect(denied()).toEqual([]);
  });

  it('an ingest with the management API serves with the rights of commands', async () => {
    const [port, adminPort] = [await lastingPort(), await lastingPort()];
    const token = 'feedfacefeedfacefeedfacefeedface';
    const own = { SLUICE_PORT: `${port}`, SLUICE_ADMIN_PORT: `${adminPort}`, SLUICE_ADMIN_TOKEN: token };
    commands.push(new Command(['ingest'], { ...as('cli'), ...own }));
    const path = `/api/${project.id}/envelope/?compat_key=${project.key}`;
    const sends = (): Promise<boolean> =>
      fetch(`http://127.0.0.1:${port}${path}`, { method: 'POST', body: errorEvent(eventId()) }).then(
        ({ status }) => status === 200,
        () => false,
      );
    await until(sends);
    const made = await fetch(`http://127.0.0.1:${adminPort}/v1/projects`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: JSON.stringify({ plan: 'Free' }),
    });
    expect(made.status, await made.text()).toBe(201);
    const ask = (what: string): Promise<Response> =>
      fetch(`http://127.0.0.1:${adminPort}/v1/${what}`, { headers: { authorization: `Bearer ${token}` } });
    const reader = (await ask('tail')).body?.getReader();
    let shown = '';
    void (async () => {
      for (let read = await reader?.read(); read?.value; read = await reader?.read())
        shown += Buffer.from(read.value).toString();
    })();
    await until(async () => (await sends()) && shown.includes('"type":"event"'));
    await reader?.cancel();
    const { checks } = (await (await ask('doctor')).json()) as { checks: { state: string; what: string }[] };
    const ofNats = checks.filter(({ what }) => /^(NATS|JetStream|stream|consumer|bucket)/.test(what));
    expect(ofNats.length).toBeGreaterThan(15);
    expect(ofNats.filter(({ state }) => state === 'fail')).toEqual([]);
    expect(denied()).toEqual([]);
  });
});

describe('backup', () => {
  let connection: NatsConnection;
  beforeAll(async () => {
    connection = await connectAs('backup');
  });
  afterAll(() => connection.close());

  const ask = async (subject: string, body: unknown): Promise<Record<string, unknown>> =>
    (await connection.request(subject, JSON.stringify(body), { timeout: 10_000 })).json();

  it('brings back a bucket that was deleted, while ingest serves on from its copy', async () => {
    const checksOf = async (): Promise<Record<string, string>> => {
      const ready = await (await fetch(`http://127.0.0.1:${publicPort}/readyz`)).json();
      return (ready as { checks: Record<string, string> }).checks;
    };
    const [known] = JSON.parse(await sluice('cli', 'project', 'list', '--json')) as {
      id: string;
      key: string;
    }[];
    const send = async (): Promise<number> => {
      const url = `http://127.0.0.1:${publicPort}/api/${known?.id}/envelope/?compat_key=${known?.key}`;
      return (await fetch(url, { method: 'POST', body: errorEvent(eventId()) })).status;
    };
    const stream = `KV_${SECRET}`;
    const inbox = createInbox('_INBOX.backup');
    const chunks: Uint8Array[] = [];
    const pieces = connection.subscribe(inbox);
    const { config, state } = await ask(`$JS.API.STREAM.SNAPSHOT.${stream}`, { deliver_subject: inbox });
    for await (const piece of pieces) {
      if (piece.data.length === 0) break;
      chunks.push(piece.data);
      piece.respond();
    }
    expect(state).toMatchObject({ messages: expect.any(Number) });
    const before = await sluice('cli', 'project', 'list', '--json');
    expect(JSON.parse(before)).not.toEqual([]);

    const link = await linkAs('setup');
    await (await link.manager()).streams.delete(stream);
    await link.close();
    // Ingest serves on from its copy, and says that it has nothing else.
    await until(async () => (await checksOf()).registry === 'missing');
    expect(await send()).toBe(200);
    await expect(sluice('setup', 'setup')).rejects.toThrow(`the bucket ${SECRET} is missing`);
    await expect(sluice('cli', 'doctor')).rejects.toMatchObject({
      stdout: expect.stringMatching(new RegExp(`fail\\s+bucket ${SECRET}`)),
    });
    const { deliver_subject } = await ask(`$JS.API.STREAM.RESTORE.${stream}`, { config, state });
    for (const chunk of [...chunks, new Uint8Array()])
      await connection.request(`${deliver_subject}`, chunk, { timeout: 10_000 });
    expect(await sluice('cli', 'project', 'list', '--json')).toBe(before);
    await until(async () => (await checksOf()).registry === 'ok');
    expect(await send()).toBe(200);
    expect(denied()).toEqual([]);
  });
});

describe('somebody who holds a second copy of a seed', () => {
  /** Everything that comes to this connection, also what the server was asked for by others. */
  async function heardBy(role: Role): Promise<{ seen: () => string; close: () => Promise<void> }> {
    const connection = await connectAs(role);
    let seen = '';
    for (const subject of ['_INBOX.>', '_INBOX.*.>', `_INBOX.${role}.>`, 'sluice.>'])
      connection.subscribe(subject, {
        callback: (error, msg) => {
          if (!error) seen += Buffer.from(msg.data).toString('latin1');
        },
      });
    await connection.flush();
    return { seen: () => seen, close: () => connection.close() };
  }

  it('sees frames that are handed out with the key of the processor alone', async () => {
    const { id, key } = JSON.parse(
      await sluice('cli', 'project', 'create', '--plan', 'Platform', '--json'),
    ) as { id: string; key: string };
    const listeners = await Promise.all(ROLES.map(heardBy));
    const mark = `mark-${eventId()}`;
    const url = `http://127.0.0.1:${publicPort}/api/${id}/envelope/?compat_key=${key}`;
    await until(async () => (await fetch(url, { method: 'POST', body: errorEvent(eventId(), mark) })).ok);
    await until(() => listeners[ROLES.indexOf('processor')]?.seen().includes(mark) ?? false);
    const seeing = ROLES.filter((_, at) => listeners[at]?.seen().includes(mark));
    await Promise.all(listeners.map(({ close }) => close()));
    expect(seeing).toEqual(['processor']);
  });
});

it('ingest writes its own counters, and cannot empty their bucket with one of them', async () => {
  const connection = await connectAs('ingest');
  const rollup = headers();
  rollup.set('Nats-Rollup', 'all');
  const put = async (key: string, head?: MsgHdrs): Promise<Record<string, unknown>> =>
    (
      await connection.request(`$KV.sluice_counters.${key}`, '{}', {
        timeout: 5_000,
        ...(head && { headers: head }),
      })
    ).json();
  expect(await put('used.4711')).toHaveProperty('seq');
  expect(await put('used.4712', rollup)).toHaveProperty('error');
  const link = await linkAs('setup');
  const { state } = await (await link.manager()).streams.info('KV_sluice_counters', {
    subjects_filter: '$KV.sluice_counters.used.4711',
  });
  await link.close();
  expect(state.subjects).toEqual({ '$KV.sluice_counters.used.4711': 1 });
  await connection.close();
});

/** Subjects that a role may not publish to, and those that it may not listen on. */
const FORBIDDEN: Record<Exclude<Role, 'sys'>, { publish: string[]; subscribe: string[] }> = {
  ingest: {
    publish: [
      `$KV.${SECRET}.1`,
      'sluice.audit.project.1',
      '$JS.API.CONSUMER.MSG.NEXT.SLUICE_EVENTS.processor',
      '$JS.API.STREAM.MSG.GET.SLUICE_EVENTS',
      '$JS.API.STREAM.DELETE.SLUICE_EVENTS',
      '$JS.API.STREAM.PURGE.SLUICE_EVENTS',
      '$JS.API.STREAM.PURGE.KV_sluice_counters',
      '$JS.API.STREAM.MSG.DELETE.KV_sluice_counters',
      // Its answer, bytes as they were written, could be sent to the subject of a project.
      '$JS.API.DIRECT.GET.KV_sluice_counters.$KV.sluice_counters.used.1',
      '$KV.sluice_counters.crashes.SLUICE_EVENTS.1',
      '$KV.sluice_counters.outcomes.oldest',
      '$JS.ACK.SLUICE_EVENTS.processor.1.1.1.0.0',
      '$JS.API.STREAM.CREATE.OTHER',
    ],
    subscribe: ['sluice.>', '$KV.>', '>', '_INBOX.>', '_INBOX.processor.>', '_INBOX.cli.>'],
  },
  processor: {
    publish: [
      'sluice.events.0',
      `$KV.${SECRET}.1`,
      `$JS.API.CONSUMER.CREATE.KV_${SECRET}.x`,
      `$JS.API.STREAM.MSG.GET.KV_${SECRET}`,
      '$JS.API.STREAM.MSG.GET.KV_sluice_heartbeats',
      '$JS.API.STREAM.MSG.GET.SLUICE_AUDIT',
      '$KV.sluice_counters.checkpoints.2026-11.1',
      '$KV.sluice_counters.lost',
      '$JS.ACK.SLUICE_EVENTS.other.1.1.1.0.0',
      `$JS.API.CONSUMER.CREATE.KV_${SECRET}.processor`,
      `$JS.API.STREAM.CREATE.KV_${SECRET}`,
      '$JS.API.STREAM.CREATE.OTHER',
      '$JS.API.STREAM.DELETE.SLUICE_EVENTS',
      '$JS.API.STREAM.PURGE.SLUICE_EVENTS',
      '$JS.API.STREAM.UPDATE.SLUICE_EVENTS',
    ],
    subscribe: ['sluice.>', '$KV.>', '>', '_INBOX.>', '_INBOX.ingest.>', '_INBOX.cli.>'],
  },
  setup: {
    publish: [
      'sluice.events.0',
      `$KV.${SECRET}.1`,
      '$JS.API.CONSUMER.MSG.NEXT.SLUICE_EVENTS.processor',
      '$JS.API.STREAM.PURGE.SLUICE_EVENTS',
    ],
    subscribe: ['sluice.>', '$KV.>', '>', '_INBOX.>', '_INBOX.processor.>'],
  },
  cli: {
    publish: [
      '$JS.API.STREAM.DELETE.SLUICE_EVENTS',
      '$JS.API.STREAM.PURGE.SLUICE_EVENTS',
      '$JS.API.STREAM.PURGE.SLUICE_AUDIT',
      '$JS.API.STREAM.UPDATE.SLUICE_AUDIT',
      '$JS.API.CONSUMER.MSG.NEXT.SLUICE_EVENTS.processor',
      '$JS.API.CONSUMER.DELETE.SLUICE_EVENTS.processor',
    ],
    subscribe: ['sluice.>', '$KV.>', '>', '_INBOX.>', '_INBOX.processor.>'],
  },
  backup: {
    publish: [
      'sluice.events.0',
      `$KV.${SECRET}.1`,
      '$JS.API.STREAM.DELETE.SLUICE_EVENTS',
      '$JS.API.STREAM.PURGE.SLUICE_EVENTS',
      '$JS.API.STREAM.UPDATE.SLUICE_EVENTS',
      '$JS.API.STREAM.CREATE.OTHER',
    ],
    subscribe: ['sluice.>', '$KV.>', '>', '_INBOX.>', '_INBOX.processor.>'],
  },
};

describe('sys', () => {
  it('asks the servers, and reaches no stream', async () => {
    const connection = await connectAs('sys');
    const ping = (await connection.request('$SYS.REQ.SERVER.PING', '', { timeout: 10_000 })).json();
    expect(ping).toMatchObject({ server: { id: expect.any(String) } });
    const asked = connection.request('$JS.API.STREAM.INFO.SLUICE_EVENTS', '', { timeout: 2_000 });
    const answer = await asked.then(
      (msg) => msg.json() as object,
      () => ({ error: {} }),
    );
    expect(answer).toHaveProperty('error');
    await connection.close();
  });
});

describe.each(ROLES.filter((role) => role !== 'sys'))('the role %s', (role) => {
  let connection: NatsConnection;
  const refusals: string[] = [];
  beforeAll(async () => {
    connection = await connectAs(role);
    void (async () => {
      for await (const status of connection.status())
        if (status.type === 'error') refusals.push(status.error.message);
    })();
  });
  afterAll(() => connection.close());

  it.each(FORBIDDEN[role].publish)('may not publish to %s', async (subject) => {
    connection.publish(subject);
    await connection.flush();
    await until(() => refusals.some((text) => text.includes('Publish') && text.includes(`"${subject}"`)));
  });

  it.each(FORBIDDEN[role].subscribe)('may not listen on %s', async (subject) => {
    connection.subscribe(subject, { callback: () => undefined });
    await connection.flush();
    await until(() =>
      refusals.some((text) => text.includes('Subscription') && text.includes(`"${subject}"`)),
    );
  });
});

it('nobody comes in without a key', async () => {
  await expect(connect({ servers: nats.url, reconnect: false })).rejects.toThrow(/authorization/i);
});

it('an ingest without the rights of commands says what its management API lacks, and so does a command', async () => {
  const [port, adminPort] = [await lastingPort(), await lastingPort()];
  const token = 'feedfacefeedfacefeedfacefeedface';
  const own = { SLUICE_PORT: `${port}`, SLUICE_ADMIN_PORT: `${adminPort}`, SLUICE_ADMIN_TOKEN: token };
  commands.push(new Command(['ingest'], { ...as('ingest'), ...own }));
  const create = () =>
    fetch(`http://127.0.0.1:${adminPort}/v1/projects`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: JSON.stringify({ plan: 'Free' }),
    });
  await until(() => create().then(Boolean, () => false));
  const refused = await create();
  const what = /^NATS denies the user of SLUICE_NATS_CREDS a publish to \$\S+: .* \(CLI_RIGHTS of /;
  expect([refused.status, await refused.json()]).toEqual([
    500,
    expect.objectContaining({ title: 'The operation failed', detail: expect.stringMatching(what) }),
  ]);
  await expect(sluice('ingest', 'project', 'create', '--plan', 'Free')).rejects.toThrow(
    'NATS denies the user of SLUICE_NATS_CREDS a subscription to _INBOX.cli.',
  );
});
