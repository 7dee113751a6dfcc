import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type RunningServer, startNats } from '../src/commands/dev/servers.ts';

export type BrokerOptions = {
  /** Sync the disk before every acknowledgement (nats-server 2.10 or newer). */
  syncAlways?: boolean;
};

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

/**
 * startNats writes the settings of every supported version itself. To add one it is given, as the server's program, a script that
 * adds it to the file on its way to the server.
 */
export function startBroker(
  bin: string,
  dir: string,
  { syncAlways = false }: BrokerOptions,
): Promise<RunningServer> {
  if (!syncAlways) return startNats(bin, dir);
  mkdirSync(dir, { recursive: true });
  const script = join(dir, 'nats-server-sync-always');
  writeFileSync(
    script,
    `#!/bin/sh\nsed -i 's/jetstream {/jetstream { sync_interval: always,/' "$2"\nexec '${bin}' "$@"\n`,
  );
  chmodSync(script, 0o755);
  return startNats(script, dir);
}
