/** Each entry of docs/operations.md, "Rotating", on servers that ask for everything, under load: no request is refused. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  copyFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { Agent, request } from 'node:http';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findServer } from '../../src/commands/dev/servers.ts';
import { createLog } from '../../src/lib/log.ts';
import { ProjectStore } from '../../src/projects/project-store.ts';
import { NatsLink } from '../../src/stream/nats.ts';
import { setupTopology } from '../../src/stream/setup/setup.ts';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { lastingPort, temporaryFolder } from '../support/servers.ts';
import { Command, MIB, until } from '../support/system.ts';
import { hasOpenssl, makeCertificates } from './certificates.ts';
import { NatsRoles } from './nats-roles.ts';

const CLIENTS = 8;
const PAUSE_MS = 20;
/** Of one worker to NATS: one for events, one for the parts of large envelopes. */
const CONNECTIONS = 2;
/** Requests that are answered after each step. */
const ENOUGH = 200;
const log = createLog('silent');

/** A file appears whole, as Kubernetes and careful scripts do it. */
function replaceFile(path: string, content: string | Buffer): void {
  writeFileSync(`${path}.next`, content, { mode: 0o600 });
  renameSync(`${path}.next`, path);
}

/** Keeps asking, and writes down each answer. */
class Load {
  readonly #agent = new Agent({ keepAlive: true, maxSockets: CLIENTS });
  readonly told: { id: string; status: number | string }[] = [];
  readonly #clients: Promise<void>[];
  #stopped = false;

  constructor(url: URL) {
    this.#clients = Array.from({ length: CLIENTS }, async () => {
      while (!this.#stopped) {
        this.told.push(await this.#post(url, eventId()));
        await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      }
    });
  }

  async more(count = ENOUGH): Promise<void> {
    const before = this.told.length;
    await until(() => this.told.length >= before + count);
  }

  /** @returns what was answered other than 200 */
  async end(): Promise<unknown[]> {
    this.#stopped = true;
    await Promise.all(this.#clients);
    this.#agent.destroy();
    return this.told.filter(({ status }) => status !== 200);
  }

  #post(url: URL, id: string): Promise<{ id: string; status: number | string }> {
    return new Promise((resolve) => {
      const req = request(url, { agent: this.#agent, method: 'POST' }, (res) => {
        res.resume();
        res.once('end', () => resolve({ id, status: res.statusCode ?? 0 }));
      });
      req.once('error', ({ message }) => resolve({ id, status: message }));
      req.end(errorEvent(id));
    });
  }
}

describe.each(hasOpenssl ? ['openssl'] : [])('with certificates of %s', () => {
  let nats: ChildProcess;
  let redis: ChildProcess;
  const commands: Command[] = [];
  const sent: string[] = [];
  let dir: string;
  let roles: NatsRoles;
  let natsConf: (authorization: string) => string;
  let natsUrl: string;
  let operator: Redis;
  let url: URL;

  const file = (name: string): string => join(dir, name);
  const start = (kind: 'redis-server' | 'nats-server', args: string[]): ChildProcess => {
    const bins = { redis: process.env.REDIS_SERVER_BIN ?? '', nats: process.env.NATS_SERVER_BIN ?? '' };
    return spawn(findServer(kind, bins, process.env.PATH ?? '') ?? kind, args, { stdio: 'ignore' });
  };
  const reloadNats = (authorization: string): void => {
    replaceFile(file('nats.conf'), natsConf(authorization));
    nats.kill('SIGHUP');
  };
  const user = (...rules: string[]) => operator.call('ACL', 'SETUSER', 'sluice', ...rules);
  /** The ingest's log lines with this text. */
  const said = (text: string): number => (commands[0]?.log.split(text).length ?? 1) - 1;

  /** Runs one rotation under load. */
  async function underLoad(steps: (load: Load) => Promise<void>): Promise<void> {
    const load = new Load(url);
    await load.more();
    await steps(load);
    await load.more();
    const refused = await load.end();
    sent.push(...load.told.filter(({ status }) => status === 200).map(({ id }) => id));
    expect(refused).toEqual([]);
  }
  const served = (): Promise<boolean> =>
    fetch(url, { method: 'POST', body: errorEvent(eventId()) }).then(
      (res) => res.ok,
      () => false,
    );

  beforeAll(async () => {
    dir = temporaryFolder('rotation');
    mkdirSync(file('data'));
    makeCertificates(dir);
    copyFileSync(file('ca.crt'), file('trusted.crt'));
    writeFileSync(file('password'), 'one\n');
    roles = new NatsRoles(dir);
    const [natsPort, redisPort, port] = [await lastingPort(), await lastingPort(), await lastingPort()];
    natsConf = (authorization) =>
      [
        `listen: 127.0.0.1:${natsPort}`,
        `jetstream { store_dir: "${file('data')}" }`,
        `tls { cert_file: "${file('tls.crt')}", key_file: "${file('tls.key')}" }`,
        authorization,
      ].join('\n');
    writeFileSync(file('nats.conf'), natsConf(roles.config()));
    nats = start('nats-server', ['-c', file('nats.conf')]);
    const tls = ['cert-file', 'tls.crt', 'key-file', 'tls.key', 'ca-cert-file', 'ca.crt'].map((word, at) =>
      at % 2 === 0 ? `--tls-${word}` : file(word),
    );
    const place = ['--port', '0', '--tls-port', `${redisPort}`, '--bind', '127.0.0.1', '--dir', file('data')];
    const rule = ['sluice', 'on', '>one', '~sluice:*', '+@all', '-@dangerous', '+info'];
    const rights = ['--requirepass', 'operator', '--user', ...rule];
    redis = start('redis-server', [...place, ...tls, '--tls-auth-clients', 'no', '--save', '', ...rights]);
    operator = new Redis({
      port: redisPort,
      password: 'operator',
      tls: { rejectUnauthorized: false },
      retryStrategy: () => 100,
    });
    operator.on('error', () => undefined);
    natsUrl = `tls://127.0.0.1:${natsPort}`;
    const linkAs = (role: 'setup' | 'cli'): Promise<NatsLink> =>
      NatsLink.connect({
        urls: [natsUrl],
        credsFile: roles.seedFile(role),
        caFile: file('ca.crt'),
        name: 'test',
        role,
        log,
        waitForServer: true,
      });
    const setup = await linkAs('setup');
    await setupTopology(setup, { replicas: 1, shards: 1, maxBytes: 64 * MIB });
    await setup.close();
    const cli = await linkAs('cli');
    const store = await ProjectStore.open(cli);
    const project = await store.create({
      plan: 'Platform',
      quota: 1_000_000,
      overage: false,
      filters: [],
      allowedOrigins: [],
    });
    await cli.close();
    const env = {
      SLUICE_REDIS_URL: `rediss://sluice@127.0.0.1:${redisPort}`,
      SLUICE_REDIS_PASSWORD_FILE: file('password'),
      SLUICE_NATS_URL: natsUrl,
      SLUICE_TLS_CA_FILE: file('trusted.crt'),
      SLUICE_SINK: `ndjson:${file('sink')}`,
      SLUICE_PORT: `${port}`,
      SLUICE_WORKERS: '1',
      SLUICE_LOG_LEVEL: 'info',
    };
    for (const role of ['ingest', 'processor'] as const) {
      const own = { SLUICE_NATS_CREDS: roles.seedFile(role), SLUICE_ADMIN_PORT: `${await lastingPort()}` };
      commands.push(new Command([role], { ...env, ...own }));
    }
    url = new URL(`http://127.0.0.1:${port}/api/${project.id}/envelope/?compat_key=${project.key}`);
    await until(served);
  });
  afterAll(async () => {
    await Promise.all(commands.map((command) => command.stop()));
    operator?.disconnect();
    for (const server of [nats, redis]) {
      if (server.exitCode !== null) continue;
      server.kill('SIGTERM');
      await once(server, 'exit');
    }
    rmSync(dir, { recursive: true, force: true });
  });

  it('the password of Redis: both hold, the file changes, the old one goes', async () => {
    await underLoad(async (load) => {
      await user('>two');
      replaceFile(file('password'), 'two\n');
      await load.more();
      await user('<one');
    });
    await operator.call('CLIENT', 'KILL', 'USER', 'sluice');
    await until(served);
  });

  it('the password of Redis, changed at the server first: served again as soon as the file has it', async () => {
    await user('resetpass', '>three');
    await operator.call('CLIENT', 'KILL', 'USER', 'sluice');
    await until(async () => !(await served()));
    replaceFile(file('password'), '');
    replaceFile(file('password'), 'three');
    await until(served);
  });

  it('the key of ingest at NATS: both hold, the file changes, ingest moves over, the old one goes', async () => {
    await underLoad(async (load) => {
      const before = roles.rotate('ingest');
      reloadNats(roles.config({ ingest: before }));
      roles.show('ingest');
      await until(() => said('connected with new credentials') === CONNECTIONS);
      await load.more();
      reloadNats(roles.config());
      await load.more();
    });
    expect(said('nats: disconnected')).toBe(0);
  });

  it('the key of the processor at NATS, whose connection is cut: nobody notices', async () => {
    await underLoad(async (load) => {
      const before = roles.rotate('processor');
      reloadNats(roles.config({ processor: before }));
      roles.show('processor');
      await load.more();
      reloadNats(roles.config());
      await load.more();
    });
    expect(said('nats: disconnected')).toBe(0);
  });

  it('the authority and certificates: both are trusted, servers change, the old one goes', async () => {
    const old = readFileSync(file('ca.crt'), 'utf8');
    await underLoad(async (load) => {
      makeCertificates(dir);
      const next = readFileSync(file('ca.crt'), 'utf8');
      replaceFile(file('trusted.crt'), `${old}${next}`);
      await operator.call('CONFIG', 'SET', 'tls-cert-file', file('tls.crt'), 'tls-key-file', file('tls.key'));
      reloadNats(roles.config());
      await load.more();
      replaceFile(file('trusted.crt'), next);
    });
    await operator.call('CLIENT', 'KILL', 'USER', 'sluice');
    await until(served);
    nats.kill('SIGTERM');
    await once(nats, 'exit');
    nats = start('nats-server', ['-c', file('nats.conf')]);
    await until(served);
  });

  it('nothing that was accepted is missing', async () => {
    await until(() => {
      const stored = storedIds(file('sink'));
      return sent.every((id) => stored.has(id));
    });
  });
});

function storedIds(folder: string): Set<string> {
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' });
  const texts = files
    .filter((name) => name.endsWith('.ndjson'))
    .map((name) => readFileSync(join(folder, name), 'utf8'));
  return new Set(texts.flatMap((text) => text.match(/(?<="event_id":")[0-9a-f]{32}/g) ?? []));
}
