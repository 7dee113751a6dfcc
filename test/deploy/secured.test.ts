/**
 * The production overlay's own configuration of Redis and NATS, with certificates and credentials, on real servers: three nats-servers,
 * one Redis, and sluice as a client that must prove who it is. Only addresses and folders are other ones.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findServer } from '../../src/commands/dev/servers.ts';
import { hostEnvironment } from '../../src/config.ts';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { lastingPort, temporaryFolder } from '../support/servers.ts';
import { Command, until } from '../support/system.ts';
import { hasOpenssl, makeCertificates } from './certificates.ts';
import { createNatsOperator } from './nats-operator.ts';

const PROJECT = new URL('../..', import.meta.url).pathname;
const OVERLAY = `${PROJECT}deploy/kubernetes/overlays/production`;
const SERVERS = 3;
const CREDS_EXPIRY = Math.floor(Date.now() / 1000) + 86_400;
const PASSWORD = 'a-pass:word/with@signs';

/** The server takes the shell's place and is ended when our end of pipe 3 closes, whatever becomes of this process. */
const UNTIL_WE_DIE = '(cat <&3 >/dev/null; kill -TERM $$ 2>/dev/null) & exec "$@" 3<&-';

const children: ChildProcess[] = [];
function launch(bin: string, args: string[], env: Record<string, string> = {}): void {
  const options = { env: { ...process.env, ...env }, stdio: ['ignore', 'ignore', 'ignore', 'pipe'] as never };
  children.push(spawn('/bin/sh', ['-c', UNTIL_WE_DIE, 'sh', bin, ...args], options));
}

function binary(kind: 'redis-server' | 'nats-server'): string {
  const { path, redisServerBin: redis, natsServerBin: nats } = hostEnvironment();
  const found = findServer(kind, { ...(redis && { redis }), ...(nats && { nats }) }, path);
  if (!found) throw new Error(`${kind} is not installed`);
  return found;
}

describe.each(hasOpenssl ? ['openssl'] : [])('with certificates of %s', () => {
  let dir: string;
  let env: Record<string, string>;
  let publicPort: number;
  const adminPorts: number[] = [];
  const commands: Command[] = [];

  async function startNats(): Promise<number[]> {
    const ports = await Promise.all(Array.from({ length: 3 * SERVERS }, () => lastingPort()));
    const { authConf, creds } = createNatsOperator(CREDS_EXPIRY);
    writeFileSync(join(dir, 'user.creds'), creds);
    for (let n = 0; n < SERVERS; n++) {
      const own = join(dir, `nats-${n}`);
      mkdirSync(join(own, 'auth'), { recursive: true });
      writeFileSync(join(own, 'auth/auth.conf'), authConf);
      let text = readFileSync(`${OVERLAY}/nats.conf`, 'utf8')
        .replaceAll('/etc/sluice/tls', dir)
        .replaceAll('/data', own)
        .replace('0.0.0.0:4222', `127.0.0.1:${ports[n]}`)
        .replace('0.0.0.0:6222', `127.0.0.1:${ports[SERVERS + n]}`)
        .replace('0.0.0.0:8222', `127.0.0.1:${ports[2 * SERVERS + n]}`);
      for (let peer = 0; peer < SERVERS; peer++)
        text = text.replace(`nats-${peer}.nats:6222`, `127.0.0.1:${ports[SERVERS + peer]}`);
      writeFileSync(join(own, 'nats.conf'), text);
      launch(binary('nats-server'), ['-c', join(own, 'nats.conf')], { POD_NAME: `nats-${n}` });
    }
    return ports.slice(0, SERVERS);
  }

  async function startRedis(): Promise<number> {
    const port = await lastingPort();
    const text = readFileSync(`${OVERLAY}/redis.conf`, 'utf8')
      .replaceAll('/etc/sluice/tls', dir)
      .replaceAll('/etc/sluice/users', dir)
      .replace('tls-port 6379', `tls-port ${port}`)
      .replace('bind 0.0.0.0', 'bind 127.0.0.1')
      .replace('dir /data', `dir ${dir}`);
    writeFileSync(join(dir, 'redis.conf'), text);
    const secrets = readFileSync(`${OVERLAY}/secrets.example.yaml`, 'utf8');
    const users = /users\.acl: \|\n((?: {4}.*\n)+)/.exec(secrets)?.[1] ?? '';
    writeFileSync(join(dir, 'users.acl'), users.replace(/^ {4}/gm, '').replace('change-me-too', PASSWORD));
    writeFileSync(join(dir, 'password'), `${PASSWORD}\n`);
    launch(binary('redis-server'), [join(dir, 'redis.conf')]);
    return port;
  }

  const sluice = (args: string[], overrides: Record<string, string> = {}) =>
    spawnSync('node', [`${PROJECT}dist/cli.js`, ...args], {
      env: { ...process.env, ...env, ...overrides },
      encoding: 'utf8',
      timeout: 60_000,
    });

  beforeAll(async () => {
    dir = temporaryFolder('secured');
    makeCertificates(dir);
    const [natsPorts, redisPort] = [await startNats(), await startRedis()];
    publicPort = await lastingPort();
    env = {
      SLUICE_TLS_CA_FILE: join(dir, 'ca.crt'),
      SLUICE_REDIS_URL: `rediss://sluice@127.0.0.1:${redisPort}`,
      SLUICE_REDIS_PASSWORD_FILE: join(dir, 'password'),
      SLUICE_NATS_URL: natsPorts.map((port) => `tls://127.0.0.1:${port}`).join(','),
      SLUICE_NATS_CREDS: join(dir, 'user.creds'),
      SLUICE_STREAM_REPLICAS: '3',
      SLUICE_STREAM_MAX_BYTES: '100000000',
      SLUICE_SINK: `ndjson:${join(dir, 'sink')}`,
      SLUICE_PORT: `${publicPort}`,
      SLUICE_WORKERS: '1',
      SLUICE_LOG_LEVEL: 'warn',
    };
    await until(() => sluice(['setup']).status === 0, 180_000);
    for (const name of ['ingest', 'processor']) {
      const adminPort = await lastingPort();
      adminPorts.push(adminPort);
      commands.push(new Command([name], { ...env, SLUICE_ADMIN_PORT: `${adminPort}` }));
    }
    const ready = (): Promise<boolean> =>
      fetch(`http://127.0.0.1:${publicPort}/readyz`).then(
        (res) => res.ok,
        () => false,
      );
    await until(ready);
  });
  afterAll(async () => {
    await Promise.all(commands.map((command) => command.stop()));
    const gone = children.map((child) => new Promise((resolve) => child.once('exit', resolve)));
    for (const child of children) child.kill('SIGTERM');
    await Promise.all(gone);
    rmSync(dir, { recursive: true, force: true });
  });

  it('an event is limited, counted, queued on three servers and stored', async () => {
    const project = JSON.parse(
      sluice(['project', 'create', '--plan', 'Pro', '--quota', '10', '--json']).stdout,
    ) as {
      id: string;
      key: string;
    };
    const url = `http://127.0.0.1:${publicPort}/api/${project.id}/envelope/?compat_key=${project.key}`;
    const id = eventId();
    let answer: Response | undefined;
    await until(async () => {
      answer = await fetch(url, { method: 'POST', body: errorEvent(id) });
      return answer.ok;
    });
    expect(answer?.headers.get('x-service-usage')).toBe('1/10');
    expect(answer?.headers.get('x-ratelimit-remaining')).toBe('999');
    const stored = (): string =>
      spawnSync('grep', ['-rl', id, join(dir, 'sink')], { encoding: 'utf8' }).stdout;
    await until(() => stored().includes('.ndjson'));
  });

  it('doctor finds nothing that fails', () => {
    const report = sluice(['doctor', '--json']);
    const { checks } = JSON.parse(report.stdout) as {
      checks: { state: string; what: string; found: string }[];
    };
    expect(checks.filter(({ state }) => state === 'fail')).toEqual([]);
  });

  it('says when the credentials and the certificates of all servers end', async () => {
    const metrics = async (port: number): Promise<string> =>
      (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
    for (const port of adminPorts)
      expect(await metrics(port)).toContain(
        `\nsluice_credentials_expire_timestamp_seconds ${CREDS_EXPIRY}\n`,
      );
    const validTo = new X509Certificate(readFileSync(join(dir, 'tls.crt'))).validTo;
    const servers = `${env.SLUICE_NATS_URL},${env.SLUICE_REDIS_URL}`
      .split(',')
      .map((url) => new URL(url).host);
    expect(servers).toHaveLength(SERVERS + 1);
    await until(async () => {
      const text = await metrics(adminPorts[0] ?? 0);
      return servers.every((server) =>
        text.includes(
          `\nsluice_certificate_expire_timestamp_seconds{server="${server}"} ${Date.parse(validTo) / 1000}\n`,
        ),
      );
    });
  });

  it('nobody comes in without the authority, the password or the credentials', () => {
    const wrong: Record<string, string>[] = [
      { SLUICE_TLS_CA_FILE: '' },
      { SLUICE_REDIS_PASSWORD_FILE: '' },
      { SLUICE_REDIS_PASSWORD_FILE: join(dir, 'ca.crt') },
      {
        SLUICE_REDIS_PASSWORD_FILE: '',
        SLUICE_REDIS_URL: env.SLUICE_REDIS_URL?.replace('sluice@', ':wrong@') ?? '',
      },
      { SLUICE_NATS_CREDS: '' },
    ];
    for (const overrides of wrong) {
      const { status, stdout } = sluice(['usage', '--json'], overrides);
      expect([status, stdout], JSON.stringify(Object.keys(overrides))).toEqual([1, '']);
    }
  });
});
