/** Spans of sampled requests, from real programs to a real collector. */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Collector, type SeenSpan } from '../support/collector.ts';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { lastingPort } from '../support/servers.ts';
import { MIB, type Project, System, until } from '../support/system.ts';

const hex = (bytes: number): string => randomBytes(bytes).toString('hex');

/** The trace of a client of ours. */
class Client {
  readonly traceId = hex(16);
  readonly spanId = hex(8);
  readonly flags: '00' | '01';

  constructor({ sampled }: { sampled: boolean }) {
    this.flags = sampled ? '01' : '00';
  }

  get headers(): Record<string, string> {
    return { traceparent: `00-${this.traceId}-${this.spanId}-${this.flags}` };
  }
}

const REQUEST = 'POST /api/{project}/envelope';
const named = (spans: readonly SeenSpan[], name: string): SeenSpan =>
  spans.find((span) => span.name === name) as SeenSpan;
const names = (spans: readonly SeenSpan[]): string[] => spans.map(({ name }) => name).sort();

const environment = (endpoint: string): Record<string, string> => ({
  OTEL_EXPORTER_OTLP_ENDPOINT: endpoint,
  OTEL_EXPORTER_OTLP_HEADERS: 'x-collector-key=secret',
  OTEL_TRACES_SAMPLER: 'parentbased_always_off',
  OTEL_BSP_SCHEDULE_DELAY: '50',
});

describe('the spans of a request', () => {
  let collector: Collector;
  let system: System;
  let project: Project;
  beforeAll(async () => {
    collector = await Collector.start();
    system = await System.start({ env: environment(collector.url) });
    project = await system.createProject();
  });
  afterAll(async () => {
    await system.stop();
    await collector.close();
  });

  /** A request, and its trace when the processor has told of it. */
  async function traced(body: string, client = new Client({ sampled: true })): Promise<SeenSpan[]> {
    const res = await system.send(project, body, { ...client.headers, 'X-Request-Id': 'req-1' });
    expect(res.status).toBe(200);
    await until(() => names(collector.of(client.traceId)).includes('process'));
    await until(() => names(collector.of(client.traceId)).includes(REQUEST));
    return collector.of(client.traceId);
  }

  it('are one trace under the span of the client, from the head to the sink', async () => {
    const client = new Client({ sampled: true });
    const spans = await traced(errorEvent(eventId()), client);
    expect(names(spans)).toEqual([REQUEST, 'admit', 'process', 'publish', 'receive']);
    const request = named(spans, REQUEST);
    expect(request).toMatchObject({ parentSpanId: client.spanId, kind: 2, service: 'sluice-ingest' });
    expect(request.attributes).toMatchObject({
      'sluice.outcome': 'accepted',
      'sluice.project': project.id,
      'sluice.request_id': 'req-1',
    });
    for (const name of ['receive', 'admit', 'publish'])
      expect(named(spans, name).parentSpanId).toBe(request.spanId);
    const [receive, admit, publish, process] = ['receive', 'admit', 'publish', 'process'].map((name) =>
      named(spans, name),
    ) as [SeenSpan, SeenSpan, SeenSpan, SeenSpan];
    expect(process).toMatchObject({
      parentSpanId: publish.spanId,
      kind: 5,
      service: 'sluice-processor',
      attributes: { 'messaging.destination.name': 'SLUICE_EVENTS' },
    });
    expect(receive.startMs).toBeGreaterThanOrEqual(request.startMs);
    expect(admit.startMs).toBeGreaterThanOrEqual(receive.endMs);
    expect(publish.startMs).toBeGreaterThanOrEqual(admit.endMs);
    expect(request.endMs).toBeGreaterThanOrEqual(publish.endMs);
    expect(spans.filter(({ isError }) => isError)).toEqual([]);
    const [export_] = collector.requests;
    expect(export_).toMatchObject({ url: '/v1/traces', headers: { 'x-collector-key': 'secret' } });
  });

  it('are as many for an envelope that takes the disk and the parts', async () => {
    const spans = await traced(errorEvent(eventId(), 'x'.repeat(3 * MIB)));
    const publish = named(spans, 'publish');
    expect(named(spans, 'process').parentSpanId).toBe(publish.spanId);
    // The token is taken before the body goes to the disk, and the position after it.
    expect(names(spans)).toEqual([REQUEST, 'admit', 'admit', 'process', 'publish', 'receive']);
  });

  it('show a second question to Redis where items of a category are over its limit', async () => {
    const limited = await system.createProject({ rateLimits: { logs: 1 } });
    const body = '{}\n{"type":"event"}\n{}\n{"type":"log"}\n{"items":[{}]}';
    const send = async (client: Client): Promise<void> => {
      expect((await system.send(limited, body, client.headers)).status).toBe(200);
    };
    await send(new Client({ sampled: false }));
    const client = new Client({ sampled: true });
    await send(client);
    await until(() => collector.of(client.traceId).length >= 6);
    expect(names(collector.of(client.traceId))).toEqual([
      REQUEST,
      'admit',
      'admit',
      'process',
      'publish',
      'receive',
    ]);
  });

  it('are none of a heartbeat', async () => {
    const client = new Client({ sampled: true });
    const url = `${system.url}/heartbeat/${await system.createHeartbeat()}`;
    const ping = await fetch(url, { method: 'POST', headers: client.headers });
    expect(ping.status).toBe(200);
    await traced(errorEvent(eventId()));
    expect(collector.of(client.traceId)).toEqual([]);
  });

  it('are told apart where many requests come at once', async () => {
    const all = await Promise.all(Array.from({ length: 20 }, () => traced(errorEvent(eventId()))));
    for (const spans of all) {
      expect(names(spans)).toEqual([REQUEST, 'admit', 'process', 'publish', 'receive']);
      expect(named(spans, 'process').parentSpanId).toBe(named(spans, 'publish').spanId);
    }
  });

  it('end with the outcome where a request is refused', async () => {
    const client = new Client({ sampled: true });
    const res = await system.send({ ...project, key: hex(16) }, errorEvent(eventId()), client.headers);
    expect(res.status).toBe(401);
    await until(() => collector.of(client.traceId).length >= 2);
    const spans = collector.of(client.traceId);
    expect(names(spans)).toEqual([REQUEST, 'receive']);
    expect(named(spans, REQUEST).attributes['sluice.outcome']).toBe('forbidden_key');
  });

  it('are none where the client does not sample, or says nothing that can be read', async () => {
    const unsampled = new Client({ sampled: false });
    const send = (headers: Record<string, string>): Promise<Response> =>
      system.send(project, errorEvent(eventId()), headers);
    const before = collector.spans.length;
    const invalid = ['nonsense', `ff-${hex(16)}-${hex(8)}-01`, `00-${'0'.repeat(32)}-${hex(8)}-01`];
    const answers = [await send(unsampled.headers), await send({})];
    for (const traceparent of invalid) answers.push(await send({ traceparent }));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
    const spans = await traced(errorEvent(eventId()));
    expect(collector.spans.length - before).toBe(spans.length);
  });
});

describe('a collector that is away', () => {
  it('costs the requests nothing and the log one line, and gets the spans of later ones', async () => {
    const port = await lastingPort();
    const env = { ...environment(`http://127.0.0.1:${port}`), OTEL_EXPORTER_OTLP_TIMEOUT: '300' };
    const system = await System.start({ env });
    try {
      const project = await system.createProject();
      const warnings = (): string[] =>
        system.ingest.log.split('\n').filter((line) => line.includes('spans are not taken'));
      const send = async (client = new Client({ sampled: true })): Promise<number> =>
        (await system.send(project, errorEvent(eventId()), client.headers)).status;
      const statuses: number[] = [];
      await until(async () => {
        statuses.push(await send());
        return warnings().length > 0;
      });
      for (let more = 0; more < 50; more++) statuses.push(await send());
      expect(new Set(statuses)).toEqual(new Set([200]));
      const collector = await Collector.start(port);
      try {
        await until(async () => {
          const client = new Client({ sampled: true });
          await send(client);
          return collector.spans.length > 0;
        });
        expect(warnings()).toHaveLength(1);
        expect(system.ingest.errors).toEqual([]);
      } finally {
        await collector.close();
      }
    } finally {
      await system.stop();
    }
  });
});
