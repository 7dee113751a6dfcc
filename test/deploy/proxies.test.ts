/** The files of deploy/proxies in the real nginx, HAProxy and Envoy, in front of sluice. */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect as connectSecurely, type IncomingHttpHeaders } from 'node:http2';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { lastingPort } from '../support/servers.ts';
import { MIB, type Project, System, until } from '../support/system.ts';
import { PROXIES, type ProxyKind, RunningProxy } from './proxy-programs.ts';

/** uWebSockets.js closes idle connections after this at the earliest. */
const IDLE_MS_MIN = 8_000;

const OWN_ADDRESSES = Object.values(networkInterfaces()).flatMap((all = []) =>
  all.map(({ address }) => address),
);
const POST = Buffer.from('POST ');

/** What a proxy says to sluice, and who ends their connections. */
class Relay {
  readonly #server: Server;
  readonly #open = new Set<Socket>();
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
      for (const socket of [proxy, sluice]) {
        this.#open.add(socket);
        socket.on('error', () => undefined);
        socket.on('close', () => this.#open.delete(socket));
      }
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
    for (const socket of this.#open) socket.destroy();
  }
}

let system: System;
let project: Project;
const path = (): string => `/api/${project.id}/envelope/?compat_key=${project.key}`;
beforeAll(async () => {
  system = await System.start();
  project = await system.createProject();
});
afterAll(() => system?.stop());

/** A proxy, and the relay through which it reaches sluice. */
class Front {
  readonly relay: Relay;
  readonly #proxy: RunningProxy;

  private constructor(relay: Relay, proxy: RunningProxy) {
    this.relay = relay;
    this.#proxy = proxy;
  }

  static async start(kind: ProxyKind, buffers: boolean): Promise<Front> {
    const relay = new Relay(system.port);
    const member = { port: await lastingPort(), adminPort: system.adminPort };
    await relay.listen(member.port);
    return new Front(relay, await RunningProxy.start(kind, [member], buffers));
  }

  post(body: string | ReadableStream<Uint8Array>, headers: Record<string, string> = {}): Promise<Response> {
    const url = `http://127.0.0.1:${this.#proxy.port}${path()}`;
    return fetch(url, { method: 'POST', body, headers, duplex: 'half' } as RequestInit);
  }

  /** By HTTP/2 over TLS. */
  async postSecurely(body: string): Promise<{ status: unknown; protocol: string | undefined }> {
    const ca = readFileSync(join(this.#proxy.dir, 'ca.crt'));
    const session = connectSecurely(`https://localhost:${this.#proxy.httpsPort}`, { ca });
    try {
      const stream = session.request({ ':method': 'POST', ':path': path() }).end(body);
      const [headers] = (await once(stream, 'response')) as [IncomingHttpHeaders];
      return { status: headers[':status'], protocol: session.alpnProtocol };
    } finally {
      session.close();
    }
  }

  async stop(): Promise<void> {
    await this.#proxy.stop();
    this.relay.close();
  }
}

const pieces = (text: string): ReadableStream<Uint8Array> =>
  new Blob([text]).stream() as ReadableStream<Uint8Array>;

describe.each(PROXIES)('$name', (kind) => {
  describe.each([true, false])('with request buffering %s', (buffers) => {
    let proxy: Front;
    beforeAll(async () => {
      proxy = await Front.start(kind, buffers);
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

  it('ends TLS and speaks HTTP/2 to clients, and tells sluice so', async () => {
    const proxy = await Front.start(kind, true);
    try {
      const id = eventId();
      expect(await proxy.postSecurely(errorEvent(id))).toEqual({ status: 200, protocol: 'h2' });
      expect(`${proxy.relay.heads.at(-1)}\r\n`).toMatch(/^x-forwarded-proto: https\r$/im);
      expect(await system.storedOf(id)).toHaveLength(1);
    } finally {
      await proxy.stop();
    }
  });

  it('lets pages see every answer: those of sluice, and its own where sluice is away', async () => {
    const proxy = await Front.start(kind, true);
    try {
      const seen = async (body: string): Promise<unknown> => {
        const { status, headers } = await proxy.post(body);
        return [status, headers.get('access-control-allow-origin')];
      };
      expect(await seen(errorEvent(eventId()))).toEqual([200, '*']);
      if (kind.name === 'nginx')
        expect(await seen(errorEvent(eventId(), 'x'.repeat(7 * MIB)))).toEqual([413, '*']);
      proxy.relay.close();
      await until(async () => (await proxy.post(errorEvent(eventId()))).status !== 200);
      expect(await seen(errorEvent(eventId()))).toEqual([kind.name === 'nginx' ? 502 : 503, '*']);
    } finally {
      await proxy.stop();
    }
  });

  it('ends idle connections before sluice does, so that no POST meets a connection that is being closed', async () => {
    const proxy = await Front.start(kind, true);
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
