/**
 * What `sluice doctor` wants to know of a Redis server. Its own short-lived connection: the
 * limiter's breaker stays out of it.
 */
import { Redis } from 'ioredis';

export type RedisReport = {
  /** Fields of INFO, as Redis names them. */
  info: ReadonlyMap<string, string>;
  /** Redis's clock, Unix ms. */
  clockMs: number;
  /** Our clock when that was asked, in the middle of the round trip. */
  askedAtMs: number;
  /** Median round trip. */
  roundTripMs: number;
};

const TIMEOUT_MS = 2_000;
const ROUND_TRIPS = 21;

/** @throws with Redis's or the network's reason when the server does not answer */
export async function inspectRedis(url: string): Promise<RedisReport> {
  const client = new Redis(url, {
    lazyConnect: true,
    maxRetriesPerRequest: 0,
    connectTimeout: TIMEOUT_MS,
    commandTimeout: TIMEOUT_MS,
    retryStrategy: () => null,
  });
  let reason: Error | undefined;
  client.on('error', (error: Error) => {
    reason = error;
  });
  try {
    await client.connect();
    return await ask(client);
  } catch (error) {
    throw reason ?? error;
  } finally {
    client.disconnect();
  }
}

async function ask(client: Redis): Promise<RedisReport> {
  const info = parseInfo(await client.info());
  const took: number[] = [];
  for (let n = 0; n < ROUND_TRIPS; n++) {
    const began = performance.now();
    await client.ping();
    took.push(performance.now() - began);
  }
  const roundTripMs = took.sort((a, b) => a - b)[Math.floor(ROUND_TRIPS / 2)] ?? 0;
  const sentAt = Date.now();
  const [seconds, micros] = (await client.time()) as unknown as [string | number, string | number];
  return {
    info,
    clockMs: Number(seconds) * 1000 + Number(micros) / 1000,
    askedAtMs: (sentAt + Date.now()) / 2,
    roundTripMs,
  };
}

function parseInfo(text: string): Map<string, string> {
  const fields = new Map<string, string>();
  for (const line of text.split(/\r?\n/)) {
    const colon = line.indexOf(':');
    if (colon > 0 && !line.startsWith('#')) fields.set(line.slice(0, colon), line.slice(colon + 1));
  }
  return fields;
}
