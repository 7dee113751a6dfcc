/**
 * The component `sentinel` of deploy/kubernetes on real servers: its own scripts start three Redis and three sentinels, with TLS and users,
 * and ingest asks them. Only addresses, ports and folders are other ones.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findServer } from '../../src/commands/dev/servers.ts';
import { runCommand } from '../commands/run-command.ts';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { lastingPort, temporaryFolder } from '../support/servers.ts';
import { type Project, System, until } from '../support/system.ts';
import { hasOpenssl, makeCertificates } from './certificates.ts';
import { KUBERNETES, parseObjects } from './kubernetes-objects.ts';

const COMPONENT = join(KUBERNETES, 'components/sentinel');
const OVERLAY = join(KUBERNETES, 'overlays/production');
const PODS = [0, 1, 2] as const;
/** Addresses of the loopback network stand for the names of pods: redis-0.redis is 127.0.7.10. */
const addressOf = (at: number | string): string => `127.0.7.1${at}`;
const program = findServer(
  'redis-server',
  { redis: process.env.REDIS_SERVER_BIN ?? '' },
  process.env.PATH ?? '',
);

/** The example Secret `sluice-redis`, as it is written. */
const users = parseObjects(readFileSync(join(OVERLAY, 'secrets.example.yaml'), 'utf8')).find(
  ({ metadata }) => metadata.name === 'sluice-redis',
) as unknown as { stringData: { password: string; 'users.acl': string; 'sentinel.acl': string } };

describe.each(hasOpenssl ? ['openssl'] : [])('with certificates of %s', () => {
  let dir: string;
  let ports: { redis: number; sentinel: number };
  let env: Record<string, string>;
  let system: System;
  const running = new Map<string, ChildProcess>();

  const own = (at: number, name = ''): string => join(dir, `redis-${at}`, name);
  const podEnv = (at: number) => ({
    ...process.env,
    PATH: `${dirname(program ?? '')}:${process.env.PATH}`,
    POD_NAME: addressOf(at),
    REDISCLI_AUTH: users.stringData.password,
  });

  /** Writes a file of the component or the overlay as the pod would see it, with addresses of this machine. */
  function place(at: number, path: string): void {
    const text = readFileSync(path, 'utf8')
      .replaceAll(/redis-(\$at|0)(\.redis)?/g, addressOf('$1'))
      .replaceAll('$POD_NAME.redis', '$POD_NAME')
      .replaceAll('26379', `${ports.sentinel}`)
      .replaceAll(/\b6379\b/g, `${ports.redis}`)
      .replaceAll('/etc/sluice/redis.conf', own(at, 'redis.conf'))
      .replaceAll(/\/etc\/sluice\/(tls|users)/g, dir)
      .replaceAll('/data', own(at))
      .replace('bind 0.0.0.0', `bind ${addressOf(at)}`)
      .replace('port 0\n', `port 0\n${path.endsWith('sentinel.sh') ? 'bind $POD_NAME\n' : ''}`);
    writeFileSync(own(at, path.slice(path.lastIndexOf('/') + 1)), text);
  }

  /** Both containers of a pod. */
  function start(at: number): void {
    for (const script of ['redis.sh', 'sentinel.sh'])
      running.set(`${script} ${at}`, spawn('sh', [own(at, script)], { env: podEnv(at), stdio: 'ignore' }));
  }
  async function stop(at: number, signal: NodeJS.Signals): Promise<void> {
    for (const script of ['redis.sh', 'sentinel.sh']) {
      const child = running.get(`${script} ${at}`);
      if (!child || child.exitCode !== null || child.signalCode !== null) continue;
      child.kill(signal);
      await once(child, 'exit');
    }
  }
  /** @returns what the server or the sentinel of a pod says; an empty text when it does not answer */
  async function ask(at: number, port: number, ...command: string[]): Promise<string> {
    const args = ['-h', addressOf(at), '-p', `${port}`, '--tls', '--cacert', join(dir, 'ca.crt'), ...command];
    return promisify(execFile)('redis-cli', args, { env: podEnv(at) }).then(
      ({ stdout }) => stdout,
      () => '',
    );
  }
  const isPrimary = async (at: number): Promise<boolean> =>
    (await ask(at, ports.redis, 'info', 'replication')).includes('role:master');
  /** Waits until all three know each other and both replicas have what the primary has. @returns which is the primary */
  async function settled(): Promise<number> {
    let primary = -1;
    await until(async () => {
      const primaries = [];
      for (const at of PODS) {
        if (await isPrimary(at)) primaries.push(at);
        if (!(await ask(at, ports.sentinel, 'sentinel', 'ckquorum', 'sluice')).startsWith('OK 3 usable'))
          return false;
        if (!(await ask(at, ports.sentinel, 'sentinel', 'master', 'sluice')).includes('num-slaves\n2\n'))
          return false;
      }
      primary = primaries[0] ?? -1;
      const told = await ask(primary, ports.redis, 'info', 'replication');
      return primaries.length === 1 && (told.match(/state=online/g) ?? []).length === 2;
    }, 120_000);
    return primary;
  }

  async function send(project: Project): Promise<{ status: number; position: number }> {
    const answer = await system.send(project, errorEvent(eventId()));
    await answer.text();
    return {
      status: answer.status,
      position: Number.parseInt(answer.headers.get('x-service-usage') ?? '', 10),
    };
  }

  beforeAll(async () => {
    dir = temporaryFolder('sentinels');
    makeCertificates(dir, PODS.map(addressOf));
    ports = { redis: await lastingPort(), sentinel: await lastingPort() };
    for (const name of ['users.acl', 'sentinel.acl'] as const)
      writeFileSync(join(dir, name), users.stringData[name]);
    writeFileSync(join(dir, 'password'), /sluice on >(\S+)/.exec(users.stringData['users.acl'])?.[1] ?? '');
    for (const at of PODS) {
      mkdirSync(own(at));
      for (const name of ['redis.sh', 'sentinel.sh']) place(at, join(COMPONENT, name));
      place(at, join(OVERLAY, 'redis.conf'));
    }
    for (const at of PODS) start(at);
    expect(await settled()).toBe(0);
    const sentinels = PODS.map((at) => `${addressOf(at)}:${ports.sentinel}`);
    env = {
      SLUICE_REDIS_URL: `rediss+sentinel://sluice@${sentinels}/sluice`,
      SLUICE_REDIS_PASSWORD_FILE: join(dir, 'password'),
      SLUICE_TLS_CA_FILE: join(dir, 'ca.crt'),
    };
    system = await System.start({ env });
  });
  afterAll(async () => {
    await system?.stop();
    for (const at of PODS) await stop(at, 'SIGKILL');
    rmSync(dir, { recursive: true, force: true });
  });

  it('a node that dies costs refusals until another Redis is the primary, which goes on counting', async () => {
    const project = await system.createProject({ quota: 1_000 });
    for (let position = 1; position <= 5; position++)
      expect(await send(project)).toEqual({ status: 200, position });
    const primary = await settled();
    await stop(primary, 'SIGKILL');
    const from = performance.now();
    await until(async () => (await send(project)).status === 200, 60_000);
    console.info(`a dead node: served again after ${((performance.now() - from) / 1000).toFixed(1)} s`);
    expect((await send(project)).position).toBeGreaterThanOrEqual(7);
    const [other = 0] = PODS.filter((at) => at !== primary);
    await until(async () => {
      const address = await ask(other, ports.sentinel, 'sentinel', 'get-master-addr-by-name', 'sluice');
      return address !== '' && !address.includes(addressOf(primary));
    });
  });

  it('commands ask the sentinels, which answer nobody without the password', async () => {
    const settings = { ...system.env, ...env };
    const report = await runCommand(['doctor', '--json'], settings);
    const { checks } = JSON.parse(report.out) as { checks: { state: string; what: string }[] };
    expect(checks.filter(({ state, what }) => state === 'fail' && /redis/i.test(what))).toEqual([]);
    const { SLUICE_REDIS_PASSWORD_FILE: _, ...without } = settings;
    const { out } = await runCommand(['doctor', '--json'], without);
    expect(out).toMatch(/NOAUTH|Authentication required|unreachable/);
    expect(
      await ask(
        1,
        ports.sentinel,
        '--no-auth-warning',
        '--user',
        'sluice',
        '--pass',
        'change-me-too',
        'sentinel',
        'reset',
        'sluice',
      ),
    ).toContain('NOPERM');
  });

  it('says when the certificates of the sentinels end', async () => {
    const server = `server="${addressOf(1)}:${ports.sentinel}"`;
    await until(async () =>
      (await system.metrics()).includes(`sluice_certificate_expire_timestamp_seconds{${server}}`),
    );
  });
});
