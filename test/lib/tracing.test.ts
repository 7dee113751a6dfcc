import { createRequire } from 'node:module';
import { Writable } from 'node:stream';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { openTracing } from '../../src/lib/tracing/open.ts';
import { type Tracing, tracingSettings } from '../../src/lib/tracing/tracing.ts';
import { Collector } from '../support/collector.ts';
import { until } from '../support/system.ts';

// The composition roots that a program without tracing loads.
import '../../src/ingest/http/server.ts';
import '../../src/processor/processor.ts';

const { cache } = createRequire(import.meta.url);
/** Not those of its API, which another package loads. */
const sdkFiles = (): string[] =>
  Object.keys(cache).filter((path) => path.includes('@opentelemetry/') && !path.includes('/api/'));
/** What the SDK holds, and sends at a time. */
const QUEUE_MAX = 2_048;
const BATCH_MAX = 512;
const PARENT = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
const NONE = { traceparent: '', tracestate: '' };

const lines: string[] = [];
const log = pino(
  new Writable({
    write: (line, _encoding, done) => {
      lines.push(`${line}`);
      done();
    },
  }),
);
const open = (): Promise<Tracing | undefined> =>
  openTracing({ tracing: tracingSettings(process.env) }, { service: 'test', log });

describe('tracing that is off', () => {
  it('is so without an endpoint, and where the SDK is told to be off', async () => {
    const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318' };
    expect(tracingSettings(endpoint)).toEqual({ hasSampler: false, hasTimeout: false });
    expect(tracingSettings({})).toBeUndefined();
    expect(tracingSettings({ ...endpoint, OTEL_SDK_DISABLED: 'true' })).toBeUndefined();
    expect(tracingSettings({ ...endpoint, OTEL_TRACES_EXPORTER: 'none' })).toBeUndefined();
  });

  it('loads nothing of the SDK', async () => {
    expect(await open()).toBeUndefined();
    expect(sdkFiles()).toEqual([]);
  });
});

describe('tracing', () => {
  let collector: Collector;
  beforeEach(async () => {
    lines.length = 0;
    collector = await Collector.start();
    vi.stubEnv('OTEL_EXPORTER_OTLP_ENDPOINT', collector.url);
  });
  afterEach(async () => {
    vi.unstubAllEnvs();
    await collector.close();
  });
  const start = async (env: Record<string, string> = {}): Promise<Tracing> => {
    for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value);
    return (await open()) as Tracing;
  };

  it('loads the SDK, and names the service as the environment does', async () => {
    const tracing = await start({ OTEL_SERVICE_NAME: 'edge', OTEL_RESOURCE_ATTRIBUTES: 'cell=a' });
    expect(sdkFiles()).not.toEqual([]);
    tracing.request('a request', { ...NONE, traceparent: PARENT })?.end();
    await tracing.close();
    expect(collector.spans).toMatchObject([{ service: 'edge', parentSpanId: 'b7ad6b7169203331' }]);
  });

  it('samples few requests of clients that do not ask for it, and those that a client samples', async () => {
    const tracing = await start();
    let sampled = 0;
    for (let n = 0; n < 3_000; n++) if (tracing.request('a request', NONE)) sampled++;
    expect(sampled).toBeGreaterThan(0);
    expect(sampled).toBeLessThan(90);
    expect(tracing.request('a request', { ...NONE, traceparent: PARENT })).toBeDefined();
    expect(tracing.request('a request', { ...NONE, traceparent: PARENT.replace(/1$/, '0') })).toBeUndefined();
    await tracing.close();
  });

  it('begins so many traces a second, however many clients ask for', async () => {
    const tracing = await start({ OTEL_TRACES_SAMPLER: 'always_on' });
    const { TRACES_PER_SEC_MAX } = await import('../../src/lib/tracing/otlp.ts');
    const began = performance.now();
    let sampled = 0;
    for (let n = 0; n < 1_000; n++) if (tracing.request('a request', NONE)) sampled++;
    const seconds = Math.floor(performance.now() / 1000) - Math.floor(began / 1000) + 1;
    expect(sampled).toBeGreaterThanOrEqual(TRACES_PER_SEC_MAX);
    expect(sampled).toBeLessThanOrEqual(seconds * TRACES_PER_SEC_MAX);
    await tracing.close();
  });

  it('holds a bounded number of spans while the collector hangs, and ends in time', async () => {
    let release = (): void => undefined;
    collector.hold = new Promise((resolve) => {
      release = resolve;
    });
    const tracing = await start({ OTEL_EXPORTER_OTLP_TIMEOUT: '60000' });
    const begin = (): void => tracing.resume('process', PARENT, {})?.end();
    for (let n = 0; n < BATCH_MAX; n++) begin();
    await until(() => collector.requests.length === 1);
    for (let n = 0; n < 20_000; n++) begin();
    release();
    await tracing.close();
    expect(collector.spans).toHaveLength(BATCH_MAX + QUEUE_MAX);
  });

  it('does not wait long for a collector that hangs', async () => {
    collector.hold = new Promise(() => undefined);
    const tracing = await start({ OTEL_EXPORTER_OTLP_TIMEOUT: '60000' });
    tracing.resume('process', PARENT, {})?.end();
    const began = performance.now();
    await tracing.close();
    expect(performance.now() - began).toBeLessThan(10_000);
  });

  it('says which setting the SDK does not take', async () => {
    const tracing = await start({ OTEL_TRACES_SAMPLER: 'sometimes' });
    expect(lines.join('')).toContain('OTEL_TRACES_SAMPLER value \\"sometimes\\" invalid');
    await tracing.close();
  });
});
