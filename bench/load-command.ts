/** `npm run bench -- load`: the generator against any deployment. */
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import type { Encoding } from './load/body.ts';
import { type LoadOptions, runLoad } from './load/options.ts';
import { type LoadResult, type Second, type Thresholds, violations } from './load/result.ts';
import { number } from './text.ts';
import { parseMix, type Target } from './workload.ts';

export const LOAD_USAGE = `npm run bench -- load --dsn http://KEY@HOST:PORT/ID [--dsn …]

  --url URL            where to send, when it is not the DSN's host
  --dsn DSN            a project; several share the load by Zipf's law, the first gets most
  --rate N             requests a second, open loop; without it closed loop, as fast as answers come
  --duration S         seconds that are measured (10), after --warmup S (1)
  --connections N      (64)
  --mix MIX            canonical (default), or weights: event=80,transaction=10,log=5,replay=5,large=1
  --encoding E         sdk (default: as SDKs do), none, gzip, deflate, br
  --no-keep-alive      a connection for each request
  --expect STATUS      a status that is no failure beside 200; may be repeated
  --seed N             (1)
  --min-rate N  --max-p99 MS  --max-p999 MS  --max-failures N (0)     thresholds: exit status 1 when one is missed
  --json FILE          the result as JSON, - for standard output`;

/** The command line makes no sense; exit status 2. */
export class UsageError extends Error {
  override name = 'UsageError';
}

const OPTIONS = {
  url: { type: 'string' },
  dsn: { type: 'string', multiple: true },
  rate: { type: 'string' },
  duration: { type: 'string', default: '10' },
  warmup: { type: 'string', default: '1' },
  connections: { type: 'string', default: '64' },
  mix: { type: 'string', default: 'canonical' },
  encoding: { type: 'string', default: 'sdk' },
  'keep-alive': { type: 'boolean', default: true },
  expect: { type: 'string', multiple: true },
  seed: { type: 'string', default: '1' },
  'min-rate': { type: 'string' },
  'max-p99': { type: 'string' },
  'max-p999': { type: 'string' },
  'max-failures': { type: 'string' },
  json: { type: 'string' },
} as const;
const ENCODINGS = ['sdk', 'none', 'gzip', 'deflate', 'br'];

export type LoadCommand = { load: LoadOptions; thresholds: Thresholds; json: string | undefined };

function numeric(name: string, text: string, least = 0): number {
  const value = Number(text);
  if (text === '' || !Number.isFinite(value) || value < least)
    throw new UsageError(`--${name}: a number from ${least}, not ${text}`);
  return value;
}
const optional = (name: string, text: string | undefined): number | undefined =>
  text === undefined ? undefined : numeric(name, text);

/** `scheme://key@host/prefix/id`; a path before the id belongs to the server's address in theory and to nobody in practice. */
function parseDsn(dsn: string): { origin: string; target: Target } {
  if (!URL.canParse(dsn)) throw new UsageError(`--dsn: not a URL: ${dsn}`);
  const { protocol, host, username, pathname } = new URL(dsn);
  const id = pathname.slice(1);
  if (!username || !id || id.includes('/')) throw new UsageError('--dsn: http://KEY@HOST:PORT/PROJECT');
  return { origin: `${protocol}//${host}`, target: { id, key: username } };
}

function parsed(args: string[]) {
  try {
    return parseArgs({ args, options: OPTIONS, allowNegative: true }).values;
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

function mixOf(text: string): LoadOptions['mix'] {
  try {
    return parseMix(text);
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

/** @throws UsageError */
export function parseLoadCommand(args: string[]): LoadCommand {
  const flags = parsed(args);
  const dsns = (flags.dsn ?? []).map(parseDsn);
  const [first] = dsns;
  if (!first) throw new UsageError(`at least one --dsn is needed\n\n${LOAD_USAGE}`);
  if (!ENCODINGS.includes(flags.encoding)) throw new UsageError(`--encoding: one of ${ENCODINGS.join(', ')}`);
  return {
    load: {
      url: flags.url ?? first.origin,
      targets: dsns.map(({ target }) => target),
      mix: mixOf(flags.mix),
      encoding: flags.encoding as Encoding | 'sdk',
      rate: flags.rate === undefined ? undefined : numeric('rate', flags.rate, 0.1),
      connections: Math.floor(numeric('connections', flags.connections, 1)),
      keepAlive: flags['keep-alive'],
      warmupMs: numeric('warmup', flags.warmup) * 1000,
      durationMs: numeric('duration', flags.duration, 0.1) * 1000,
      seed: numeric('seed', flags.seed),
      expected: [200, ...(flags.expect ?? []).map((status) => numeric('expect', status, 100))],
    },
    thresholds: {
      minRate: optional('min-rate', flags['min-rate']),
      maxP99Ms: optional('max-p99', flags['max-p99']),
      maxP999Ms: optional('max-p999', flags['max-p999']),
      maxFailures: optional('max-failures', flags['max-failures']),
    },
    json: flags.json,
  };
}

const progress = ({ second, ok, failed, p50Ms, p99Ms }: Second): string =>
  `${String(second).padStart(4)} s  ${number(ok).padStart(9)}/s  p50 ${number(p50Ms)} ms  p99 ${number(p99Ms)} ms${failed > 0 ? `  FAILED ${failed}` : ''}`;

export function loadText(result: LoadResult): string {
  const { latencyMs: l, generator: g } = result;
  const rate =
    result.loop === 'open' ? `open loop, ${number(result.targetRate ?? 0)}/s wanted` : 'closed loop';
  return [
    `${rate}, ${result.connections} connections, ${number(result.seconds)} s, workload ${result.workload}`,
    `answered as expected ${number(result.ratePerSec)}/s (${result.expected}), failed ${result.failed} ${JSON.stringify(result.failures)}, statuses ${JSON.stringify(result.statuses)}`,
    `latency ms: mean ${number(l.mean)}  p50 ${number(l.p50)}  p90 ${number(l.p90)}  p99 ${number(l.p99)}  p99.9 ${number(l.p999)}  max ${number(l.max)}${result.loop === 'open' ? ', from the intended send time' : ''}`,
    `generator: ${number(g.cpuUsPerRequest)} µs CPU per request, ${number(g.busy * 100)} % of a core, late by p50 ${number(g.lateP50Ms)} p99 ${number(g.lateP99Ms)} ms`,
    ...g.bottleneck.map((why) => `CAUTION: ${why}; the figures are the generator's, not the server's`),
  ].join('\n');
}

/** @returns the exit status: 0, or 1 when a threshold is missed. @throws UsageError */
export async function loadCommand(args: string[]): Promise<number> {
  const { load, thresholds, json } = parseLoadCommand(args);
  const result = await runLoad(load, (second) => process.stderr.write(`${progress(second)}\n`));
  const missed = violations(result, thresholds);
  const text = `${JSON.stringify({ ...result, missed }, undefined, 2)}\n`;
  if (json === '-') process.stdout.write(text);
  else {
    if (json !== undefined) writeFileSync(json, text);
    process.stdout.write(`${loadText(result)}\n`);
  }
  for (const sentence of missed) process.stderr.write(`FAILED: ${sentence}\n`);
  return missed.length > 0 ? 1 : 0;
}
