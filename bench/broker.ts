import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePort, type RunningServer, startNatsWith } from '../src/commands/dev/servers.ts';

export type BrokerOptions = {
  /** Sync the disk before every acknowledgement (nats-server 2.10 or newer). */
  syncAlways?: boolean;
  /** More than one: a cluster, in which each stream has as many replicas. */
  servers?: number;
  /** A folder for each server, in place of new ones. */
  folders?: readonly string[];
};

/** Where a server is, and stays when it is started again. */
export type BrokerPlace = { dir: string; port: number; lines: readonly string[] };

/** `2.9.10` */
export function brokerVersion(bin: string): string {
  const said = spawnSync(bin, ['--version'], { encoding: 'utf8' }).stdout ?? '';
  return /v?(\d+\.\d+\.\d+)/.exec(said)?.[1] ?? 'unknown';
}

/** The error with what the broker said last. It must have been stopped. */
export async function withLastWords(error: unknown, broker: RunningServer | undefined): Promise<unknown> {
  if (!broker || !(error instanceof Error)) return error;
  const words = (await broker.exited).trim();
  return new Error(`${error.message}; the broker said last:\n${words}`, { cause: error });
}

export function canSyncAlways(bin: string): boolean {
  const [major = 0, minor = 0] = brokerVersion(bin).split('.').map(Number);
  return major > 2 || (major === 2 && minor >= 10);
}

/** @param dir of the folders, unless the options name them */
export async function brokerPlaces(
  dir: string,
  { servers = 1, folders }: BrokerOptions,
): Promise<BrokerPlace[]> {
  const names = Array.from({ length: servers }, (_, n) => (n === 0 ? 'nats' : `nats${n + 1}`));
  const routes = await Promise.all(names.map(async () => `127.0.0.1:${await freePort()}`));
  return Promise.all(
    names.map(async (name, n) => {
      const others = routes.filter((_, other) => other !== n).map((route) => `nats://${route}`);
      const cluster = `cluster { name: bench, listen: "${routes[n]}", routes: [${others.join(', ')}] }`;
      const lines = servers === 1 ? [] : [`server_name: ${name}`, cluster];
      return { dir: folders?.[n] ?? join(dir, name), port: await freePort(), lines };
    }),
  );
}

export const startBroker = async (bin: string, dir: string, options: BrokerOptions): Promise<RunningServer> =>
  startBrokerAt(bin, { dir, port: await freePort(), lines: [] }, options);

/**
 * A nats-server that syncs each message before it acknowledges it. `startNatsWith` writes the settings of every supported version
 * itself; this script, given as the server's program, adds one to the file on its way to the server.
 * @param dir gets the script
 */
export function syncingAlways(bin: string, dir: string): string {
  mkdirSync(dir, { recursive: true });
  const script = join(dir, 'nats-server-sync-always');
  writeFileSync(
    script,
    `#!/bin/sh\nsed -i 's/jetstream {/jetstream { sync_interval: always,/' "$2"\nexec '${bin}' "$@"\n`,
  );
  chmodSync(script, 0o755);
  return script;
}

export function startBrokerAt(
  bin: string,
  place: BrokerPlace,
  { syncAlways = false }: BrokerOptions,
): Promise<RunningServer> {
  return startNatsWith(syncAlways ? syncingAlways(bin, place.dir) : bin, place);
}
