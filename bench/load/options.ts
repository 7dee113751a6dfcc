/** What a load run needs, as plain JSON that can be sent to the process that does it. */

import { type Mix, type Recorded, type Size, type Target, Workload } from '../workload.ts';
import type { Encoding } from './body.ts';
import type { Endpoint } from './connection.ts';
import { Generator, type GeneratorOptions } from './generator.ts';
import type { Segment } from './pace/pace.ts';
import type { LoadResult, Second } from './result.ts';

export type LoadOptions = {
  /** Scheme, host and port of the server. */
  url: string;
  /** Of all servers that share the load, when there are several. */
  urls?: readonly string[] | undefined;
  /** Host header in the place of the URL's. */
  host?: string | undefined;
  headers?: readonly string[] | undefined;
  targets: readonly Target[];
  even?: boolean | undefined;
  mix: Mix;
  sizes?: readonly Size[] | undefined;
  corpus?: readonly Recorded[] | undefined;
  encoding: Encoding | 'sdk';
  /** Requests per second; without it and `segments` closed loop. */
  rate?: number | undefined;
  /** A plan of rates, in the place of `rate` and `durationMs`. */
  segments?: readonly Segment[] | undefined;
  phase?: number | undefined;
  connections: number;
  rare?: { clients: number; share: number } | undefined;
  keepAlive?: boolean | undefined;
  warmupMs: number;
  durationMs: number;
  timeoutMs?: number | undefined;
  /** The run ends when so many were sent in the measured time. */
  requestsMax?: number | undefined;
  seed: number;
  expected?: readonly number[] | undefined;
  firstId?: number | undefined;
  /** The first 24 digits of every id. */
  idPrefix?: string | undefined;
};

/** What cannot be sent to another process. */
export type LoadHooks = Pick<GeneratorOptions, 'onSecond' | 'ledger' | 'stop' | 'signal' | 'keepHistograms'>;

const TIMEOUT_MS = 10_000;

export function endpointOf(url: string): Endpoint {
  const { protocol, hostname, port } = new URL(url);
  const tls = protocol === 'https:';
  return { host: hostname.replace(/^\[|\]$/g, ''), port: Number(port) || (tls ? 443 : 80), tls };
}

export function workloadOf(options: LoadOptions): Workload {
  const { url, urls = [url], host, keepAlive = true } = options;
  const hosts = urls.map((one) => host ?? new URL(one).host);
  return new Workload({ ...options, host: hosts[0] as string, hosts, keepAlive });
}

function planOf({ segments, rate, durationMs }: LoadOptions): readonly Segment[] | undefined {
  if (segments || rate === undefined) return segments;
  return [{ name: `${rate}/s`, fromMs: 0, toMs: durationMs, fromRate: rate, toRate: rate }];
}

/** A generator of this process: its event loop is the generator's. */
export function generatorOf(options: LoadOptions, workload: Workload, hooks: LoadHooks = {}): Generator {
  const { url, urls = [url], keepAlive = true } = options;
  const segments = planOf(options);
  return new Generator({
    endpoints: urls.map(endpointOf),
    workload,
    connections: options.connections,
    rare: options.rare ?? { clients: 0, share: 0 },
    keepAlive,
    segments,
    warmupMs: options.warmupMs,
    durationMs: segments?.at(-1)?.toMs ?? options.durationMs,
    timeoutMs: options.timeoutMs ?? TIMEOUT_MS,
    expected: options.expected ?? [200],
    requestsMax: options.requestsMax,
    phase: options.phase,
    firstId: options.firstId ?? Math.floor(Math.random() * 0x1_0000_0000),
    ...hooks,
  });
}

export function runLoad(options: LoadOptions, onSecond?: (second: Second) => void): Promise<LoadResult> {
  return generatorOf(options, workloadOf(options), { onSecond }).run();
}
