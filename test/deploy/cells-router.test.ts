/** deploy/proxies/cells.cfg in the real HAProxy, in front of ten cells that answer with their name. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { lastingPort, temporaryFolder } from '../support/servers.ts';
import { until } from '../support/system.ts';
import { makeCertificates } from './certificates.ts';
import { PROXIES } from './proxy-programs.ts';

const FILE = new URL('../../deploy/proxies/cells.cfg', import.meta.url).pathname;
const CELLS = ['oslo', 'paris', 'c3', 'c4', 'c5', 'c6', 'c7', 'c8', 'c9', 'c10'];
const programs = PROXIES.filter(({ name }) => name === 'haproxy').map(({ program }) => program);

describe.each(programs)('HAProxy before ten cells', ({ path, env }) => {
  const servers: Server[] = [];
  let haproxy: ChildProcess;
  let dir: string;
  let port: number;

  const cell = async (url: string): Promise<string> =>
    (await fetch(`http://127.0.0.1:${port}${url}`, { method: 'POST', body: 'x' })).text();
  async function tell(command: string): Promise<void> {
    const socket = connect(join(dir, 'admin.sock')).end(`${command}\n`);
    expect((await text(socket)).trim()).toBe('');
  }

  beforeAll(async () => {
    dir = temporaryFolder('router');
    makeCertificates(dir);
    const pem = ['tls.crt', 'tls.key'].map((name) => readFileSync(join(dir, name), 'utf8'));
    writeFileSync(join(dir, 'sluice.pem'), pem.join(''));
    for (const name of CELLS) {
      const server = createServer((_request, answer) => answer.end(name)).listen(0, '127.0.0.1');
      await once(server, 'listening');
      servers.push(server);
    }
    writeFileSync(join(dir, 'cells.map'), CELLS.map((name, at) => `${1001 + at} ${name}\n`).join(''));
    port = await lastingPort();
    const [head = '', model = ''] = readFileSync(FILE, 'utf8').split(/^(?=backend paris)/m);
    const backends = CELLS.slice(1).map((name) => model.replaceAll('paris', name));
    let own = `${head}${backends.join('')}`
      .replace('bind :80\n', `bind 127.0.0.1:${port}\n`)
      .replace('bind :443', `bind 127.0.0.1:${await lastingPort()}`)
      .replaceAll(/\/etc\/haproxy\/tls|\/etc\/haproxy|\/run\/haproxy/g, dir);
    for (const [at, server] of servers.entries()) {
      const { port: cellPort } = server.address() as AddressInfo;
      own = own.replace(`ingest.${CELLS[at]}.svc:80`, `127.0.0.1:${cellPort}`);
    }
    writeFileSync(join(dir, 'cells.cfg'), own);
    haproxy = spawn(path, ['-db', '-f', join(dir, 'cells.cfg')], { env: { ...process.env, ...env } });
    await until(() =>
      cell('/').then(
        () => true,
        () => false,
      ),
    );
  });
  afterAll(async () => {
    haproxy?.kill('SIGTERM');
    if (haproxy) await once(haproxy, 'exit');
    for (const server of servers) server.close();
  });

  it("leads each project's requests to its cell, however its path is written", async () => {
    for (const [at, name] of CELLS.entries()) {
      const id = 1001 + at;
      expect(await cell(`/api/${id}/envelope/`)).toBe(name);
      expect(await cell(`//api//${id}/envelope/?compat_key=0`)).toBe(name);
    }
  });

  it('leads what it does not know to the first cell: a new project, a part of an id, another path', async () => {
    for (const url of ['/api/4711/envelope/', '/api/100/envelope/', '/api/10022/envelope/', '/healthz', '/'])
      expect(await cell(url), url).toBe('oslo');
  });

  it('moves a project and a token without a restart, and no request is refused meanwhile', async () => {
    const told: string[] = [];
    let stopped = false;
    const traffic = (async () => {
      while (!stopped) told.push(await cell('/api/1003/envelope/'));
    })();
    await until(() => told.length > 20);
    await tell(`set map ${join(dir, 'cells.map')} 1003 c10`);
    await tell(`add map ${join(dir, 'cells.map')} a-token c9`);
    await until(() => told.at(-1) === 'c10');
    stopped = true;
    await traffic;
    const moved = told.indexOf('c10');
    expect(told).toEqual([...Array(moved).fill('c3'), ...Array(told.length - moved).fill('c10')]);
    expect(await cell('/heartbeat/a-token')).toBe('c9');
  });
});
