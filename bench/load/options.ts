/** What a load run needs, as plain JSON that can be sent to the process that does it. */

import { type Mix, type Target, Workload } from '../workload.ts';
import type { Encoding } from './body.ts';
import type { Endpoint } from './connection.ts';
import { Generator } from './generator.ts';
import type { LoadResult, Second } from './result.ts';

export type LoadOptions = {
  /** Scheme, host and port of the server. */
  url: string;
  targets: readonly Target[];
  even?: boolean | undefined;
  mix: Mix;
  encoding: Encoding | 'sdk';
  /** Requests per second; without it closed loop. */
  rate?: number | undefined;
  connections: number;
  keepAlive?: boolean | undefined;
  warmupMs: number;
  durationMs: number;
  seed: number;
  expected?: readonly number[] | undefined;
  firstId?: number | undefined;
};

export function endpointOf(url: string): Endpoint {
  const { protocol, hostname, port } = new URL(url);
  const tls = protocol === 'https:';
  return { host: hostname.replace(/^\[|\]$/g, ''), port: Number(port) || (tls ? 443 : 80), tls };
}

/** Runs in the calling process: its event loop is the generator's. */
export function runLoad(options: LoadOptions, onSecond?: (second: Second) => void): Promise<LoadResult> {
  const { url, targets, even, mix, encoding, seed, keepAlive = true } = options;
  const host = new URL(url).host;
  const workload = new Workload({ seed, mix, encoding, targets, even, host, keepAlive });
  return new Generator({
    endpoint: endpointOf(url),
    workload,
    connections: options.connections,
    keepAlive,
    rate: options.rate,
    warmupMs: options.warmupMs,
    durationMs: options.durationMs,
    expected: options.expected ?? [200],
    firstId: options.firstId ?? Math.floor(Math.random() * 0x1_0000_0000),
    onSecond,
  }).run();
}
