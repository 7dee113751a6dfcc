/**
 * Unmodified exporters of OpenTelemetry with default settings, against the whole system. What each believes it sent is compared with what
 * is stored: when all goes well, when it is refused, in a restart, and when an answer is lost. What an exporter does when it is refused is
 * its own matter, and is printed: the table of docs/clients.md. Which of them take part is decided as in matrix.test.ts.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Project, type StoredRecord, System, until } from '../support/system.ts';
import { Program } from './client.ts';
import { Forwarder } from './forwarder.ts';
import { EXPORTERS, type Exporter } from './otlp/exporters.ts';
import { COLLECTOR_SDKS, describeCollector } from './otlp/through-collector.ts';
import { asked, build, isAsked, lacks, lacksStill, say } from './sdks.ts';

const leftOut = EXPORTERS.filter(({ sdk }) => !isAsked(sdk) || lacksStill(sdk));
const exporters = EXPORTERS.filter((exporter) => !leftOut.includes(exporter));
const lines = leftOut.map(
  ({ title, sdk }) => `${title} IS LEFT OUT: ${lacks(sdk) ?? 'TEST_CLIENTS does not name it'}`,
);
for (const line of lines) say(`\n!!! ${line}`);

/** One of each kind that all languages have. */
const ATTRIBUTES = {
  text: 'Größe → "ok"\n🚰',
  empty: '',
  flag: true,
  count: 9_007_199_254_740_991,
  negative: -42,
  ratio: 0.5,
  texts: ['a', 'é'],
  flags: [true, false],
  counts: [1, -2, 3],
  ratios: [0.5, -1.25],
};
const typeOf = (value: unknown): string => {
  if (Array.isArray(value)) return 'array';
  if (typeof value === 'number') return Number.isInteger(value) ? 'integer' : 'double';
  return typeof value;
};
const STORED_ATTRIBUTES = Object.fromEntries(
  Object.entries(ATTRIBUTES).map(([name, value]) => [name, { value, type: typeOf(value) }]),
);
const MANY = 1_500;
/** Larger than a body may be, before and after compression. */
const LARGE = Array.from({ length: 6_000_000 }, () => String.fromCharCode(97 + Math.random() * 26)).join('');

type Step = { do: string; [name: string]: unknown };
type Made = { trace: string; span: string; child: string; linkedTrace: string; linkedSpan: string };
type Element = {
  trace_id: string;
  span_id: string;
  parent_span_id?: string;
  name?: string;
  attributes: Record<string, unknown>;
  [name: string]: unknown;
};

let system: System;

/** An application of its own behind a forwarder of its own. */
class App {
  readonly project: Project;
  readonly forwarder: Forwarder;
  /** What the exporter was answered, in the order of its requests. */
  readonly statuses: number[];
  readonly #program: Program;

  private constructor(project: Project, door: Pick<App, 'forwarder' | 'statuses'>, program: Program) {
    this.project = project;
    this.forwarder = door.forwarder;
    this.statuses = door.statuses;
    this.#program = program;
  }

  static async start(exporter: Exporter, wanted: { rateLimit?: number } = {}, key?: string): Promise<App> {
    const statuses: number[] = [];
    const project = await system.createProject(wanted);
    const forwarder = await Forwarder.before(system.port, ({ status }) => statuses.push(status));
    const used = key ?? project.key;
    const env: Record<string, string> = exporter.byDsn
      ? { DSN: `http://${used}@127.0.0.1:${forwarder.port}/${project.id}` }
      : {
          OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${forwarder.port}/api/${project.id}/integration/otlp`,
          OTEL_EXPORTER_OTLP_HEADERS: `x-sentry-auth=${encodeURIComponent(`sentry sentry_key=${used}`)}`,
          OTEL_SERVICE_NAME: 'shop',
          OTEL_RESOURCE_ATTRIBUTES: 'service.version=1.2.3,deployment.environment.name=test',
          OTEL_METRICS_EXPORTER: 'none',
          OTEL_EXPORTER_OTLP_PROTOCOL: 'http/protobuf',
        };
    return new App(
      project,
      { forwarder, statuses },
      new Program(exporter.command, { ...exporter.env, ...env }),
    );
  }

  step(step: Step): Promise<Made> {
    return this.#program.step(step as never) as Promise<never>;
  }

  async span(name: string, attributes: object = {}): Promise<Made> {
    const made = await this.step({ do: 'span', name, child: `child of ${name}`, attributes });
    await this.step({ do: 'flush' });
    return made;
  }

  records(type: 'span' | 'log'): StoredRecord[] {
    return system.stored().filter((record) => record.project_id === this.project.id && record.type === type);
  }

  elements(type: 'span' | 'log'): Element[] {
    return this.records(type).flatMap(({ payload }) => payload.items as Element[]);
  }

  /** The spans of this name that are stored. */
  named(name: string): Element[] {
    return this.elements('span').filter((span) => span.name === name);
  }

  async close(): Promise<void> {
    this.forwarder.close();
    await this.#program.close();
  }
}

beforeAll(async () => {
  const sdks = [...exporters.map(({ sdk }) => sdk), ...COLLECTOR_SDKS];
  const builds = new Map(sdks.map((sdk) => [JSON.stringify(sdk.build), sdk.build]));
  await Promise.all([...builds.values()].map(build));
  system = await System.start();
}, 15 * 60_000);
afterAll(() => system?.stop());

it(['every exporter that is asked for takes part', ...lines].join('; '), () => {
  if (asked) expect(leftOut.filter(({ sdk }) => isAsked(sdk))).toEqual([]);
});

const told: string[] = [];
const tell = (exporter: Exporter, scene: string, app: App, stored: string): void =>
  void told.push(`| ${exporter.title} | ${scene} | ${app.statuses.join(' ')} | ${stored} |`);
afterAll(() => say(`\n| Exporter | Situation | Answers | Stored |\n${told.join('\n')}`));

describe.each(exporters)('$title', (exporter) => {
  const apps: App[] = [];
  const start = async (...args: [{ rateLimit?: number }?, string?]): Promise<App> => {
    const app = await App.start(exporter, ...args);
    apps.push(app);
    return app;
  };
  afterAll(async () => void (await Promise.all(apps.map((app) => app.close()))));

  it('has stored what it believes it sent: spans, a link, an event, an error, every kind of attribute', async () => {
    const app = await start();
    const made = await app.span('GET /checkout', ATTRIBUTES);
    await expect.poll(() => app.elements('span').length).toBe(3);
    const [span] = app.named('GET /checkout');
    expect(span).toMatchObject({
      trace_id: made.trace,
      span_id: made.span,
      kind: 'server',
      status: 'error',
      is_segment: true,
      attributes: {
        ...STORED_ATTRIBUTES,
        'sentry.status.message': { value: 'no stock', type: 'string' },
        'resource.service.name': { value: 'shop', type: 'string' },
        'resource.service.version': { value: '1.2.3', type: 'string' },
        'resource.deployment.environment.name': { value: 'test', type: 'string' },
        'scope.name': { value: 'clients', type: 'string' },
        'scope.version': { value: '7', type: 'string' },
      },
      events: [{ name: 'sold out', attributes: STORED_ATTRIBUTES }],
      links: [
        {
          trace_id: made.linkedTrace,
          span_id: made.linkedSpan,
          attributes: { why: { value: 'retry', type: 'string' } },
        },
      ],
    });
    expect(span?.parent_span_id).toBeUndefined();
    expect(app.named('child of GET /checkout')).toMatchObject([
      {
        trace_id: made.trace,
        span_id: made.child,
        parent_span_id: made.span,
        kind: 'client',
        is_segment: false,
      },
    ]);
    const { start_timestamp, end_timestamp } = span as Element & Record<string, number>;
    expect(Math.abs((start_timestamp as number) - Date.now() / 1_000)).toBeLessThan(60);
    expect(end_timestamp).toBeGreaterThanOrEqual(start_timestamp as number);
  });

  it(`has stored ${MANY} spans at once, each once`, async () => {
    const app = await start();
    const { trace } = await app.step({ do: 'many', count: MANY });
    await app.step({ do: 'flush' });
    const ids = () => app.elements('span').map(({ span_id }) => span_id);
    await expect.poll(() => ids().length).toBe(MANY);
    expect(new Set(ids()).size).toBe(MANY);
    expect(app.elements('span').every(({ trace_id }) => trace_id === trace)).toBe(true);
  });

  it.skipIf(exporter.byDsn)('has stored its log', async () => {
    const app = await start();
    const made = await app.step({ do: 'log', text: 'order placed für 42 €', attributes: ATTRIBUTES });
    await app.step({ do: 'flush' });
    await expect.poll(() => app.elements('log').length).toBe(1);
    expect(app.elements('log')).toMatchObject([
      {
        trace_id: made.trace,
        span_id: made.span,
        body: 'order placed für 42 €',
        level: 'warn',
        severity_number: 13,
        severity_text: 'WARN',
        attributes: { ...STORED_ATTRIBUTES, 'resource.service.name': { value: 'shop', type: 'string' } },
      },
    ]);
  });

  it('has stored once what it sends again because an answer was lost', async () => {
    const app = await start();
    app.forwarder.answersToLose = 1;
    await app.span('its answer is lost');
    await app.span('after the loss');
    await expect.poll(() => app.named('after the loss').length).toBe(1);
    expect(app.named('its answer is lost')).toHaveLength(1);
    tell(exporter, 'lost answer', app, 'once');
  });

  it('is refused with a wrong key', async () => {
    const app = await start({}, 'wrong');
    await app.span('with a wrong key');
    await expect.poll(() => new Set(app.statuses)).toEqual(new Set([401]));
    tell(exporter, '401', app, 'none');
  });

  it('goes on after a request that was too large', async () => {
    const app = await start();
    await app.span('too large', { large: LARGE });
    await app.span('after the refusal');
    await expect.poll(() => app.named('after the refusal').length).toBe(1);
    await expect.poll(() => app.statuses).toContain(413);
    expect(app.named('too large')).toEqual([]);
    tell(exporter, '413', app, 'the second of two');
  });

  it('is refused above the limit of its project', async () => {
    const app = await start({ rateLimit: 2 });
    for (const name of ['1', '2', '3']) await app.span(name);
    await expect.poll(() => app.named('2').length).toBe(1);
    // Java's processor may send what a flush did not wait for, some seconds later.
    await expect.poll(() => app.statuses).toContain(429);
    tell(exporter, '429', app, `${['1', '2', '3'].filter((name) => app.named(name).length > 0)}`);
  });
});

/** Each sends a span every quarter of a second, whether the one before was sent or not. */
async function disturb(scene: string, count: number, disturbance: () => Promise<void>): Promise<void> {
  const apps = await Promise.all(exporters.map((exporter) => App.start(exporter)));
  await Promise.all(apps.map((app) => app.span('before')));
  const names = Array.from({ length: count }, (_, n) => `${scene} ${n}`);
  const send = async (app: App): Promise<void> => {
    for (const name of names) {
      await app.span(name);
      await pause(250);
    }
  };
  await Promise.all([...apps.map(send), disturbance()]);
  await Promise.all(apps.map((app) => app.span('after')));
  for (const [at, app] of apps.entries()) {
    await expect.poll(() => app.named('after').length).toBe(1);
    const stored = names.filter((name) => app.named(name).length > 0);
    for (const name of stored) expect(app.named(name)).toHaveLength(1);
    tell(exporters[at] as Exporter, scene, app, `${stored.length} of ${count}`);
  }
  await Promise.all(apps.map((app) => app.close()));
}

describe('all of them', () => {
  it('go on when the queue was away for four seconds, and nothing is stored twice', async () => {
    await disturb('503', 20, async () => {
      await pause(1_000);
      await system.nats.stop();
      await pause(4_000);
      await system.restartNats();
      await until(() => system.link.connected);
    });
  });

  it('go on after a restart of the server, and nothing is stored twice', async () => {
    await disturb('restart', 12, async () => {
      await pause(1_000);
      expect(await system.ingest.stop()).toBe(0);
      system.ingest = system.startIngest();
      await system.ready();
    });
  });
});

describeCollector();
