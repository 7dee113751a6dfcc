/**
 * Three nats-servers that are one JetStream cluster, on free ports and in folders of their own. A proxy stands before each for its
 * clients, and one on the way from each to each other, so that the network between them can be spoiled too.
 */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { findServer, type RunningServer, startNatsWith } from '../../src/commands/dev/servers.ts';
import type { NatsLink } from '../../src/stream/nats.ts';
import { lastingPort, temporaryFolder } from './servers.ts';
import { TcpProxy } from './tcp-proxy.ts';

const NODES = 3;
/** Nobody listens there: nodes tell each other where they are, and must not find a way around the proxies. */
const NOWHERE = '127.0.0.1:1';

type Place = { name: string; dir: string; port: number; routePort: number; clients: TcpProxy };
type Route = { from: number; to: number; proxy: TcpProxy };

export class NatsCluster {
  readonly #bin: string;
  readonly #dir = temporaryFolder('cluster');
  readonly #places: Place[] = [];
  readonly #routes: Route[] = [];
  readonly #servers: RunningServer[] = [];
  readonly #lines: readonly string[];

  private constructor(bin: string, lines: readonly string[]) {
    this.#bin = bin;
    this.#lines = lines;
  }

  /** All three answer; which of them leads shows later. @param lines of each one's configuration */
  static async start(lines: readonly string[] = []): Promise<NatsCluster> {
    const bins = { nats: process.env.NATS_SERVER_BIN ?? '' };
    const bin = findServer('nats-server', bins, process.env.PATH ?? '');
    if (!bin) throw new Error('nats-server is not installed');
    const cluster = new NatsCluster(bin, lines);
    await cluster.#prepare();
    await Promise.all(cluster.#places.map((_, n) => cluster.restart(n)));
    return cluster;
  }

  async #prepare(): Promise<void> {
    for (let n = 0; n < NODES; n++) {
      const name = `node${n}`;
      const port = await lastingPort();
      const clients = await TcpProxy.start(port);
      this.#places.push({ name, dir: join(this.#dir, name), port, routePort: await lastingPort(), clients });
    }
    for (const from of this.#places.keys())
      for (const [to, { routePort }] of this.#places.entries())
        if (from !== to) this.#routes.push({ from, to, proxy: await TcpProxy.start(routePort) });
  }

  /** Straight to the nodes; what a node tells its clients of the others leads through the proxies. */
  get urls(): string[] {
    return this.#places.map(({ port }) => `nats://127.0.0.1:${port}`);
  }

  get proxiedUrls(): string[] {
    return this.clientProxies.map(({ port }) => `nats://127.0.0.1:${port}`);
  }

  get clientProxies(): TcpProxy[] {
    return this.#places.map(({ clients }) => clients);
  }

  pid(node: number): number {
    return this.#servers[node]?.pid ?? 0;
  }

  /** Starts a node, for the first time or after it has ended. */
  async restart(node: number): Promise<void> {
    const { name, dir, port, routePort, clients } = this.#places[node] as Place;
    const routes = this.#routes
      .filter(({ from }) => from === node)
      .map(({ proxy }) => `nats://127.0.0.1:${proxy.port}`);
    const lines = [
      ...this.#lines,
      `server_name: ${name}`,
      `client_advertise: "127.0.0.1:${clients.port}"`,
      `cluster { name: sluice, listen: 127.0.0.1:${routePort}, advertise: "${NOWHERE}", routes: [${routes.join(', ')}] }`,
    ];
    this.#servers[node] = await startNatsWith(this.#bin, { dir, port, lines });
  }

  /** Another server in the place of one that has ended: with this name and an empty folder. */
  async replace(node: number, name: string): Promise<void> {
    const place = this.#places[node] as Place;
    rmSync(place.dir, { recursive: true, force: true });
    this.#places[node] = { ...place, name, dir: join(this.#dir, name) };
    await this.restart(node);
  }

  /** Ends the node's server, if it has not ended by itself. */
  kill(node: number): Promise<string> {
    const server = this.#servers[node] as RunningServer;
    try {
      process.kill(server.pid, 'SIGKILL');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
    return server.exited;
  }

  /** Nothing passes between this node and the others until the returned function is called; its clients still reach it. */
  isolate(node: number): () => void {
    const cut = this.#routes.filter(({ from, to }) => from === node || to === node);
    for (const { proxy } of cut) proxy.weather = { blackhole: true };
    return () => {
      for (const { proxy } of cut) proxy.weather = {};
    };
  }

  /** The node that leads this stream; undefined while none does. */
  async leaderOf(link: NatsLink, stream: string): Promise<number | undefined> {
    const { cluster } = await (await link.manager()).streams.info(stream);
    const found = this.#places.findIndex(({ name }) => name === cluster?.leader);
    return found < 0 ? undefined : found;
  }

  async close(): Promise<void> {
    await Promise.all(this.#servers.map((server) => server.stop()));
    const proxies = [...this.clientProxies, ...this.#routes.map(({ proxy }) => proxy)];
    await Promise.all(proxies.map((proxy) => proxy.close()));
    rmSync(this.#dir, { recursive: true, force: true });
  }
}
