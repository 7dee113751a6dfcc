/** Parses and checks the command line of `sluice load`. Every error names its option. */
import { parseArgs } from 'node:util';
import { isOtlp } from '../../otlp.ts';
import { parseMix } from '../../workload.ts';
import { type Encoding, hasZstd } from '../body.ts';
import type { LoadOptions } from '../options.ts';
import { type Segment, type Spike, type Stage, segmentsOf, withSpikes } from '../pace/pace.ts';
import { abortOn, firstOf, parseCondition, type StopRule, untilTime } from '../pace/stop.ts';
import { readCorpus } from '../send/corpus.ts';
import { type Dsn, parseDsn, readDsnFile } from '../send/dsn.ts';
import { parseBound, type Thresholds } from '../thresholds.ts';
import {
  duration,
  header,
  moment,
  numeric,
  part,
  serverUrl,
  share,
  sizes,
  UsageError,
  whole,
} from './values.ts';

const text = { type: 'string' } as const;
const texts = { type: 'string', multiple: true } as const;
const flag = { type: 'boolean', default: false } as const;
const OPTIONS = {
  dsn: texts,
  'dsn-file': text,
  projects: text,
  api: text,
  'data-dir': text,
  even: flag,
  url: texts,
  host: text,
  header: texts,
  rate: text,
  duration: text,
  warmup: { type: 'string', default: '1s' },
  stages: text,
  spike: texts,
  'find-knee': flag,
  step: text,
  until: text,
  'start-at': text,
  part: text,
  processes: text,
  'abort-on': texts,
  connections: { type: 'string', default: '64' },
  'rare-clients': { type: 'string', default: '0' },
  'rare-share': text,
  'keep-alive': { type: 'boolean', default: true },
  timeout: { type: 'string', default: '10s' },
  mix: text,
  sizes: text,
  corpus: text,
  encoding: { type: 'string', default: 'sdk' },
  seed: { type: 'string', default: '1' },
  expect: texts,
  'min-rate': text,
  'max-p95': text,
  'max-p99': text,
  'max-p999': text,
  'max-failures': text,
  'max-failure-rate': text,
  'max-unstored': text,
  'fail-on': texts,
  verify: flag,
  'verify-with': text,
  sink: text,
  admin: text,
  'verify-wait': { type: 'string', default: '60s' },
  late: { type: 'string', default: '10s' },
  json: text,
  report: text,
  junit: text,
  summary: text,
  stream: text,
  quiet: flag,
  help: { type: 'boolean', short: 'h', default: false },
} as const;
/**
 * Flags of other load testers (k6, wrk, wrk2, vegeta, hey, oha, ab, Locust), each with the option
 * of `sluice load` to use instead.
 */
const ELSEWHERE: Readonly<Record<string, string>> = {
  ...{ vus: '--connections', c: '--connections', u: '--connections', users: '--connections' },
  ...{ concurrency: '--connections', workers: '--connections', 'max-workers': '--connections' },
  ...{ rps: '--rate', qps: '--rate', q: '--rate', R: '--rate', 'spawn-rate': '--stages', stage: '--stages' },
  ...{ d: '--duration', z: '--duration', 'run-time': '--duration', s: '--stages' },
  ...{ n: '--until', iterations: '--until', i: '--until', requests: '--until', t: '--processes' },
  ...{ threads: '--processes', cpus: '--processes', 'execution-segment': '--part', H: '--header' },
  ...{ body: '--corpus', D: '--corpus', targets: '--dsn-file', out: '--stream', o: '--json' },
  ...{ output: '--json', 'summary-export': '--json', insecure: 'NODE_TLS_REJECT_UNAUTHORIZED=0' },
  ...{ threshold: '--fail-on', thresholds: '--fail-on', 'disable-keepalive': '--no-keep-alive' },
};
const ENCODINGS = ['sdk', 'none', 'gzip', 'deflate', 'br', 'zstd'];
/**
 * Options for the process that the user starts. It does not pass them to the child processes that
 * --processes asks for.
 */
const PARENTS: ReadonlySet<string> = new Set([
  ...['processes', 'start-at', 'json', 'report', 'junit', 'summary', 'quiet', 'admin'],
  ...[
    'min-rate',
    'max-p95',
    'max-p99',
    'max-p999',
    'max-failures',
    'max-failure-rate',
    'max-unstored',
    'fail-on',
  ],
]);
const PROCESSES_MAX = 256;
const DURATION_MS = 10_000;
const STEP_MS = 10_000;
const KNEE_START = 100;
const RARE_SHARE = 0.3;
/** Most projects. A table of 16-bit indexes says which project each request goes to. */
const PROJECTS_MAX = 65_535;
const CONNECTIONS_MAX = 50_000;

export type Flags = ReturnType<typeof parsed>['values'];

export type LoadCommand = {
  load: LoadOptions;
  thresholds: Thresholds;
  stop: StopRule | undefined;
  /** First rate that `--find-knee` tries; undefined without this option. */
  knee: number | undefined;
  /**
   * What --verify and --verify-with ask. `command` prints the ids that are stored, in the place of
   * a sink.
   */
  verify:
    | { sink: string | undefined; command: string | undefined; waitMs: number; lateMs: number }
    | undefined;
  admin: string | undefined;
  api: string | undefined;
  /** Number of projects to create, from `--projects`. */
  projects: number | undefined;
  /** When the warm-up begins. */
  startAt: Date | undefined;
  /** Number of processes that share the load. */
  processes: number;
  output: Output;
};
export type Output = {
  json: string | undefined;
  report: string | undefined;
  junit: string | undefined;
  summary: string | undefined;
  /** File, or `-` for standard output, that gets a line of JSON each second. */
  stream: string | undefined;
  quiet: boolean;
};

/**
 * Values for options that the command line leaves out. They come from the running `sluice dev` of
 * the folder, or from settings.
 */
export type Defaults = { dsn?: string | undefined; admin?: string | undefined; sink?: string | undefined };

function parsed(args: string[], allowPositionals = false) {
  try {
    return parseArgs({ args, options: OPTIONS, allowNegative: true, allowPositionals });
  } catch (error) {
    const { message } = error as Error;
    const [, theirs = ''] = /^Unknown option '-{1,2}([^=']+)/.exec(message) ?? [];
    const ours = ELSEWHERE[theirs];
    throw new UsageError(
      ours === undefined ? message : `${theirs.length > 1 ? '--' : '-'}${theirs} is ${ours} here`,
    );
  }
}
export const parseFlags = parsed;

const optional = (name: string, value: string | undefined): number | undefined =>
  value === undefined ? undefined : numeric(name, value);

/** Parses stages such as `30s:1000,2m:5000`. */
function stagesOf(value: string): Stage[] {
  return value.split(',').map((part) => {
    const [time = '', rate, ...more] = part.split(':');
    if (rate === undefined || more.length > 0)
      throw new UsageError(`--stages: TIME:RATE, as in 30s:1000,2m:5000, not ${part}`);
    return { forMs: duration('stages', time), rate: numeric('stages', rate) };
  });
}

/** Parses a spike such as `60s+5s:20000`: from 60 s on, 20,000 requests a second for 5 s. */
function spikeOf(value: string): Spike {
  const [, at, length, rate] = /^([^+:]+)\+([^+:]+):([^+:]+)$/.exec(value) ?? [];
  if (at === undefined || length === undefined || rate === undefined)
    throw new UsageError(`--spike: TIME+TIME:RATE, as in 60s+5s:20000, not ${value}`);
  const forMs = duration('spike', length);
  return { atMs: duration('spike', at), forMs, rate: numeric('spike', rate) };
}

function planOf(flags: Flags): readonly Segment[] | undefined {
  const spikes = (flags.spike ?? []).map(spikeOf);
  const rate = flags.rate === undefined ? undefined : numeric('rate', flags.rate, flags.stages ? 0 : 0.1);
  if (flags['find-knee'] && (flags.stages !== undefined || spikes.length > 0))
    throw new UsageError('--find-knee: finds the rates itself, without --stages and --spike');
  if (flags.stages !== undefined) {
    if (flags.duration !== undefined) throw new UsageError('--duration: the stages say how long (--stages)');
    const segments = withSpikes(segmentsOf(stagesOf(flags.stages), rate ?? 0), spikes);
    if (segments.length === 0) throw new UsageError('--stages: every stage is 0 s long');
    return segments;
  }
  if (rate === undefined && spikes.length > 0) throw new UsageError('--spike: needs --rate or --stages');
  if (rate === undefined || flags['find-knee']) return undefined;
  const forMs = durationOf(flags);
  return withSpikes(segmentsOf([{ forMs, rate }], rate), spikes);
}

function durationOf(flags: Flags): number {
  if (flags['find-knee']) {
    if (flags.duration !== undefined) throw new UsageError('--duration: --find-knee has --step');
    return flags.step === undefined ? STEP_MS : duration('step', flags.step);
  }
  if (flags.step !== undefined) throw new UsageError('--step: belongs to --find-knee');
  const ms = flags.duration === undefined ? DURATION_MS : duration('duration', flags.duration);
  if (ms < 100) throw new UsageError('--duration: at least 100ms');
  return ms;
}

function stopOf(flags: Flags): StopRule | undefined {
  const rules = (flags['abort-on'] ?? []).map((value) => {
    const condition = parseCondition(value);
    if (!condition) throw new UsageError(`--abort-on: p99>500, p50>20 or failures>1%, not ${value}`);
    return abortOn(condition);
  });
  const { until } = flags;
  if (until === undefined) return firstOf(rules);
  if (isCount(until)) return firstOf(rules);
  return firstOf([...rules, untilTime(moment('until', until, ', or a number of requests'))]);
}

/**
 * Options that do not go with several processes, each with the reason and with what to do instead.
 */
const ALONE = {
  'find-knee': 'every step needs one process; leave --processes out, or give several the rates by --stages',
  verify: 'the sink counts the envelopes of all; leave --processes out, or verify at a rate that one sends',
  'verify-with': 'one process has the ids; leave --processes out, or give each --part a --verify-with',
  projects: 'each would make them; make them beforehand and name them by --dsn-file',
  part: 'it is one process of several; start a process for each part',
  stream:
    'each has seconds of its own; start a process for each --part with a --stream, and merge their --json',
} as const;

/**
 * Returns the number of processes.
 * @throws UsageError when an option of ALONE is set and there are several processes
 */
function processesOf(flags: Flags): number {
  const processes = whole('processes', flags.processes ?? '1', { least: 1, most: PROCESSES_MAX });
  const names = Object.keys(ALONE) as (keyof typeof ALONE)[];
  const name = processes > 1 ? names.find((one) => flags[one]) : undefined;
  if (name) throw new UsageError(`--processes: does not go with --${name}: ${ALONE[name]}`);
  return processes;
}

/**
 * Makes the command lines of the child processes. Each process gets a part of the load, and writes
 * its result to standard output.
 */
export function partsOf(args: string[], count: number, startAt: Date): string[][] {
  const { tokens } = parseArgs({ args, options: OPTIONS, allowNegative: true, tokens: true });
  const own = tokens.flatMap((token) => {
    if (token.kind !== 'option' || PARENTS.has(token.name)) return [];
    return token.value === undefined ? [token.rawName] : [`--${token.name}=${token.value}`];
  });
  const common = [...own, '--json=-', '--quiet', `--start-at=${startAt.toISOString()}`];
  return Array.from({ length: count }, (_, at) => [...common, `--part=${at}/${count}`]);
}

/**
 * Returns the part of `load` that `--part` names. Rates, connections and the number of requests are
 * divided by the number of parts. Each part has its own seed.
 */
function partOf(load: LoadOptions, flags: Flags): LoadOptions {
  if (flags.part === undefined) return load;
  if (flags['find-knee'])
    throw new UsageError(`--part: does not go with --find-knee: every step needs one process`);
  if (flags.verify)
    throw new UsageError(
      '--part: does not go with --verify: the sink counts the envelopes of all parts; --verify-with looks up those of one',
    );
  const { at, of } = part('part', flags.part);
  const divided = (count: number): number => Math.floor(count / of) + (at < count % of ? 1 : 0);
  const { segments, connections, rare = { clients: 0, share: 0 }, requestsMax } = load;
  return {
    ...load,
    phase: at / of,
    segments: segments?.map((one) => ({ ...one, fromRate: one.fromRate / of, toRate: one.toRate / of })),
    connections: Math.max(1, divided(connections)),
    rare: { ...rare, clients: divided(rare.clients) },
    ...(requestsMax !== undefined && { requestsMax: Math.max(1, divided(requestsMax)) }),
    seed: load.seed + at,
  };
}

const isCount = (until: string): boolean => /^\d+(\.\d+)?[kM]?$/.test(until);

function requestsMaxOf({ until, 'find-knee': knee }: Flags): number | undefined {
  if (until === undefined || !isCount(until)) return undefined;
  if (knee) throw new UsageError('--until: a number of requests does not go with --find-knee');
  return whole('until', until, { least: 1 });
}

function dsnsOf(flags: Flags, defaults: Defaults): Dsn[] {
  const named = (flags.dsn ?? []).map((dsn) => parseDsn(dsn, '--dsn'));
  const dsns = [...named, ...(flags['dsn-file'] === undefined ? [] : readDsnFile(flags['dsn-file']))];
  const sources = [dsns.length > 0, flags.projects !== undefined].filter(Boolean).length;
  if (sources > 1) throw new UsageError('--projects: makes its own projects, without --dsn');
  if (sources === 1) return dsns;
  if (defaults.dsn === undefined)
    throw new UsageError(
      `--dsn: at least one is needed, since no sluice dev runs on ${flags['data-dir'] ?? '.sluice'} (--data-dir names another one's folder, --help tells more)`,
    );
  return [parseDsn(defaults.dsn, '--dsn')];
}

/**
 * Returns the servers to send to: those of --url, otherwise the one that all DSNs name.
 * @throws UsageError when the DSNs name several servers
 */
export function urlsOf(urls: readonly string[] | undefined, dsns: readonly Dsn[]): string[] {
  if (urls) return urls.map((url) => serverUrl('url', url));
  const origins = [...new Set(dsns.map(({ origin }) => origin))];
  if (origins.length > 1)
    throw new UsageError('--dsn: the DSNs name several hosts; say with --url where to send');
  return origins;
}

const isVerified = (flags: Flags): boolean => flags.verify || flags['verify-with'] !== undefined;

function thresholdsOf(flags: Flags): Thresholds {
  const rate = flags['max-failure-rate'];
  return {
    minRate: optional('min-rate', flags['min-rate']),
    maxP95Ms: optional('max-p95', flags['max-p95']),
    maxP99Ms: optional('max-p99', flags['max-p99']),
    maxP999Ms: optional('max-p999', flags['max-p999']),
    maxFailures: optional('max-failures', flags['max-failures']),
    maxFailureShare: rate === undefined ? undefined : share('max-failure-rate', rate),
    bounds: (flags['fail-on'] ?? []).map((value) => {
      const bound = parseBound(value);
      if (!bound)
        throw new UsageError(
          `--fail-on: FIGURE>VALUE or WHERE:FIGURE>VALUE, as in transaction:p95>200 or 429:share>1%, not ${value}`,
        );
      return bound;
    }),
    maxUnstored: optional('max-unstored', flags['max-unstored'] ?? (isVerified(flags) ? '0' : undefined)),
  };
}

function encodingOf(value: string): Encoding | 'sdk' {
  if (!ENCODINGS.includes(value)) throw new UsageError(`--encoding: one of ${ENCODINGS.join(', ')}`);
  if (value === 'zstd' && !hasZstd)
    throw new UsageError(`--encoding: zstd needs Node.js 22.15 or later; this is ${process.version}`);
  return value as Encoding | 'sdk';
}

function mixOf(flags: Flags): LoadOptions['mix'] {
  if (flags.mix !== undefined && flags.corpus !== undefined)
    throw new UsageError('--corpus: is sent in the place of --mix');
  try {
    return parseMix(flags.mix ?? 'canonical');
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

const OTLP_ENCODINGS: readonly string[] = ['sdk', 'none', 'gzip'];

/** @throws UsageError when bodies of the mix cannot be sent in this encoding */
function encodingFor(mix: LoadOptions['mix'], value: string): Encoding | 'sdk' {
  if (Object.keys(mix).some(isOtlp) && !OTLP_ENCODINGS.includes(value))
    throw new UsageError(`--encoding: a mix with OTLP goes with ${OTLP_ENCODINGS.join(', ')}`);
  return encodingOf(value);
}

function rareOf(flags: Flags): { clients: number; share: number } {
  const clients = whole('rare-clients', flags['rare-clients'], { most: CONNECTIONS_MAX });
  if (clients === 0 && flags['rare-share'] !== undefined)
    throw new UsageError('--rare-share: needs --rare-clients');
  const value = flags['rare-share'];
  return { clients, share: value === undefined ? RARE_SHARE : share('rare-share', value) };
}

function loadOf(flags: Flags, dsns: readonly Dsn[]): LoadOptions {
  const urls = dsns.length > 0 || flags.url ? urlsOf(flags.url, dsns) : [];
  if (dsns.length > PROJECTS_MAX) throw new UsageError(`--dsn-file: at most ${PROJECTS_MAX} projects`);
  const mix = mixOf(flags);
  const timeoutMs = duration('timeout', flags.timeout);
  if (timeoutMs <= 0) throw new UsageError('--timeout: longer than 0s');
  return {
    url: urls[0] ?? '',
    urls,
    host: flags.host,
    headers: (flags.header ?? []).map((line) => header('header', line)),
    targets: dsns.map(({ target }) => target),
    even: flags.even,
    mix,
    sizes: flags.sizes === undefined ? undefined : sizes('sizes', flags.sizes),
    corpus: flags.corpus === undefined ? undefined : readCorpus(flags.corpus),
    encoding: encodingFor(mix, flags.encoding),
    segments: planOf(flags),
    connections: whole('connections', flags.connections, { least: 1, most: CONNECTIONS_MAX }),
    rare: rareOf(flags),
    keepAlive: flags['keep-alive'],
    warmupMs: duration('warmup', flags.warmup),
    durationMs: flags.stages === undefined ? durationOf(flags) : 0,
    timeoutMs,
    requestsMax: requestsMaxOf(flags),
    seed: whole('seed', flags.seed),
    expected: [
      200,
      ...(flags.expect ?? []).map((status) => whole('expect', status, { least: 100, most: 599 })),
    ],
  };
}

export function outputOf({ json, report, junit, summary, stream, quiet }: Flags): Output {
  if (json === '-' && stream === '-') throw new UsageError('--stream: standard output is for --json');
  return { json, report, junit, summary: summary ?? process.env.GITHUB_STEP_SUMMARY, stream, quiet };
}
export { thresholdsOf };

/**
 * Parses the command line of a load run.
 * @param defaults replace options that are missing
 * @throws UsageError
 */
export function parseLoadCommand(args: string[], defaults: Defaults = {}): LoadCommand {
  const { values: flags } = parsed(args);
  const dsns = dsnsOf(flags, defaults);
  const isDev = flags.dsn === undefined && flags['dsn-file'] === undefined && flags.projects === undefined;
  const api = flags.api === undefined ? undefined : serverUrl('api', flags.api);
  const admin = flags.admin ?? (isDev ? defaults.admin : undefined);
  if (flags.projects !== undefined && api === undefined)
    throw new UsageError('--projects: needs --api, the admin port with the management API');
  return {
    load: partOf(loadOf(flags, dsns), flags),
    startAt: flags['start-at'] === undefined ? undefined : moment('start-at', flags['start-at']),
    processes: processesOf(flags),
    thresholds: thresholdsOf(flags),
    stop: stopOf(flags),
    knee: flags['find-knee'] ? numeric('rate', flags.rate ?? `${KNEE_START}`, 0.1) : undefined,
    verify: isVerified(flags)
      ? {
          sink: flags.sink ?? defaults.sink,
          command: flags['verify-with'],
          waitMs: duration('verify-wait', flags['verify-wait']),
          lateMs: duration('late', flags.late),
        }
      : undefined,
    admin: admin === undefined ? undefined : serverUrl('admin', admin),
    api,
    projects:
      flags.projects === undefined
        ? undefined
        : whole('projects', flags.projects, { least: 1, most: PROJECTS_MAX }),
    output: outputOf(flags),
  };
}
