/**
 * A Collector of OpenTelemetry in front of the whole system, with deploy/otel-collector.yaml and with an exporter's default settings: what
 * it believes it sent is compared with what is stored, when all goes well, when it is refused, and when sluice is away.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { lastingPort } from '../../support/servers.ts';
import { type Project, System, until } from '../../support/system.ts';
import { Program } from '../client.ts';
import { Forwarder } from '../forwarder.ts';
import { asked, lacks, type Sdk } from '../sdks.ts';
import { COLLECTOR, EXPORTERS, type Exporter, GRPC } from './exporters.ts';

/** Its settings: those of {@link DEPLOYED}, or those of the exporter by default. */
type Settings = 'deploy/otel-collector.yaml' | 'default settings';
const DEPLOYED = new URL('../../../deploy/otel-collector.yaml', import.meta.url).pathname;
const PIPELINE = { receivers: ['otlp'], exporters: ['otlphttp'] };
const defaultsFor = (endpoint: string, key: string): object => ({
  exporters: { otlphttp: { endpoint, headers: { 'x-sentry-auth': `sentry sentry_key=${key}` } } },
  service: { extensions: ['health_check'], pipelines: { traces: PIPELINE, logs: PIPELINE } },
});
/** Its build takes minutes on a fresh machine, so it takes part where TEST_CLIENTS names it or is not set. */
const takesPart = (asked?.includes('collector') ?? true) && ![COLLECTOR, GRPC].some(({ sdk }) => lacks(sdk));
/** More than sluice takes after compression, less than the Collector takes before it. */
const LARGE = Array.from({ length: 10_000_000 }, () => String.fromCharCode(97 + Math.random() * 26)).join('');
/** Spans that an exporter's program makes for a name: the span, its child, and the one to which it links. */
const SPANS_OF_A_NAME = 3;
/** `Retry-After` of a 429 for the limit. */
const RETRY_AFTER_MS = 60_000;
const [NODE] = EXPORTERS as [Exporter];
// ---- a large batch, in OTLP's JSON, and what is stored of it ----

const MANY = 5_000;
const TRACE_ID = '5b8efff798038103d269b633813fc60c';
const idOf = (at: number): string => (at + 1).toString(16).padStart(16, '0');
const BYTES = Buffer.from([0, 255, 7]).toString('base64');
const KINDS = [
  { key: 'text', value: { stringValue: 'Größe → "ok"\n🚰' } },
  { key: 'empty', value: { stringValue: '' } },
  { key: 'flag', value: { boolValue: false } },
  { key: 'count', value: { intValue: '-9007199254740991' } },
  { key: 'ratio', value: { doubleValue: 0.5 } },
  { key: 'bytes', value: { bytesValue: BYTES } },
  {
    key: 'list',
    value: { arrayValue: { values: [{ stringValue: 'é' }, { intValue: '7' }, { boolValue: true }] } },
  },
  {
    key: 'map',
    value: {
      kvlistValue: { values: [{ key: 'deep', value: { arrayValue: { values: [{ doubleValue: 1.5 }] } } }] },
    },
  },
  { key: 'none', value: {} },
];
const STORED_KINDS = {
  text: { value: 'Größe → "ok"\n🚰', type: 'string' },
  empty: { value: '', type: 'string' },
  flag: { value: false, type: 'boolean' },
  count: { value: -9_007_199_254_740_991, type: 'integer' },
  ratio: { value: 0.5, type: 'double' },
  bytes: { value: BYTES, type: 'bytes' },
  list: { value: ['é', 7, true], type: 'array' },
  map: { value: { deep: [1.5] }, type: 'kvlist' },
  none: { value: null, type: 'null' },
};
const RESOURCE = { attributes: [{ key: 'service.name', value: { stringValue: 'shop' } }] };
const SCOPE = { name: 'clients', version: '7' };
const STORED_AROUND = {
  'resource.service.name': { value: 'shop', type: 'string' },
  'scope.name': { value: 'clients', type: 'string' },
  'scope.version': { value: '7', type: 'string' },
};
const TIME = '1700000000123456789';
const STORED_TIME = Number('1700000000.123456789');

const tracesOf = (count: number): object => {
  const spans = Array.from({ length: count }, (_, at) => ({
    traceId: TRACE_ID,
    spanId: idOf(at),
    name: `span ${at}`,
    kind: 2,
    startTimeUnixNano: TIME,
    endTimeUnixNano: TIME,
    attributes: KINDS,
    events: [{ timeUnixNano: TIME, name: 'sold out', attributes: KINDS }],
    links: [{ traceId: TRACE_ID, spanId: idOf(count), attributes: KINDS }],
    status: { code: 2, message: 'no stock' },
  }));
  return { resourceSpans: [{ resource: RESOURCE, scopeSpans: [{ scope: SCOPE, spans }] }] };
};
const storedSpan = (at: number): object => ({
  trace_id: TRACE_ID,
  span_id: idOf(at),
  name: `span ${at}`,
  status: 'error',
  is_segment: true,
  kind: 'server',
  start_timestamp: STORED_TIME,
  end_timestamp: STORED_TIME,
  events: [{ timestamp: STORED_TIME, name: 'sold out', attributes: STORED_KINDS }],
  links: [{ trace_id: TRACE_ID, span_id: idOf(MANY), sampled: false, attributes: STORED_KINDS }],
  attributes: {
    ...STORED_KINDS,
    ...STORED_AROUND,
    'sentry.status.message': { value: 'no stock', type: 'string' },
  },
});

const logsOf = (count: number): object => {
  const logRecords = Array.from({ length: count }, (_, at) => ({
    timeUnixNano: TIME,
    severityNumber: 13,
    severityText: 'WARN',
    body: { stringValue: `log ${at}` },
    attributes: KINDS,
    traceId: TRACE_ID,
    spanId: idOf(at),
  }));
  return { resourceLogs: [{ resource: RESOURCE, scopeLogs: [{ scope: SCOPE, logRecords }] }] };
};
const storedLog = (at: number): object => ({
  timestamp: STORED_TIME,
  trace_id: TRACE_ID,
  span_id: idOf(at),
  level: 'warn',
  severity_number: 13,
  severity_text: 'WARN',
  body: `log ${at}`,
  attributes: { ...STORED_KINDS, ...STORED_AROUND },
});

type Element = { name?: string; span_id?: string; [name: string]: unknown };

/** What must be built before. */
export const COLLECTOR_SDKS: readonly Sdk[] = takesPart ? [COLLECTOR, GRPC, NODE].map(({ sdk }) => sdk) : [];

export const describeCollector = () =>
  describe.skipIf(!takesPart)('a Collector', () => {
    let system: System;
    let project: Project;
    let collector: ChildProcess;
    let ports: { grpc: number; http: number; health: number; metrics: number };
    let log = '';

    type Start = { settings?: Settings; to?: Project; port?: number };
    /**
     * The settings as they are, but for ports and folder of this test, and for figures about itself.
     * @param start `port`: of sluice, or of a forwarder before it
     */
    async function startCollector({
      settings = 'deploy/otel-collector.yaml',
      to = project,
      port = system.port,
    }: Start = {}): Promise<void> {
      const isDeployed = settings === 'deploy/otel-collector.yaml';
      const url = `http://127.0.0.1:${port}/api/${to.id}/integration/otlp`;
      const defaults = join(system.dir, 'defaults.yaml');
      writeFileSync(defaults, JSON.stringify(defaultsFor(url, to.key)));
      const override = join(system.dir, 'override.yaml');
      writeFileSync(
        override,
        JSON.stringify({
          extensions: {
            ...(isDeployed && { file_storage: { directory: join(system.dir, 'queue') } }),
            health_check: { endpoint: `127.0.0.1:${ports.health}` },
          },
          receivers: {
            otlp: {
              protocols: {
                grpc: { endpoint: `127.0.0.1:${ports.grpc}` },
                http: { endpoint: `127.0.0.1:${ports.http}` },
              },
            },
          },
          service: {
            telemetry: {
              metrics: {
                readers: [{ pull: { exporter: { prometheus: { host: '127.0.0.1', port: ports.metrics } } } }],
              },
            },
          },
        }),
      );
      const [program = ''] = COLLECTOR.command;
      collector = spawn(program, ['--config', isDeployed ? DEPLOYED : defaults, '--config', override], {
        env: {
          ...process.env,
          SLUICE_OTLP_URL: url,
          SLUICE_KEY: to.key,
        },
        stdio: ['ignore', 'ignore', 'pipe'],
      });
      collector.stderr?.on('data', (data: Buffer) => {
        log += data.toString();
      });
      await until(async () => {
        if (collector.exitCode !== null) throw new Error(`the Collector ended: ${log}`);
        const health = await fetch(`http://127.0.0.1:${ports.health}`).catch(() => undefined);
        return health?.ok === true;
      });
    }

    const kill = (signal: NodeJS.Signals): Promise<unknown> => {
      const ended = new Promise((resolve) => collector.once('exit', resolve));
      collector.kill(signal);
      return ended;
    };
    const elements = (type: 'span' | 'log', of = project): Element[] =>
      system
        .stored()
        .filter((record) => record.project_id === of.id && record.type === type)
        .flatMap(({ payload }) => payload.items as Element[]);
    const named = (name: string, of = project) => elements('span', of).filter((span) => span.name === name);

    /** How many records its exporter counts as sent, or as dropped. */
    async function counted(what: 'sent' | 'send_failed', records: 'spans' | 'log_records'): Promise<number> {
      const metrics = await (await fetch(`http://127.0.0.1:${ports.metrics}/metrics`)).text();
      const line = new RegExp(`^otelcol_exporter_${what}_${records}(?:_total)?\\{[^}]*\\} (\\d+)$`, 'm');
      return Number(line.exec(metrics)?.[1] ?? 0);
    }
    /** What it believes it sent is what is stored, and what it believes it dropped is no more than `dropped`. */
    async function expectHonest(of: Project, dropped = 0): Promise<void> {
      await expect
        .poll(async () => [await counted('sent', 'spans'), await counted('send_failed', 'spans')])
        .toEqual([elements('span', of).length, dropped]);
    }

    beforeAll(async () => {
      system = await System.start();
      project = await system.createProject();
      const [grpc, http, health, metrics] = [
        await lastingPort(),
        await lastingPort(),
        await lastingPort(),
        await lastingPort(),
      ];
      ports = { grpc, http, health, metrics };
      await startCollector();
    });
    afterAll(async () => {
      if (collector?.exitCode === null) await kill('SIGTERM');
      await system?.stop();
    });

    /** @param by `http` with Node's exporter, or `grpc` with Python's */
    async function send(by: 'http' | 'grpc', names: readonly string[], attributes = {}): Promise<void> {
      const { command, env } = by === 'grpc' ? GRPC : NODE;
      const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${ports[by]}` };
      const client = new Program(command, { ...env, ...endpoint });
      for (const name of names)
        await client.step({
          do: 'span',
          name,
          child: 'child',
          attributes: { text: name, ...attributes },
        } as never);
      await client.step({ do: 'flush' });
      await client.close();
    }

    /** Sends a request of JSON to the Collector. */
    async function post(signal: 'traces' | 'logs', request: object): Promise<void> {
      const answer = await fetch(`http://127.0.0.1:${ports.http}/v1/${signal}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(request),
      });
      expect(answer.status).toBe(200);
    }

    it.each(['http', 'grpc'] as const)('hands on what comes by %s', async (by) => {
      await send(by, [`by ${by}`]);
      await expect.poll(() => named(`by ${by}`).length).toBe(1);
    });

    it('loses nothing, and sends nothing that is stored twice, when sluice is away and it is killed meanwhile', async () => {
      expect(await system.ingest.stop()).toBe(0);
      const names = Array.from({ length: 20 }, (_, n) => `while away ${n}`);
      await send('http', names.slice(0, 10));
      await kill('SIGKILL');
      await startCollector();
      await send('grpc', names.slice(10));
      system.ingest = system.startIngest();
      await system.ready();
      await expect.poll(() => names.filter((name) => named(name).length === 0)).toEqual([]);
      expect(names.filter((name) => named(name).length > 1)).toEqual([]);
    });

    describe.each(['deploy/otel-collector.yaml', 'default settings'] as const)('with %s', (settings) => {
      const forwarders: Forwarder[] = [];
      afterAll(() => forwarders.forEach((forwarder) => forwarder.close()));

      /** A Collector that begins anew, with a project and a forwarder of its own. */
      async function behindForwarder(wanted: { rateLimit?: number } = {}, key?: string) {
        const own = await system.createProject(wanted);
        const passed: { status: number; at: number; path: string }[] = [];
        const forwarder = await Forwarder.before(system.port, ({ status, at, path }) =>
          passed.push({ status, at, path }),
        );
        forwarders.push(forwarder);
        await kill('SIGTERM');
        log = '';
        await startCollector({ settings, to: { ...own, key: key ?? own.key }, port: forwarder.port });
        return { own, forwarder, passed, statuses: () => passed.map(({ status }) => status) };
      }

      it(`has stored ${MANY} spans and ${MANY} logs of one batch each, with links, events and every kind of attribute`, async () => {
        const { own, passed } = await behindForwarder();
        await post('traces', tracesOf(MANY));
        await post('logs', logsOf(MANY));
        await expect
          .poll(() => [elements('span', own).length, elements('log', own).length])
          .toEqual([MANY, MANY]);
        expect(passed.map(({ path, status }) => [path.split('/').at(-1), status]).sort()).toEqual([
          ['logs', 200],
          ['traces', 200],
        ]);
        const byId = (type: 'span' | 'log') =>
          elements(type, own).sort((one, other) => (`${one.span_id}` < `${other.span_id}` ? -1 : 1));
        expect(byId('span')).toEqual(Array.from({ length: MANY }, (_, at) => storedSpan(at)));
        expect(byId('log')).toEqual(Array.from({ length: MANY }, (_, at) => storedLog(at)));
        await expectHonest(own);
        await expect.poll(() => counted('sent', 'log_records')).toBe(MANY);
      });

      it('waits as long as a 429 says, and sends the same again: above the limit nothing is lost', async () => {
        const { own, passed, statuses } = await behindForwarder({ rateLimit: 2 });
        const names = ['admitted first', 'admitted second', 'refused first', 'refused second'];
        for (const [at, name] of names.entries()) {
          await send('http', [name]);
          await expect.poll(() => passed.length).toBe(at + 1);
        }
        expect(statuses()).toEqual([200, 200, 429, 429]);
        await until(() => passed.length === 6, 2 * RETRY_AFTER_MS);
        expect(statuses()).toEqual([200, 200, 429, 429, 200, 200]);
        const [, , first = 0, second = 0, firstAgain, secondAgain] = passed.map(({ at }) => at);
        expect(firstAgain).toBeGreaterThan(first + RETRY_AFTER_MS - 1_000);
        expect(secondAgain).toBeGreaterThan(second + RETRY_AFTER_MS - 1_000);
        await expect.poll(() => names.filter((name) => named(name, own).length === 1)).toEqual(names);
        await expectHonest(own);
      });

      it('sends again after a 503, and after a lost answer, and it is stored once', async () => {
        const { own, forwarder, statuses } = await behindForwarder();
        forwarder.answersToLose = 1;
        await send('http', ['its answer is lost']);
        await expect.poll(statuses).toEqual([200, 200]);
        await system.nats.stop();
        await send('http', ['while the queue is away']);
        await expect.poll(statuses).toContain(503);
        await system.restartNats();
        await expect.poll(() => statuses().at(-1)).toBe(200);
        for (const name of ['its answer is lost', 'while the queue is away'])
          await expect.poll(() => named(name, own).length).toBe(1);
        await expectHonest(own);
      });

      it('sends again what came during a restart of sluice, and it is stored once', async () => {
        const { own, statuses } = await behindForwarder();
        expect(await system.ingest.stop()).toBe(0);
        await send('http', ['during the restart']);
        await expect.poll(statuses).toContain(0);
        system.ingest = system.startIngest();
        await system.ready();
        await expect.poll(() => statuses().at(-1)).toBe(200);
        await expect.poll(() => named('during the restart', own).length).toBe(1);
        await expectHonest(own);
      });

      it.each([
        [401, 'wrong', {}],
        [413, undefined, { large: LARGE }],
      ])('drops what is answered %i, says so, and goes on', async (status, key, attributes) => {
        const { own, statuses } = await behindForwarder({}, key);
        await send('http', [`answered ${status}`], attributes);
        await expect.poll(statuses).toEqual([status]);
        await expect.poll(() => log).toMatch(/Dropping data/);
        await send('http', ['after it']);
        await expect.poll(statuses).toEqual([status, key ? status : 200]);
        await expect.poll(() => named('after it', own).length).toBe(key ? 0 : 1);
        expect(named(`answered ${status}`, own)).toEqual([]);
        await expectHonest(own, SPANS_OF_A_NAME * (key ? 2 : 1));
      });
    });
  });
