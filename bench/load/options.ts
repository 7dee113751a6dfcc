/** The options of a load run, as plain JSON that can be sent to the process that runs it. */

import { type Mix, type Recorded, type Size, type Target, Workload } from '../workload.ts';
import type { Encoding } from './body.ts';
import type { Endpoint } from './connection.ts';
import { Generator, type GeneratorOptions } from './generator.ts';
import type { Segment } from './pace/pace.ts';
import type { LoadResult, Second } from './result.ts';

export type LoadOptions = {
  /** Scheme, host and port of the server. */
  url: string;
  /** Scheme, host and port of each server, when several share the load. */
  urls?: readonly string[] | undefined;
  /** Value of the Host header, instead of the host of the URL. */
  host?: string | undefined;
  headers?: readonly string[] | undefined;
  targets: readonly Target[];
  even?: boolean | undefined;
  mix: Mix;
  sizes?: readonly Size[] | undefined;
  corpus?: readonly Recorded[] | undefined;
  encoding: Encoding | 'sdk';
  /** Requests per second. Without `rate` and `segments` the loop is closed. */
  rate?: number | undefined;
  /** A plan of rates, which replaces `rate` and `durationMs`. */
  segments?: readonly Segment[] | undefined;
  phase?: number | undefined;
  connections: number;
  rare?: { clients: number; share: number } | undefined;
  keepAlive?: boolean | undefined;
  warmupMs: number;
  durationMs: number;
  timeoutMs?: number | undefined;
  /** The run ends when this many requests were sent in the measured time. */
  requestsMax?: number | undefined;
  seed: number;
  expected?: readonly number[] | undefined;
  firstId?: number | undefined;
  /** The first 24 digits of every id. */
  idPrefix?: string | undefined;
};

/** Options that cannot be sent to another process. */
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

/** Makes a generator that runs in this process's event loop. */
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
