/** The files of deploy/proxies in the real nginx, HAProxy and Envoy, in front of sluice. Only addresses and folders are other ones. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer, type Server } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Project } from '../../src/projects/project.ts';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { lastingPort, temporaryFolder } from '../support/servers.ts';
import { MIB, System, until } from '../support/system.ts';
import { findProgram, type Program } from './debian-programs.ts';
import { findEnvoy } from './envoy-program.ts';

const DEPLOY = new URL('../../deploy/proxies', import.meta.url).pathname;
/** uWebSockets.js closes idle connections after this at the earliest. */
const IDLE_MS_MIN = 8_000;

const OWN_ADDRESSES = Object.values(networkInterfaces()).flatMap((all = []) =>
  all.map(({ address }) => address),
);
const POST = Buffer.from('POST ');

/** What a proxy says to sluice, and who ends their connections. */
class Relay {
  readonly #server: Server;
  /** Of requests, in the order in which they came. */
  readonly heads: string[] = [];
  connections = 0;
  readonly ended: { by: 'proxy' | 'sluice'; idleMs: number }[] = [];

  constructor(target: number) {
    this.#server = createServer({ allowHalfOpen: true }, (proxy) => {
      this.connections++;
      let last = performance.now();
      let first = true;
      const sluice = connect({ port: target, host: '127.0.0.1', allowHalfOpen: true });
      const end = (by: 'proxy' | 'sluice'): void => {
        if (first) this.ended.push({ by, idleMs: performance.now() - last });
        first = false;
      };
      proxy.on('data', (data: Buffer) => {
        last = performance.now();
        if (data.subarray(0, 5).equals(POST))
          this.heads.push(data.toString('latin1').split('\r\n\r\n')[0] ?? '');
      });
      proxy.on('end', () => end('proxy'));
      sluice.on('data', () => {
        last = performance.now();
      });
      sluice.on('end', () => end('sluice'));
      for (const socket of [proxy, sluice]) socket.on('error', () => undefined);
      // HAProxy resets what it has no more use for.
      proxy.on('close', () => {
        end('proxy');
        sluice.destroy();
      });
      sluice.on('close', () => {
        end('sluice');
        proxy.destroy();
      });
      proxy.pipe(sluice).pipe(proxy);
    });
  }

  listen(port: number): Promise<void> {
    return new Promise((resolve) => this.#server.listen(port, '127.0.0.1', resolve));
  }

  close(): void {
    this.#server.close();
  }
}

type Ports = { listen: number; upstream: number; admin: number };
type Kind = {
  name: string;
  file: string;
  find(): Program | undefined;
  buffered: (text: string, on: boolean) => string;
  /** The file with these ports, as the program takes it in `dir`. */
  place(text: string, dir: string, ports: Ports): { text: string; args: (file: string) => string[] };
};

const KINDS: readonly Kind[] = [
  {
    name: 'nginx',
    file: 'nginx.conf',
    find: () => findProgram('nginx', ['nginx', 'libpcre2-8-0', 'libssl3']),
    buffered: (text, on) =>
      text.replace('proxy_request_buffering on', `proxy_request_buffering ${on ? 'on' : 'off'}`),
    place: (text, dir, { listen, upstream }) => {
      const folders = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
        (what) => `${what}_temp_path ${join(dir, what)};`,
      );
      const own = text
        .replace('10.0.0.1:8080', `127.0.0.1:${upstream}`)
        .replace('  server 10.0.0.2:8080;\n', '')
        .replace('listen 80', `listen 127.0.0.1:${listen}`);
      const user = process.getuid?.() === 0 ? 'user root;\n' : '';
      const frame = `${user}daemon off;\npid ${join(dir, 'pid')};\nerror_log ${join(dir, 'errors')};\nevents {}\n`;
      const whole = `${frame}http {\naccess_log off;\n${folders.join('\n')}\n${own}\n}\n`;
      return { text: whole, args: (file) => ['-p', dir, '-c', file] };
    },
  },
  {
    name: 'haproxy',
    file: 'haproxy.cfg',
    find: () =>
      findProgram('haproxy', [
        'haproxy',
        'liblua5.3-0',
        'libopentracing-c-wrapper0',
        'libopentracing1',
        'libpcre2-8-0',
        'libssl3',
      ]),
    buffered: (text, on) =>
      on ? text.replace('# option http-buffer-request', 'option http-buffer-request') : text,
    place: (text, _dir, { listen, upstream, admin }) => {
      const own = text
        .replace('10.0.0.1:8080 port 8081', `127.0.0.1:${upstream} port ${admin}`)
        .replace('  server two 10.0.0.2:8080 port 8081\n', '')
        .replace('bind :80', `bind 127.0.0.1:${listen}`);
      return { text: own, args: (file) => ['-db', '-f', file] };
    },
  },
  {
    name: 'envoy',
    file: 'envoy.yaml',
    find: findEnvoy,
    buffered: (text, on) => (on ? text.replace(/# (?=- name: | {2})/g, '') : text),
    place: (text, _dir, { listen, upstream, admin }) => {
      const [kept = ''] = text.split(/ *- endpoint:\n *address: .*10\.0\.0\.2/);
      const own = kept
        .replace('address: 10.0.0.1, port_value: 8080', `address: 127.0.0.1, port_value: ${upstream}`)
        .replace('port_value: 8081', `port_value: ${admin}`)
        .replace('address: 0.0.0.0, port_value: 80 ', `address: 127.0.0.1, port_value: ${listen} `);
      const quiet = ['--log-level', 'critical', '--disable-hot-restart', '--concurrency', '1'];
      return { text: own, args: (file) => ['-c', file, ...quiet] };
    },
  },
];

const found = KINDS.flatMap((kind) => {
  const program = kind.find();
  return program ? [{ ...kind, program }] : [];
});

let system: System;
let project: Project;
beforeAll(async () => {
  system = await System.start();
  project = await system.createProject();
});
afterAll(() => system?.stop());

class RunningProxy {
  readonly relay: Relay;
  readonly url: string;
  readonly #child: ChildProcess;
  readonly #dir: string;

  private constructor(relay: Relay, url: string, own: { child: ChildProcess; dir: string }) {
    this.relay = relay;
    this.url = url;
    this.#child = own.child;
    this.#dir = own.dir;
  }

  static async start(kind: Kind & { program: Program }, buffers: boolean): Promise<RunningProxy> {
    const dir = temporaryFolder(kind.name);
    const relay = new Relay(system.port);
    const ports = { listen: await lastingPort(), upstream: await lastingPort(), admin: system.adminPort };
    await relay.listen(ports.upstream);
    const text = kind.buffered(readFileSync(join(DEPLOY, kind.file), 'utf8'), buffers);
    const placed = kind.place(text, dir, ports);
    const file = join(dir, kind.file);
    mkdirSync(join(dir, 'logs'));
    writeFileSync(file, placed.text);
    const { path, env } = kind.program;
    const child = spawn(path, placed.args(file), { env: { ...process.env, ...env }, stdio: 'ignore' });
    const running = new RunningProxy(relay, `http://127.0.0.1:${ports.listen}`, { child, dir });
    const probe = (): Promise<boolean> =>
      fetch(`${running.url}/healthz`).then(
        (res) => res.ok,
        () => false,
      );
    await until(probe);
    return running;
  }

  post(body: string | ReadableStream<Uint8Array>, headers: Record<string, string> = {}): Promise<Response> {
    const url = `${this.url}/api/${project.id}/envelope/?compat_key=${project.key}`;
    return fetch(url, { method: 'POST', body, headers, duplex: 'half' } as RequestInit);
  }

  async stop(): Promise<void> {
    this.#child.kill('SIGTERM');
    await once(this.#child, 'exit');
    this.relay.close();
    rmSync(this.#dir, { recursive: true, force: true });
  }
}

const pieces = (text: string): ReadableStream<Uint8Array> =>
  new Blob([text]).stream() as ReadableStream<Uint8Array>;

describe.each(found)('$name', (kind) => {
  describe.each([true, false])('with request buffering %s', (buffers) => {
    let proxy: RunningProxy;
    beforeAll(async () => {
      proxy = await RunningProxy.start(kind, buffers);
    });
    afterAll(() => proxy?.stop());

    it('passes small and large envelopes, with a length and in chunks', async () => {
      const ids = [eventId(), eventId(), eventId(), eventId()] as const;
      const large = (id: string): string => errorEvent(id, 'x'.repeat(3 * MIB));
      const answers = [
        await proxy.post(errorEvent(ids[0])),
        await proxy.post(pieces(errorEvent(ids[1]))),
        await proxy.post(large(ids[2])),
        await proxy.post(pieces(large(ids[3]))),
      ];
      expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
      for (const id of ids) expect(await system.storedOf(id)).toHaveLength(1);
    });

    it("passes sluice's own 413, with the headers that browsers need", async () => {
      const answer = await proxy.post(errorEvent(eventId(), 'x'.repeat(5.5 * MIB)));
      expect(answer.status).toBe(413);
      expect(answer.headers.get('access-control-allow-origin')).toBe('*');
      expect(await answer.json()).toEqual({ error: 'Payload too large' });
    });

    it('speaks HTTP/1.1, says who the client is, and names the request', async () => {
      const id = eventId();
      const answer = await proxy.post(errorEvent(id), {
        'x-forwarded-for': '10.9.8.7',
        'x-request-id': 'mine',
      });
      const said = `${proxy.relay.heads.at(-1)}\r\n`;
      expect(said).toMatch(/^POST [^ ]+ HTTP\/1\.1\r\n/);
      const sender = [...said.matchAll(/^x-forwarded-for: .*?([0-9.]+)\r$/gim)].at(-1)?.[1];
      // Of a client on its own machine, as ours is, Envoy names the address of the machine.
      expect(OWN_ADDRESSES).toContain(sender);
      expect(said).toMatch(/^x-forwarded-proto: http\r$/im);
      const name = answer.headers.get('x-request-id') ?? '';
      expect(name).toMatch(/^[0-9a-f-]{32,36}$/);
      expect(said.toLowerCase()).toContain(`x-request-id: ${name}\r\n`);
    });
  });

  it('ends idle connections before sluice does, so that no POST meets a connection that is being closed', async () => {
    const proxy = await RunningProxy.start(kind, true);
    try {
      const answers = await Promise.all(Array.from({ length: 8 }, () => proxy.post(errorEvent(eventId()))));
      for (const answer of answers) expect(answer.status).toBe(200);
      const { relay } = proxy;
      await until(() => relay.ended.length === relay.connections);
      expect(relay.ended.filter(({ by }) => by === 'sluice')).toEqual([]);
      for (const { idleMs } of relay.ended) expect(idleMs).toBeLessThan(IDLE_MS_MIN);
    } finally {
      await proxy.stop();
    }
  });
});
