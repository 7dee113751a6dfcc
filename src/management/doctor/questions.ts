/** Measurements for doctor's checks. None of them leaves a lasting change. */
import { mkdtempSync, readFileSync, rmSync, statfsSync } from 'node:fs';
import { join } from 'node:path';
import { withRedis } from '../../ingest/limit/redis-client.ts';
import { brokerNow } from '../../projects/bucket.ts';
import type { NatsLink } from '../../stream/nats.ts';

/** `roundTripMs`: median of the round trips. `aheadMs`: how far another clock is ahead of ours. */
type Times = { roundTripMs: number; aheadMs: number };

const ROUND_TRIPS = 21;

/**
 * Asks another clock for its time ROUND_TRIPS times. The quickest answer gives the most exact
 * difference between the clocks.
 * @param clockMs reads the other clock, Unix milliseconds
 */
export async function timesOf(clockMs: () => Promise<number>): Promise<Times> {
  const trips: Times[] = [];
  for (let n = 0; n < ROUND_TRIPS; n++) {
    const sentAt = performance.now();
    const ms = await clockMs();
    const roundTripMs = performance.now() - sentAt;
    trips.push({ roundTripMs, aheadMs: ms - (Date.now() - roundTripMs / 2) });
  }
  trips.sort((a, b) => a.roundTripMs - b.roundTripMs);
  const [quickest, median] = [trips[0], trips[Math.floor(ROUND_TRIPS / 2)]] as [Times, Times];
  return { roundTripMs: median.roundTripMs, aheadMs: quickest.aheadMs };
}

function readText(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch {
    return undefined;
  }
}

/** Reads a number from a file; undefined when this system does not have the file. */
export function readNumber(file: string): number | undefined {
  const text = readText(file);
  return text === undefined ? undefined : Number(text);
}

/** Number of files that a process may have open; undefined when this system does not tell it. */
export function openFilesMax(): number | undefined {
  const soft = /^Max open files\s+(\S+)/m.exec(readText('/proc/self/limits') ?? '')?.[1];
  return soft === 'unlimited' ? Number.POSITIVE_INFINITY : soft ? Number(soft) : undefined;
}

/**
 * Tries whether a worker could write into the folder: makes a folder in it, and removes that again.
 * @returns the free bytes of the volume
 * @throws when the folder cannot be written to
 */
export function freeBytes(folder: string): number {
  rmSync(mkdtempSync(join(folder, 'sluice-doctor-')), { recursive: true });
  const { bavail, bsize } = statfsSync(folder);
  return bavail * bsize;
}

/** Parameters for a connection to one server of Redis. */
export type RedisServer = Parameters<typeof withRedis>[0];

/** Asks a server of Redis. `info` of the result returns the value of an INFO field by its name. */
export const askRedis = (access: RedisServer) =>
  withRedis(access, async (client) => {
    const text = await client.info();
    const times = await timesOf(async () => {
      const [seconds, micros] = await client.time();
      return Number(seconds) * 1000 + Number(micros) / 1000;
    });
    const info = (name: string) => new RegExp(`^${name}:(.*)`, 'm').exec(text)?.[1] ?? 'unknown';
    return { info, ...times };
  });

/** Returns how many milliseconds NATS's clock is ahead of this machine's. */
export async function natsClockAheadMs(link: NatsLink): Promise<number> {
  const sentAt = Date.now();
  const nats = await brokerNow(link);
  return nats - (sentAt + Date.now()) / 2;
}
