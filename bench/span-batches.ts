/**
 * `npm run bench -- otlp [--batches N] [--rounds N] [--seed N] [--smoke] [--out FILE]`: CPU for a batch of 100 spans, by OTLP in both
 * encodings and as a span container, of worker and processor; beside them span containers with as many bytes as the OTLP requests have, and
 * a Collector that takes the same requests and writes them to a file. Fails when a batch was refused, or is missing in the end.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { appendFileSync, createReadStream, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { ensureServers } from '../src/commands/dev/install.ts';
import { freePort } from '../src/commands/dev/servers.ts';
import { hostEnvironment } from '../src/config.ts';
import { expanded } from '../src/processor/decode/otlp/request.ts';
import type { NewProject } from '../src/projects/project-store.ts';
import { describeEnvironment } from './environment.ts';
import { Harness, type HarnessOptions, OWN_DIST, ROOT, STREAM_BYTES_SMOKE } from './harness.ts';
import { stamped } from './load/body.ts';
import { OTLP_PATHS, OTLP_TYPES, type OtlpEncoding, otlpBody } from './otlp.ts';
import { ID_PLACEHOLDER } from './payloads.ts';
import { cpuUs } from './processes.ts';
import { seededRandom } from './random.ts';
import { total } from './scrape.ts';
import { median } from './statistics.ts';
import type { Target } from './workload.ts';

const SPANS = 100;
const TEMPLATES = 16;
const CONNECTIONS = 8;
/** This share of the batches is sent before, so that V8 has compiled, and the Collector's heap has grown. */
const WARM_SHARE = 0.3;
const DRAIN_MS_MAX = 60_000;
const COLLECTOR_START_MS_MAX = 15_000;
/** The Collector's exporter writes its buffer once a second. */
const FLUSH_MS = 2_000;
const COLLECTOR_SOURCE = join(ROOT, 'test/clients/otlp/collector');
const COLLECTOR = join(ROOT, '.clients/otlp-collector/otelcol');
const say = (line: string): void => void process.stderr.write(`${line}\n`);

// ---- what is sent ----

/** `path`: behind `/api/{project}`. */
type Form = {
  name: string;
  path: string;
  contentType: string;
  bodies: readonly Buffer[];
  goesToCollector: boolean;
};

const bytesOf = (bodies: readonly Buffer[]): number =>
  bodies.reduce((sum, { length }) => sum + length, 0) / bodies.length;

/** The envelope with the container that the processor makes of these spans. */
function envelopeOf(spans: Buffer, count: number): Buffer {
  const header = Buffer.from(JSON.stringify({ content_type: OTLP_TYPES.protobuf }));
  const item = { index: 0, type: 'otlp_traces', header, length: spans.length, payload: spans } as const;
  const [container, ...others] = [...expanded(item)].flatMap((part) => part ?? []);
  if (!container || container.fault !== undefined || others.length > 0)
    throw new Error('a batch becomes one container');
  const { payload } = container.item;
  const contentType = 'application/vnd.sentry.items.span.v2+json';
  const itemHeader = { type: 'span', item_count: count, content_type: contentType, length: payload.length };
  return Buffer.concat([Buffer.from(`{}\n${JSON.stringify(itemHeader)}\n`), payload]);
}

function formsOf(seed: number): Form[] {
  const seeds = Array.from({ length: TEMPLATES }, (_, at) => seed + at);
  const bodiesIn = (encoding: OtlpEncoding, count = SPANS): Buffer[] =>
    seeds.map((one) => otlpBody('otlp-traces', encoding, seededRandom(one), count));
  const otlp = (name: string, encoding: OtlpEncoding): Form => ({
    name,
    path: OTLP_PATHS['otlp-traces'],
    contentType: OTLP_TYPES[encoding],
    bodies: bodiesIn(encoding),
    goesToCollector: true,
  });
  const containerOf = (count: number, name = `container of ${count}`): Form => ({
    name,
    path: '/envelope/',
    contentType: 'application/x-sentry-envelope',
    bodies: bodiesIn('protobuf', count).map((spans) => envelopeOf(spans, count)),
    goesToCollector: false,
  });
  const requests = [otlp('OTLP, protobuf', 'protobuf'), otlp('OTLP, JSON', 'json')];
  const container = containerOf(SPANS, 'span container');
  const asLarge = requests.map(({ bodies }) =>
    containerOf(Math.round((SPANS * bytesOf(bodies)) / bytesOf(container.bodies))),
  );
  return [...requests, container, ...asLarge];
}

type Post = { url: string; agent: Agent; headers: Record<string, string | number>; body: Buffer };
/** @returns the status, 0 without an answer */
const post = ({ url, agent, headers, body }: Post): Promise<number> =>
  new Promise((resolve) => {
    const sent = request(url, { method: 'POST', agent, headers }, (answer) => {
      answer.once('end', () => resolve(answer.statusCode ?? 0)).resume();
    });
    sent.once('error', () => resolve(0)).end(body);
  });

/** Count of batches so far, of all forms. Each batch has it in its id, so that none is taken for a resend. */
let sent = 0;

/** Sends batches, each when the one before it on its connection was answered. @returns what went wrong */
async function send(
  form: Form,
  { url, headers }: { url: string; headers: Record<string, string> },
  batches: number,
): Promise<string[]> {
  const agent = new Agent({ keepAlive: true, maxSockets: CONNECTIONS });
  const failed = new Map<number, number>();
  const end = sent + batches;
  const one = async (): Promise<void> => {
    while (sent < end) {
      const template = form.bodies[sent % TEMPLATES] as Buffer;
      const body = stamped(template, ID_PLACEHOLDER, sent++);
      const all = { ...headers, 'content-type': form.contentType, 'content-length': body.length };
      const status = await post({ url, agent, headers: all, body });
      if (status !== 200) failed.set(status, (failed.get(status) ?? 0) + 1);
    }
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, one));
  agent.destroy();
  return [...failed].map(([status, count]) => `${form.name}: ${count} answers were ${status}`);
}

// ---- who takes it ----

/** Microseconds for a batch, by process, and what went wrong. */
type Cost = { us: Partial<Record<Column, number>>; failures: string[] };
type Column = 'worker' | 'processor' | 'Collector';

type Sluice = { harness: Harness; target: Target };
async function costInSluice(form: Form, batches: number, { harness, target }: Sluice): Promise<Cost> {
  const stored = async (): Promise<number> =>
    total(await harness.processorMetrics(), 'sluice_processed_total', 'result="stored"');
  const door = {
    url: `${harness.url}/api/${target.id}${form.path}`,
    headers: { 'x-sentry-auth': `sentry sentry_key=${target.key}` },
  };
  const storedBefore = await stored();
  const before = harness.cpu();
  const failures = await send(form, door, batches);
  if (!(await harness.drained(DRAIN_MS_MAX))) failures.push(`${form.name}: the streams were not emptied`);
  const after = harness.cpu();
  const missing = storedBefore + batches - (await stored());
  if (missing !== 0) failures.push(`${form.name}: ${missing} of ${batches} batches are not stored`);
  const us = {
    worker: (after.worker - before.worker) / batches,
    processor: (after.processor - before.processor) / batches,
  };
  return { us, failures };
}

/** Builds the Collector of the tests. @returns whether there is one */
function buildCollector(): boolean {
  const { status, stderr } = spawnSync('go', ['build', '-C', COLLECTOR_SOURCE, '-o', COLLECTOR, '.'], {
    encoding: 'utf8',
  });
  if (status === 0) return true;
  if (existsSync(COLLECTOR)) say('the Collector was built before: go build failed, or there is no go');
  else say(`no Collector: go build failed, or there is no go ${stderr ?? ''}`);
  return existsSync(COLLECTOR);
}

async function startCollector(dir: string, file: string): Promise<{ child: ChildProcess; url: string }> {
  const endpoint = `127.0.0.1:${await freePort()}`;
  const config = join(dir, 'collector.yaml');
  const traces = { receivers: ['otlp'], exporters: ['file'] };
  const settings = {
    receivers: { otlp: { protocols: { http: { endpoint } } } },
    exporters: { file: { path: file } },
    service: { telemetry: { metrics: { level: 'none' } }, pipelines: { traces } },
  };
  writeFileSync(config, JSON.stringify(settings));
  const child = spawn(COLLECTOR, ['--config', config], { stdio: 'ignore' });
  const url = `http://${endpoint}`;
  const answers = (): Promise<boolean> =>
    fetch(url).then(
      () => true,
      () => false,
    );
  for (const end = performance.now() + COLLECTOR_START_MS_MAX; !(await answers()); await pause(50))
    if (performance.now() > end || child.exitCode !== null) {
      child.kill('SIGKILL');
      throw new Error('the Collector did not start');
    }
  return { child, url };
}

async function linesIn(file: string): Promise<number> {
  let lines = 0;
  for await (const chunk of createReadStream(file) as AsyncIterable<Buffer>)
    for (let at = chunk.indexOf('\n'); at >= 0; at = chunk.indexOf('\n', at + 1)) lines++;
  return lines;
}

/** A fresh Collector; its exporter writes a line for each request. */
async function costInCollector(form: Form, batches: number, dir: string): Promise<Cost> {
  const file = join(dir, 'collected.json');
  const { child, url } = await startCollector(dir, file);
  try {
    const door = { url: `${url}/v1/traces`, headers: {} };
    const warm = Math.ceil(batches * WARM_SHARE);
    const failures = await send(form, door, warm);
    const before = cpuUs(child.pid ?? 0);
    failures.push(...(await send(form, door, batches)));
    await pause(FLUSH_MS);
    const us = { Collector: (cpuUs(child.pid ?? 0) - before) / batches };
    const missing = warm + batches - (await linesIn(file));
    if (missing !== 0) failures.push(`${form.name}: ${missing} batches are not in the Collector's file`);
    return { us, failures };
  } finally {
    child.kill('SIGKILL');
    rmSync(file, { force: true });
  }
}

// ---- the command ----

type Run = { form: Form; cost: Cost };
type Options = { batches: number; rounds: number; hasCollector: boolean; dir: string };

async function measure(forms: readonly Form[], sluice: Sluice, options: Options): Promise<Run[]> {
  const { batches, rounds, hasCollector, dir } = options;
  const runs: Run[] = [];
  for (const form of forms) {
    // A warm-up: its figures do not count, its failures do.
    const { failures } = await costInSluice(form, Math.ceil(batches * WARM_SHARE), sluice);
    runs.push({ form, cost: { us: {}, failures } });
  }
  for (let round = 0; round < rounds; round++)
    for (const form of round % 2 === 0 ? forms : forms.toReversed()) {
      say(`round ${round + 1}: ${form.name}`);
      runs.push({ form, cost: await costInSluice(form, batches, sluice) });
      if (hasCollector && form.goesToCollector)
        runs.push({ form, cost: await costInCollector(form, batches, dir) });
    }
  return runs;
}

const WIDTH = 10;
const COLUMNS: readonly Column[] = ['worker', 'processor', 'Collector'];
const HEAD = [
  'µs of CPU'.padEnd(WIDTH + 5),
  ...['KB', ...COLUMNS].map((word) => word.padStart(WIDTH)),
  '  each round',
].join('');

/** The medians of the rounds, and the figures of each. */
function line(form: Form, runs: readonly Run[]): string {
  const valuesOf = (column: Column): number[] =>
    runs.flatMap(({ form: of, cost }) => (of === form ? (cost.us[column] ?? []) : []));
  const whole = COLUMNS.map(valuesOf).map((values) => values.map((value) => value.toFixed(0)));
  const medians = COLUMNS.map(valuesOf).map((values) => (values.length > 0 ? median(values).toFixed(0) : ''));
  return [
    form.name.padEnd(WIDTH + 5),
    ...[(bytesOf(form.bodies) / 1000).toFixed(1), ...medians].map((cell) => cell.padStart(WIDTH)),
    `  ${whole
      .filter((values) => values.length > 0)
      .map((values) => values.join(' '))
      .join(' | ')}`,
  ].join('');
}

/** One project without a limit. */
const PROJECT: NewProject = { plan: 'Pro', quota: 1e9, overage: false, filters: [], allowedOrigins: [] };

async function withSluice<T>(options: HarnessOptions, play: (sluice: Sluice) => Promise<T>): Promise<T> {
  const harness = await Harness.start(options);
  try {
    await harness.startProcessor();
    const [target] = await harness.createProjects([PROJECT]);
    return await play({ harness, target: target as Target });
  } finally {
    await harness.stop();
  }
}

/** @returns exit status */
export async function spanBatchesCommand(args: string[]): Promise<number> {
  const { values } = parseArgs({
    args,
    options: {
      batches: { type: 'string' },
      rounds: { type: 'string' },
      seed: { type: 'string', default: '1' },
      smoke: { type: 'boolean', default: false },
      out: { type: 'string' },
    },
  });
  const { smoke } = values;
  const batches = Number(values.batches ?? (smoke ? 20 : 1_000));
  const rounds = Number(values.rounds ?? (smoke ? 1 : 3));
  const bins = ensureServers(hostEnvironment(), say);
  const forms = formsOf(Number(values.seed));
  const dir = mkdtempSync(join(tmpdir(), 'sluice-bench-'));
  const hasCollector = buildCollector();
  const harness = { dist: OWN_DIST, bins, ...(smoke && { streamMaxBytes: STREAM_BYTES_SMOKE }) };
  const runs = await withSluice(harness, (sluice) =>
    measure(forms, sluice, { batches, rounds, hasCollector, dir }),
  ).finally(() => rmSync(dir, { recursive: true, force: true }));
  const failures = runs.flatMap(({ cost }) => cost.failures);
  const { cpu, cores, commit } = describeEnvironment(bins);
  const text = [
    `otlp (${cpu}, ${cores} cores, Node ${process.version}, ${commit}; ${batches} batches of ${SPANS} spans a round, everything on this machine)`,
    HEAD,
    ...forms.map((form) => line(form, runs)),
    ...(hasCollector ? [] : ['no Collector could be built here']),
    ...failures.map((failure) => `FAILED ${failure}`),
    '',
  ].join('\n');
  process.stdout.write(text);
  if (values.out !== undefined) appendFileSync(values.out, text);
  return failures.length > 0 ? 1 : 0;
}
