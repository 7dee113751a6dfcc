/** Three nats-servers that are one JetStream cluster, on free ports and in folders of their own. */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { findServer, freePort, type RunningServer, startNatsWith } from '../../src/dev/servers.ts';
import type { NatsLink } from '../../src/stream/nats.ts';
import { temporaryFolder } from './servers.ts';

const NODES = 3;

type Place = { name: string; dir: string; port: number; routePort: number };

export class NatsCluster {
  readonly #bin: string;
  readonly #dir = temporaryFolder('cluster');
  readonly #places: Place[] = [];
  readonly #servers: RunningServer[] = [];

  private constructor(bin: string) {
    this.#bin = bin;
  }

  /** All three answer; which of them leads shows later. */
  static async start(): Promise<NatsCluster> {
    const bin = findServer(
      'nats-server',
      { nats: process.env.NATS_SERVER_BIN ?? '' },
      process.env.PATH ?? '',
    );
    if (!bin) throw new Error('nats-server is not installed');
    const cluster = new NatsCluster(bin);
    for (let n = 0; n < NODES; n++) {
      const name = `node${n}`;
      const dir = join(cluster.#dir, name);
      cluster.#places.push({ name, dir, port: await freePort(), routePort: await freePort() });
    }
    await Promise.all(cluster.#places.map((_, n) => cluster.restart(n)));
    return cluster;
  }

  get urls(): string[] {
    return this.#places.map(({ port }) => `nats://127.0.0.1:${port}`);
  }

  pid(node: number): number {
    return this.#servers[node]?.pid ?? 0;
  }

  /** Starts a node, for the first time or after it has ended. */
  async restart(node: number): Promise<void> {
    const place = this.#places[node] as Place;
    const routes = this.#places.map(({ routePort }) => `nats://127.0.0.1:${routePort}`).join(', ');
    const lines = [
      `server_name: ${place.name}`,
      `cluster { name: sluice, listen: 127.0.0.1:${place.routePort}, routes: [${routes}] }`,
    ];
    this.#servers[node] = await startNatsWith(this.#bin, { dir: place.dir, port: place.port, lines });
  }

  kill(node: number): Promise<string> {
    const server = this.#servers[node] as RunningServer;
    process.kill(server.pid, 'SIGKILL');
    return server.exited;
  }

  /** The node that leads this stream; undefined while none does. */
  async leaderOf(link: NatsLink, stream: string): Promise<number | undefined> {
    const { cluster } = await (await link.manager()).streams.info(stream);
    const found = this.#places.findIndex(({ name }) => name === cluster?.leader);
    return found < 0 ? undefined : found;
  }

  async close(): Promise<void> {
    await Promise.all(this.#servers.map((server) => server.stop()));
    rmSync(this.#dir, { recursive: true, force: true });
  }
}
