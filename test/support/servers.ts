/** Real servers for tests: started on free ports in a folder of their own, gone afterwards. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  findServer,
  type RunningServer,
  type ServerKind,
  startNats,
  startRedis,
} from '../../src/dev/servers.ts';

export type TestServer = RunningServer & {
  dir: string;
  /** Stops the server and removes its folder. */
  close(): Promise<void>;
};

function binary(kind: ServerKind): string {
  const bins = { redis: process.env.REDIS_SERVER_BIN, nats: process.env.NATS_SERVER_BIN };
  const found = findServer(kind, bins, process.env.PATH ?? '');
  if (!found) throw new Error(`${kind} is not installed`);
  return found;
}

export const temporaryFolder = (name: string): string => mkdtempSync(join(tmpdir(), `sluice-${name}-`));

function disposable(server: RunningServer, dir: string): TestServer {
  const close = async (): Promise<void> => {
    await server.stop();
    rmSync(dir, { recursive: true, force: true });
  };
  return { ...server, dir, close };
}

/** With `port` and `dir` of one that was stopped: the same server again. */
export type Again = { port: number; dir: string };

/** @param wrapped what to start in the program's place, which is told its path */
export async function redisServer(
  again?: Again,
  wrapped: (bin: string) => string = (bin) => bin,
): Promise<TestServer> {
  const dir = again?.dir ?? temporaryFolder('redis');
  return disposable(await startRedis(wrapped(binary('redis-server')), dir, again?.port), dir);
}

export async function natsServer(again?: Again): Promise<TestServer> {
  const dir = again?.dir ?? temporaryFolder('nats');
  return disposable(await startNats(binary('nats-server'), dir, again?.port), dir);
}
