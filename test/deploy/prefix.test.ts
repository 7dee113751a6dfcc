/** A DSN with a path (docs/protocol.md 1.4) and the mistakes that proxies make on the way, through the real nginx and a stock SDK. */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { lastingPort, temporaryFolder } from '../support/servers.ts';
import { type Project, System, until } from '../support/system.ts';
import { findProgram } from './debian-programs.ts';

const CLIENT = new URL('../support/clients/node.mjs', import.meta.url).pathname;
const PROTOCOL = new URL('../../docs/protocol.md', import.meta.url);
const nginx = findProgram('nginx', ['nginx', 'libpcre2-8-0', 'libssl3']);

let system: System;
let project: Project;
let child: ChildProcess;
let dir: string;
let port: number;

/** The example of the document, and two locations as one writes them in haste. */
function locations(): string {
  const example = /```nginx\n(location \/prefix\/ .*)\n```/.exec(readFileSync(PROTOCOL, 'utf8'))?.[1] ?? '';
  const hasty = 'location /hasty { proxy_pass http://127.0.0.1:8080/; proxy_http_version 1.1; }';
  const old = 'location /old/ { proxy_pass http://127.0.0.1:8080/; }';
  return [example, hasty, old].join('\n').replaceAll('127.0.0.1:8080', `127.0.0.1:${system.port}`);
}

beforeAll(async () => {
  if (!nginx) return;
  system = await System.start();
  project = await system.createProject();
  dir = temporaryFolder('nginx');
  port = await lastingPort();
  const folders = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    (what) => `${what}_temp_path ${join(dir, what)};`,
  );
  const user = process.getuid?.() === 0 ? 'user root;\n' : '';
  const frame = `${user}daemon off;\npid ${join(dir, 'pid')};\nerror_log ${join(dir, 'errors')};\nevents {}\n`;
  const server = `server {\nlisten 127.0.0.1:${port};\n${locations()}\n}`;
  const file = join(dir, 'nginx.conf');
  writeFileSync(file, `${frame}http {\naccess_log off;\n${folders.join('\n')}\n${server}\n}\n`);
  child = spawn(nginx.path, ['-p', dir, '-c', file], {
    env: { ...process.env, ...nginx.env },
    stdio: 'ignore',
  });
  const probe = (): Promise<boolean> =>
    fetch(`http://127.0.0.1:${port}/prefix/healthz`).then(
      (res) => res.ok,
      () => false,
    );
  await until(probe);
});
afterAll(async () => {
  if (!nginx) return;
  child?.kill('SIGTERM');
  if (child) await once(child, 'exit');
  await system?.stop();
  rmSync(dir, { recursive: true, force: true });
});

const dsn = (prefix: string): string => `http://${project.key}@127.0.0.1:${port}/${prefix}/${project.id}`;

describe.runIf(nginx)('a DSN with a path', () => {
  // What follows /hasty keeps its slash, so sluice sees //api/….
  it.each(['prefix', 'hasty'])('of the location /%s reaches sluice from a stock SDK', async (prefix) => {
    const env = { ...process.env, DSN: dsn(prefix) };
    const { stdout } = await promisify(execFile)(process.execPath, [CLIENT], { env });
    const { exception, message, flushed } = JSON.parse(stdout) as Record<string, string | boolean>;
    expect(flushed).toBe(true);
    for (const id of [exception, message]) expect(await system.storedOf(`${id}`)).toHaveLength(1);
  });

  it('is answered 505 where nginx speaks HTTP/1.0, as it does by default', async () => {
    const url = `${dsn('old')
      .replace(/\/\/.*@/, '//')
      .replace(/\/\d+$/, '')}/api/${project.id}/envelope/`;
    const body = errorEvent(eventId());
    expect((await fetch(`${url}?sentry_key=${project.key}`, { method: 'POST', body })).status).toBe(505);
  });
});
