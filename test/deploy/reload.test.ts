/** The scripts of the component `reload` beside a real nats-server and a real Redis with the production overlay's configuration. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { connect, nkeyAuthenticator } from '@nats-io/transport-node';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findServer } from '../../src/commands/dev/servers.ts';
import { lastingPort, temporaryFolder } from '../support/servers.ts';
import { until } from '../support/system.ts';
import { hasOpenssl, makeCertificates } from './certificates.ts';
import { KUBERNETES } from './kubernetes-objects.ts';
import { NatsRoles, type Role } from './nats-roles.ts';

const COMPONENT = join(KUBERNETES, 'components/reload');
const OVERLAY = join(KUBERNETES, 'overlays/production');
const bins = { redis: process.env.REDIS_SERVER_BIN ?? '', nats: process.env.NATS_SERVER_BIN ?? '' };
const binary = (kind: 'redis-server' | 'nats-server'): string =>
  findServer(kind, bins, process.env.PATH ?? '') ?? kind;
const acl = (password: string): string =>
  `user default on >operator ~* &* +@all\nuser sluice on >${password} ~sluice:* +@all -@dangerous +info\n`;

describe.each(hasOpenssl ? ['openssl'] : [])('with certificates of %s', () => {
  const children: ChildProcess[] = [];
  let dir: string;
  let ports: { redis: number; nats: number };
  let roles: NatsRoles;

  const file = (...names: string[]): string => join(dir, ...names);
  /** Appears whole, as in a mounted Secret. */
  function replace(path: string, content: string): void {
    writeFileSync(`${dir}/next`, content);
    renameSync(`${dir}/next`, path);
  }
  function launch(program: string, ...args: string[]): void {
    const env = {
      ...process.env,
      PATH: [dir, dirname(binary('redis-server')), process.env.PATH].join(delimiter),
      POD_NAME: 'nats-0',
      REDISCLI_AUTH: 'operator',
    };
    children.push(spawn(program, args, { env, stdio: 'ignore' }));
  }
  /** Makes an authority and certificates, and puts them where the servers have them. */
  function newCertificates(): string {
    makeCertificates(dir);
    for (const name of ['ca.crt', 'tls.crt', 'tls.key'])
      replace(file('tls', name), readFileSync(file(name), 'utf8'));
    return file('ca.crt');
  }
  /** Puts a file of deploy/ beside the servers, with folders and ports of this machine. */
  function place(path: string, name: string): string {
    const text = readFileSync(path, 'utf8')
      .replaceAll(/\/etc\/sluice\/(tls|users|auth)/g, `${dir}/$1`)
      .replaceAll(/\/data\b/g, file('data'))
      .replaceAll(/\b6379\b/g, `${ports.redis}`)
      .replace('0.0.0.0:4222', `127.0.0.1:${ports.nats}`)
      .replace(/^http: .*$/m, '')
      .replace(/^cluster \{.*?^\}$/ms, '')
      .replace('bind 0.0.0.0', 'bind 127.0.0.1')
      .replace('sleep 10', 'sleep 0.2');
    writeFileSync(file(name), text);
    return file(name);
  }
  const asSluice = (password: string): Redis =>
    new Redis({
      port: ports.redis,
      username: 'sluice',
      password,
      tls: { rejectUnauthorized: false },
      retryStrategy: () => null,
      lazyConnect: true,
    }).on('error', () => undefined);
  async function canLogIn(password: string): Promise<boolean> {
    const client = asSluice(password);
    const answer = await client.connect().then(
      () => client.ping().catch(() => ''),
      () => '',
    );
    client.disconnect();
    return answer === 'PONG';
  }
  async function canConnect(role: Role): Promise<boolean> {
    const seed = readFileSync(roles.seedFile(role), 'utf8').trim();
    const options = {
      servers: `tls://127.0.0.1:${ports.nats}`,
      authenticator: nkeyAuthenticator(Buffer.from(seed)),
      inboxPrefix: `_INBOX.${role}`,
      tls: { caFile: file('tls/ca.crt') },
      reconnect: false,
    };
    return connect(options).then(
      (connection) => connection.close().then(() => true),
      () => false,
    );
  }
  /** Whether Redis shows a certificate of the authority. */
  const showsOneOf = (ca: string): Promise<boolean> =>
    new Promise((resolve) => {
      const socket = connectTls({ port: ports.redis, host: '127.0.0.1', ca: readFileSync(ca) });
      socket.once('secureConnect', () => resolve(true)).once('error', () => resolve(false));
      socket.once('secureConnect', () => socket.destroy());
    });

  beforeAll(async () => {
    dir = temporaryFolder('reload');
    for (const name of ['tls', 'users', 'auth', 'data']) mkdirSync(file(name));
    ports = { redis: await lastingPort(), nats: await lastingPort() };
    newCertificates();
    roles = new NatsRoles(dir);
    writeFileSync(file('auth/auth.conf'), roles.config());
    writeFileSync(file('users/users.acl'), acl('one'));
    // The name that the image has.
    writeFileSync(file('nats-server'), `#!/bin/sh\nexec ${binary('nats-server')} "$@"\n`, { mode: 0o755 });
    launch(binary('redis-server'), place(join(OVERLAY, 'redis.conf'), 'redis.conf'));
    launch(binary('nats-server'), '-c', place(join(OVERLAY, 'nats.conf'), 'nats.conf'));
    await until(() => canLogIn('one'));
    await until(() => canConnect('ingest'));
    launch('sh', place(join(COMPONENT, 'redis.sh'), 'redis.sh'));
    launch('sh', place(join(COMPONENT, 'nats.sh'), 'nats.sh'));
  });
  afterAll(async () => {
    for (const child of children.reverse()) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      child.kill('SIGTERM');
      await once(child, 'exit');
    }
    rmSync(dir, { recursive: true, force: true });
  });

  it("Redis takes a user's new password and forgets the old one, and open connections stay", async () => {
    const open = asSluice('one');
    await open.connect();
    replace(file('users/users.acl'), acl('two'));
    await until(() => canLogIn('two'));
    expect(await canLogIn('one')).toBe(false);
    expect(await open.ping()).toBe('PONG');
    open.disconnect();
  });

  it('NATS takes the new key of a role and forgets the old one', async () => {
    roles.rotate('ingest');
    expect(await canConnect('ingest')).toBe(true);
    replace(file('auth/auth.conf'), roles.config());
    await until(async () => !(await canConnect('ingest')));
    roles.show('ingest');
    expect(await canConnect('ingest')).toBe(true);
  });

  it('both show new certificates', async () => {
    const ca = newCertificates();
    await until(() => showsOneOf(ca));
    await until(() => canConnect('ingest'));
  });
});
