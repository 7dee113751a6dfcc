/** Real servers for tests: started on free ports in a folder of their own, gone afterwards. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  findServer,
  LASTING_PORTS,
  type RunningServer,
  type ServerKind,
  startNats,
  startNatsWith,
  startRedis,
} from '../../src/commands/dev/servers.ts';
import { checkPortIsFree } from '../../src/lib/port-check.ts';
import { LANES } from './lanes.ts';

export type TestServer = RunningServer & {
  dir: string;
  /** Stops the server and removes its folder. */
  close(): Promise<void>;
};

/** @throws when it is not installed */
export function binary(kind: ServerKind): string {
  const bins = { redis: process.env.REDIS_SERVER_BIN, nats: process.env.NATS_SERVER_BIN };
  const found = findServer(kind, bins, process.env.PATH ?? '');
  if (!found) throw new Error(`${kind} is not installed`);
  return found;
}

/** Test files that run side by side choose from ports of their own: what one has let go for a moment is not given to another. */
const LANE = Number(process.env.VITEST_POOL_ID ?? 0) % LANES;
const PORTS_OF_LANE = Math.floor((LASTING_PORTS.to - LASTING_PORTS.from) / LANES);
/** One after the other: nobody is given a port twice that its first owner has not yet listened on. */
let turn = Math.floor(Math.random() * PORTS_OF_LANE);

/**
 * A free TCP port of the loopback interface for a server that will be away for a moment: meanwhile nobody is given it by chance, neither
 * a client that connects from it nor a neighbour's server that is then taken for ours.
 */
export async function lastingPort(): Promise<number> {
  for (;;) {
    const port = LASTING_PORTS.from + LANE + LANES * (turn++ % PORTS_OF_LANE);
    const free = await checkPortIsFree('127.0.0.1', port).then(
      () => true,
      () => false,
    );
    if (free) return port;
  }
}

export const temporaryFolder = (name: string): string => mkdtempSync(join(tmpdir(), `sluice-${name}-`));

function disposable(server: RunningServer, dir: string): TestServer {
  const close = async (): Promise<void> => {
    await server.stop();
    rmSync(dir, { recursive: true, force: true });
  };
  return { ...server, dir, close };
}

/** A broker with lines of configuration of its own. */
export async function natsServerWith(...lines: string[]): Promise<TestServer> {
  const dir = temporaryFolder('nats');
  return disposable(
    await startNatsWith(binary('nats-server'), { dir, port: await lastingPort(), lines }),
    dir,
  );
}

/** Another broker on the port of one that was stopped, with a configuration of its own. */
export async function natsServerInPlaceOf({ port }: TestServer, ...lines: string[]): Promise<TestServer> {
  const dir = temporaryFolder('nats');
  return disposable(await startNatsWith(binary('nats-server'), { dir, port, lines }), dir);
}

/** With `port` and `dir` of one that was stopped: the same server again. */
export type Again = { port: number; dir: string };

/** @param wrapped what to start in the program's place, which is told its path */
export async function redisServer(
  again?: Again,
  wrapped: (bin: string) => string = (bin) => bin,
): Promise<TestServer> {
  const dir = again?.dir ?? temporaryFolder('redis');
  return disposable(
    await startRedis(wrapped(binary('redis-server')), dir, again?.port ?? (await lastingPort())),
    dir,
  );
}

export async function natsServer(again?: Again): Promise<TestServer> {
  const dir = again?.dir ?? temporaryFolder('nats');
  return disposable(await startNats(binary('nats-server'), dir, again?.port ?? (await lastingPort())), dir);
}
