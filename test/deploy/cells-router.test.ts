/** deploy/proxies/cells.cfg in the real HAProxy, in front of ten cells that answer with their name, two of which are then whole systems. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runCommand } from '../commands/run-command.ts';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { lastingPort, temporaryFolder } from '../support/servers.ts';
import { DIST, type Project, System, until } from '../support/system.ts';
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
  const ask = async (command: string): Promise<string> =>
    (await text(connect(join(dir, 'admin.sock')).end(`${command}\n`))).trim();
  const tell = async (command: string): Promise<void> => expect(await ask(command)).toBe('');

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

  describe('with a whole system in the place of two cells', () => {
    const systems = new Map<string, System>();
    beforeAll(async () => {
      for (const name of ['c4', 'c9']) {
        const system = await System.start();
        systems.set(name, system);
        expect(await ask(`set server ${name}/${name} addr 127.0.0.1 port ${system.port}`)).toContain(
          'changed',
        );
        // HAProxy would go on using the connections that it has to the cell which answers with its name.
        servers[CELLS.indexOf(name)]?.closeAllConnections();
      }
    });
    afterAll(() => Promise.all([...systems.values()].map((system) => system.stop())));

    it('moves a project by the command and the map: no request is refused, and no count is lost', async () => {
      const [from, to] = [systems.get('c4') as System, systems.get('c9') as System];
      const project = await from.createProject({ id: '1004', quota: 100_000 } as Partial<Project>);
      const told: number[] = [];
      let stopped = false;
      const traffic = (async () => {
        while (!stopped) {
          const url = `http://127.0.0.1:${port}/api/1004/envelope/?compat_key=${project.key}`;
          const answer = await fetch(url, { method: 'POST', body: errorEvent(eventId()) });
          await answer.text();
          told.push(answer.status);
        }
      })();
      const more = async (): Promise<void> => {
        const before = told.length;
        await until(() => told.length > before + 20);
      };
      await more();
      const { SLUICE_NATS_URL, SLUICE_REDIS_URL } = to.env;
      const file = join(dir, 'c9.env');
      writeFileSync(file, `SLUICE_NATS_URL=${SLUICE_NATS_URL}\nSLUICE_REDIS_URL=${SLUICE_REDIS_URL}\n`);
      const moving = spawn('node', [`${DIST}cli.js`, 'project', 'move', '1004', '--to', file], {
        env: { ...process.env, ...from.env },
      });
      const ended = once(moving, 'exit');
      let said = '';
      for (const stream of [moving.stdout, moving.stderr])
        stream.on('data', (data: Buffer) => {
          said += data;
        });
      await until(() => {
        if (moving.exitCode !== null) throw new Error(said);
        return said.includes('press Enter');
      });
      await more();
      await tell(`set map ${join(dir, 'cells.map')} 1004 c9`);
      await more();
      moving.stdin.end('\n');
      expect([await ended, said]).toEqual([[0, null], expect.stringContaining('has moved')]);
      await more();
      stopped = true;
      await traffic;
      expect(new Set(told)).toEqual(new Set([200]));
      const { out } = await runCommand(['usage', '1004', '--json'], to.env);
      expect(JSON.parse(out)).toMatchObject({ current: told.length });
    });
  });
});
