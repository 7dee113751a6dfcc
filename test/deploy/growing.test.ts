/**
 * "Growing from minimal to production" in docs/kubernetes.md: its own command moves a project from a cell without users and TLS to one with
 * both, whose servers know deploy/nats/users.conf and the users of the production overlay.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findServer } from '../../src/commands/dev/servers.ts';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { lastingPort, temporaryFolder } from '../support/servers.ts';
import { Command, DIST, type Project, System, until } from '../support/system.ts';
import { hasOpenssl, makeCertificates } from './certificates.ts';
import { KUBERNETES } from './kubernetes-objects.ts';
import { NatsRoles } from './nats-roles.ts';

const OVERLAY = join(KUBERNETES, 'overlays/production');
const DOCUMENT = new URL('../../docs/kubernetes.md', import.meta.url).pathname;

/** The command of the document, from the pod's shell on. */
function commandOfDocument(): string {
  const [, script] =
    /exec -it deploy\/processor -- sh -c '\n([^']+)'/.exec(readFileSync(DOCUMENT, 'utf8')) ?? [];
  expect(script).toContain('sluice project move 1001');
  return script as string;
}

describe.each(hasOpenssl ? ['openssl'] : [])('with certificates of %s', () => {
  const children: ChildProcess[] = [];
  let dir: string;
  let old: System;
  let env: Record<string, string>;
  let roles: NatsRoles;
  let ingest: Command;

  const file = (name: string): string => join(dir, name);
  function launch(kind: 'redis-server' | 'nats-server', args: string[]): void {
    const bins = { redis: process.env.REDIS_SERVER_BIN ?? '', nats: process.env.NATS_SERVER_BIN ?? '' };
    children.push(spawn(findServer(kind, bins, process.env.PATH ?? '') ?? kind, args, { stdio: 'ignore' }));
  }
  const sluice = async (args: string[], settings: Record<string, string>): Promise<number | null> => {
    const child = spawn('node', [`${DIST}cli.js`, ...args], {
      env: { ...process.env, ...settings },
      stdio: 'ignore',
    });
    const [status] = (await once(child, 'exit')) as [number | null];
    return status;
  };
  async function send(port: number, { id, key }: Project): Promise<{ status: number; usage: string | null }> {
    const url = `http://127.0.0.1:${port}/api/${id}/envelope/?compat_key=${key}`;
    const answer = await fetch(url, { method: 'POST', body: errorEvent(eventId()) });
    await answer.text();
    return { status: answer.status, usage: answer.headers.get('x-service-usage') };
  }

  beforeAll(async () => {
    old = await System.start();
    dir = temporaryFolder('growing');
    mkdirSync(file('data'));
    makeCertificates(dir);
    roles = new NatsRoles(dir);
    const [natsPort, redisPort, port] = [await lastingPort(), await lastingPort(), await lastingPort()];
    const tls = `tls { cert_file: "${file('tls.crt')}", key_file: "${file('tls.key')}" }`;
    const conf = [
      `listen: 127.0.0.1:${natsPort}`,
      `jetstream { store_dir: "${file('data')}" }`,
      tls,
      roles.config(),
    ];
    writeFileSync(file('nats.conf'), conf.join('\n'));
    launch('nats-server', ['-c', file('nats.conf')]);
    const redisConf = readFileSync(join(OVERLAY, 'redis.conf'), 'utf8')
      .replaceAll(/\/etc\/sluice\/(tls|users)/g, dir)
      .replace('tls-port 6379', `tls-port ${redisPort}`)
      .replace('bind 0.0.0.0', 'bind 127.0.0.1')
      .replace('dir /data', `dir ${file('data')}`);
    writeFileSync(file('redis.conf'), redisConf);
    writeFileSync(
      file('users.acl'),
      'user default on >one ~* &* +@all\nuser sluice on >two ~sluice:* +@all -@dangerous +info\n',
    );
    writeFileSync(file('password'), 'two\n');
    launch('redis-server', [file('redis.conf')]);
    env = {
      SLUICE_NATS_URL: `tls://127.0.0.1:${natsPort}`,
      SLUICE_REDIS_URL: `rediss://sluice@127.0.0.1:${redisPort}`,
      SLUICE_REDIS_PASSWORD_FILE: file('password'),
      SLUICE_TLS_CA_FILE: file('ca.crt'),
      SLUICE_STREAM_MAX_BYTES: '64000000',
      SLUICE_SINK: 'postgres://sluice:a%23b@postgres.example.com/sluice',
      SLUICE_PORT: `${port}`,
      SLUICE_ADMIN_PORT: `${await lastingPort()}`,
      SLUICE_WORKERS: '1',
      SLUICE_LOG_LEVEL: 'warn',
    };
    await until(
      async () => (await sluice(['setup'], { ...env, SLUICE_NATS_CREDS: roles.seedFile('setup') })) === 0,
    );
    ingest = new Command(['ingest'], { ...env, SLUICE_NATS_CREDS: roles.seedFile('ingest') });
    await until(() =>
      fetch(`http://127.0.0.1:${port}/readyz`).then(
        (answer) => answer.ok,
        () => false,
      ),
    );
  });
  afterAll(async () => {
    await Promise.all([ingest?.stop(), old?.stop()]);
    for (const child of children) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      child.kill('SIGTERM');
      await once(child, 'exit');
    }
    rmSync(dir, { recursive: true, force: true });
  });

  it('a project moves by the command of the document, which runs with the settings of the new cell', async () => {
    const project = await old.createProject({ id: '1001', quota: 100 } as Partial<Project>);
    const port = Number(env.SLUICE_PORT);
    expect((await send(old.port, project)).usage).toBe('1/100');
    expect((await send(port, project)).status).toBe(401);
    // The name that the image has.
    writeFileSync(file('sluice'), `#!/bin/sh\nexec node ${DIST}cli.js "$@"\n`);
    chmodSync(file('sluice'), 0o755);
    const script = commandOfDocument()
      .replaceAll('/dev/shm', dir)
      .replace('/etc/sluice/nats-cli/user.creds', roles.seedFile('cli'))
      .replace('nats://nats.sluice:4222', old.nats.url)
      .replace('redis://redis.sluice:6379', old.redis.url);
    const pod = { ...env, SLUICE_NATS_CREDS: roles.seedFile('processor') };
    const path = `${dir}${delimiter}${process.env.PATH}`;
    const child = spawn('sh', ['-c', script], { env: { ...process.env, ...pod, PATH: path } });
    let said = '';
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (data: Buffer) => {
        said += data;
      });
    children.push(child);
    const ended = once(child, 'exit');
    await until(() => {
      if (child.exitCode !== null) throw new Error(said);
      return said.includes('press Enter');
    });
    expect((await send(port, project)).usage).toBe('2/100');
    expect((await send(old.port, project)).status).toBe(200);
    child.stdin.end('\n');
    expect([await ended, said]).toEqual([[0, null], expect.stringContaining('has moved')]);
    expect((await send(old.port, project)).status).toBe(401);
    expect((await send(port, project)).status).toBe(200);
  });
});
