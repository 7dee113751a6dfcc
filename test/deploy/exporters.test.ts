/** The exporters of the component `exporters` beside a real nats-server and a real Redis with the production overlay's configuration. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { findServer } from '../../src/commands/dev/servers.ts';
import { lastingPort, temporaryFolder } from '../support/servers.ts';
import { until } from '../support/system.ts';
import { goProgram } from '../support/tools.ts';
import { hasOpenssl, makeCertificates } from './certificates.ts';
import { unpackPackages } from './debian-programs.ts';
import { KUBERNETES } from './kubernetes-objects.ts';
import { NatsRoles } from './nats-roles.ts';

type Container = { image: string; args?: string[]; env?: { name: string; value?: string }[] };

const OVERLAY = join(KUBERNETES, 'overlays/production');
const PASSWORD = 'operator';
const RULES = readFileSync(join(KUBERNETES, '../prometheus/rules.yaml'), 'utf8');
/** Metrics of a server for which there are rules. */
const ofRules = (prefix: string): string[] => [
  ...new Set([...RULES.matchAll(new RegExp(`(?<![\\w:])${prefix}_\\w+`, 'g'))].map(([name]) => name)),
];

/** The exporter's container in the component. */
function containerOf(server: 'nats' | 'redis'): Container {
  const patch = parse(
    readFileSync(join(KUBERNETES, `components/exporters/${server}.patch.yaml`), 'utf8'),
  ) as {
    spec: { template: { spec: { containers: Container[] } } };
  };
  return patch.spec.template.spec.containers[1] as Container;
}

const isThere = (program: string, flag: string): boolean =>
  spawnSync(program, [flag], { stdio: 'ignore' }).status === 0;

/** Debian's, which is older than the image and has the same metrics here. */
function findRedisExporter(): string | undefined {
  if (isThere('redis_exporter', '-version')) return 'redis_exporter';
  const folder = join(tmpdir(), 'sluice-redis-exporter-package');
  const program = join(folder, 'usr/bin/prometheus-redis-exporter');
  if (!existsSync(program) && existsSync('/usr/bin/apt-get'))
    unpackPackages(folder, ['prometheus-redis-exporter']);
  return existsSync(program) ? program : undefined;
}

/** The machine's own, else one that Go builds; not each proxy of Go modules has it. */
function findNatsExporter(): string | undefined {
  if (isThere('prometheus-nats-exporter', '-version')) return 'prometheus-nats-exporter';
  const [, version = ''] = containerOf('nats').image.split(':');
  try {
    return goProgram('prometheus-nats-exporter', 'github.com/nats-io/prometheus-nats-exporter', version);
  } catch {
    return undefined;
  }
}

const programs = hasOpenssl ? { nats: findNatsExporter(), redis: findRedisExporter() } : {};
for (const server of ['nats', 'redis'] as const)
  if (!programs[server]) console.warn(`LEFT OUT: the exporter of ${server}, which is not to be had here`);

const children: ChildProcess[] = [];
const stop = async (child: ChildProcess): Promise<void> => {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill('SIGTERM');
  await once(child, 'exit');
};
let dir: string;

function launch(program: string, args: string[], env: Record<string, string> = {}): ChildProcess {
  const child = spawn(program, args, { env: { ...process.env, ...env }, stdio: 'ignore' });
  children.push(child);
  return child;
}
const binary = (kind: 'redis-server' | 'nats-server'): string => {
  const bins = { redis: process.env.REDIS_SERVER_BIN ?? '', nats: process.env.NATS_SERVER_BIN ?? '' };
  return findServer(kind, bins, process.env.PATH ?? '') ?? kind;
};
function place(name: string, text: string): string {
  writeFileSync(join(dir, name), text);
  return join(dir, name);
}
/** Values by name, with the labels where there are some. */
async function scrape(port: number): Promise<Map<string, number>> {
  const text = await fetch(`http://127.0.0.1:${port}/metrics`).then(
    (answer) => answer.text(),
    () => '',
  );
  const lines = text.split('\n').filter((line) => line && !line.startsWith('#'));
  return new Map(
    lines.map((line) => {
      const [, name = '', value] = /^(.*) (\S+)$/.exec(line) ?? [];
      return [name, Number(value)];
    }),
  );
}
const namesIn = (metrics: ReadonlyMap<string, number>): Set<string> =>
  new Set([...metrics.keys()].map((name) => name.replace(/\{.*/, '')));

beforeAll(() => {
  dir = temporaryFolder('exporters');
  for (const name of ['nats', 'redis', 'auth']) mkdirSync(join(dir, name));
  if (hasOpenssl) makeCertificates(dir);
});
afterAll(async () => {
  for (const child of children.reverse()) await stop(child);
  rmSync(dir, { recursive: true, force: true });
});

describe.each(programs.redis ? [programs.redis] : [])('redis_exporter', (program) => {
  it('has the metrics of the rules: of a Redis that is well, one that fills, cannot write its log, and stops', async () => {
    const [port, own] = [await lastingPort(), await lastingPort()];
    place('users.acl', `user default on >${PASSWORD} ~* &* +@all\n`);
    const conf = readFileSync(join(OVERLAY, 'redis.conf'), 'utf8')
      .replaceAll(/\/etc\/sluice\/(tls|users)/g, dir)
      .replace('tls-port 6379', `tls-port ${port}`)
      .replace('bind 0.0.0.0', 'bind 127.0.0.1')
      .replace('dir /data', `dir ${join(dir, 'redis')}`);
    const server = launch(binary('redis-server'), [place('redis.conf', conf)]);
    const { env = [] } = containerOf('redis');
    const settings = Object.fromEntries(env.map(({ name, value = PASSWORD }) => [name, value]));
    expect(settings).toMatchObject({ REDIS_PASSWORD: PASSWORD, REDIS_ADDR: 'rediss://127.0.0.1:6379' });
    launch(program, [], {
      ...settings,
      REDIS_ADDR: `rediss://127.0.0.1:${port}`,
      REDIS_EXPORTER_WEB_LISTEN_ADDRESS: `127.0.0.1:${own}`,
    });
    await until(async () => (await scrape(own)).get('redis_up') === 1);
    const metrics = await scrape(own);
    expect(ofRules('redis').length).toBeGreaterThan(5);
    expect(ofRules('redis').filter((name) => !namesIn(metrics).has(name))).toEqual([]);
    expect(metrics.get('redis_memory_max_bytes')).toBe(2 * 1024 ** 3);
    expect(metrics.get('redis_aof_last_write_status')).toBe(1);
    expect(metrics.get('redis_aof_last_bgrewrite_status')).toBe(1);

    const client = new Redis({ port, password: PASSWORD, tls: { rejectUnauthorized: false } });
    client.on('error', () => undefined);
    await client.config('SET', 'maxmemory', Math.round((metrics.get('redis_memory_used_bytes') ?? 0) / 0.9));
    const filled = await scrape(own);
    const fill = (filled.get('redis_memory_used_bytes') ?? 0) / (filled.get('redis_memory_max_bytes') ?? 1);
    expect(fill).toBeGreaterThan(0.8);
    // No file can be made in a folder that is gone.
    rmSync(join(dir, 'redis'), { recursive: true });
    await client.bgrewriteaof().catch(() => undefined);
    await until(async () => (await scrape(own)).get('redis_aof_last_bgrewrite_status') === 0);
    client.disconnect();
    await stop(server);
    await until(async () => (await scrape(own)).get('redis_up') === 0);
  });
});

describe.each(programs.nats ? [programs.nats] : [])('prometheus-nats-exporter', (program) => {
  it('has the metrics of the rules: of a NATS server that is well, and of one that stops', async () => {
    const [port, http, own] = [await lastingPort(), await lastingPort(), await lastingPort()];
    place('auth/auth.conf', new NatsRoles(dir).config());
    const conf = readFileSync(join(OVERLAY, 'nats.conf'), 'utf8')
      .replaceAll('/etc/sluice/tls', dir)
      .replaceAll(/\/data\b/g, join(dir, 'nats'))
      .replace('0.0.0.0:4222', `127.0.0.1:${port}`)
      .replace('0.0.0.0:8222', `127.0.0.1:${http}`)
      .replace(/^cluster \{.*?^\}$/ms, '');
    const server = launch(binary('nats-server'), ['-c', place('nats.conf', conf)], { POD_NAME: 'nats-0' });
    const args = (containerOf('nats').args ?? []).map((arg) => arg.replace('8222', `${http}`));
    launch(program, ['-addr', '127.0.0.1', '-port', `${own}`, ...args]);
    const health = (metrics: ReadonlyMap<string, number>): (readonly [string | undefined, number])[] =>
      [...metrics]
        .filter(([name]) => name.startsWith('gnatsd_healthz_js_server_only_status_value'))
        .map(([name, value]) => [/value="(\w+)"/.exec(name)?.[1], value]);
    await until(async () => namesIn(await scrape(own)).has('gnatsd_varz_slow_consumers'));
    const metrics = await scrape(own);
    expect(ofRules('gnatsd').length).toBe(2);
    expect(ofRules('gnatsd').filter((name) => !namesIn(metrics).has(name))).toEqual([]);
    expect(health(metrics)).toEqual([['ok', 1]]);
    await stop(server);
    await until(async () => health(await scrape(own))[0]?.[1] === 0);
    expect(health(await scrape(own))).toEqual([['unreachable', 0]]);
  });
});
