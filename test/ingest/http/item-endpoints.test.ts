/** What the endpoints for items that are no envelopes make of a request; the rest of the story is that of an envelope (request.test.ts). */
import { deflateSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import type { HeldItem } from '../../../src/ingest/envelope/upload.ts';
import { type ItemEndpoint, itemRoutes } from '../../../src/ingest/http/item-endpoints.ts';
import { REPORTS_BYTES_MAX } from '../../../src/limits.ts';
import { COUNTED, REFUSED, type Serving, serve, TOKEN, UNAVAILABLE } from './ingest.ts';
import { headOf } from './line.ts';

const endpointOf = (path: string, headers: Record<string, string> = {}): ItemEndpoint =>
  itemRoutes([])
    .find((route) => route.path === path)
    ?.endpointFor(headOf(headers)) as ItemEndpoint;
const STORE = { endpoint: endpointOf('store') };
const ID = '9ec79c33ec9942ab8353589fcb2e04dc';

type Serves = ReturnType<typeof serve>;
/** What is published: id, and each item's header and payload. */
function publishedBy({ published }: Serves): { id: unknown; items: [header: string, payload: string][] } {
  const [{ entry }] = published as [(typeof published)[number]];
  const { eventId, items } = entry as { eventId: unknown; items: HeldItem[] };
  const text = (bytes: Uint8Array | undefined): string => Buffer.from(bytes ?? []).toString();
  return { id: eventId, items: items.map(({ header, payload }) => [text(header), text(payload)]) };
}

describe('an event without an envelope', () => {
  it('is stored under its own id, which is answered', async () => {
    const served = serve({ ...STORE, headers: { 'x-sentry-auth': 'Sentry sentry_client=raven/1' } });
    const event = `{"event_id":"${ID}","message":"x"}`;
    await served.receive(event.slice(0, 9), false);
    await served.receive(event.slice(9));
    expect(served.wants()).toBe('b');
    await served.settle(TOKEN, COUNTED);
    expect(publishedBy(served)).toEqual({ id: ID, items: [['{"type":"event"}', event]] });
    await served.store('stored');
    expect([served.outcomes, served.line.body]).toEqual([['accepted'], `{"id":"${ID}"}`]);
    expect(served.line.headers).toEqual(expect.arrayContaining(['X-Service-Usage: 3/10']));
  });

  it('gets an id where it has none, and is stored under the id that is answered', async () => {
    const served = serve(STORE);
    await served.receive('{"event_id":"of another shape"}');
    await served.settle(TOKEN, COUNTED);
    const { id } = publishedBy(served);
    await served.store('stored');
    expect(id).toMatch(/^[0-9a-f]{32}$/);
    expect(served.line.body).toBe(`{"id":"${id}"}`);
  });

  it('may be base64 of a zlib stream, as Raven sends it', async () => {
    const served = serve({ ...STORE, headers: { 'content-type': 'application/octet-stream' } });
    await served.receive(deflateSync(`{"event_id":"${ID}"}`).toString('base64'));
    await served.settle(TOKEN, COUNTED);
    expect(publishedBy(served)).toMatchObject({
      id: ID,
      items: [['{"type":"event"}', `{"event_id":"${ID}"}`]],
    });
  });

  it('passes the filters of events', async () => {
    const served = serve(STORE);
    await served.receive(`{"event_id":"${ID}","request":{"url":"http://localhost/"}}`);
    expect(served.wants()).toBe('t');
    await served.settle(TOKEN);
    expect([served.outcomes, served.line.body]).toEqual([['filtered'], `{"id":"${ID}"}`]);
    expect(served.line.headers).toContain('X-Service-Filtered: localhost');
  });

  it.each([
    ['', 'the body is empty'],
    ['[{}]', 'the body is no JSON object'],
    ['{"a":', 'the body is no JSON object'],
  ])('is refused after its token where it is %j', async (body, reason) => {
    const served = serve(STORE);
    await served.receive(body);
    expect(served.wants()).toBe('t');
    await served.settle(TOKEN);
    expect([served.outcomes, served.line.said]).toEqual([['invalid'], ['400', 'end']]);
    expect(served.line.headers).toContain(`X-Sentry-Error: ${reason}`);
    expect(served.published).toEqual([]);
  });

  it('may be as large as an envelope, and goes to disk after its token', async () => {
    const served = serve({ ...STORE, pickSpooled: async () => Buffer.from('{}') });
    await served.receive(`{"a":"${'x'.repeat(200_000)}`, false);
    expect(served.wants()).toBe('t');
    await served.settle(TOKEN);
    await served.receive(`","event_id":"${ID}"}`);
    await expect.poll(() => served.wants()).toBe('tc');
    await served.settle(undefined, COUNTED);
    expect(served.published[0]).toMatchObject({ isSpooled: true, entry: { eventId: ID } });
    await served.store('stored');
    expect(served.outcomes).toEqual(['accepted']);
  });
});

describe('reports of browsers', () => {
  const report = '{"csp-report":{"blocked-uri":"inline"}}';
  const serveReports = (type: string, serving: Serving = {}): Serves =>
    serve({
      endpoint: endpointOf('security'),
      headers: { 'content-type': type },
      extraTypes: ['raw_security'],
      ...serving,
    });
  const header = (type: string, more = ''): string =>
    `{"type":"raw_security","content_type":"${type}"${more}}`;

  it.each([
    ['application/csp-report', 'application/csp-report'],
    ['application/CSP-report; charset=utf-8', 'application/csp-report'],
    ['application/expect-ct-report+json', 'application/expect-ct-report+json'],
    ['application/json', 'application/json'],
  ])('of the type %s are stored, each as it came', async (sent, type) => {
    const served = serveReports(sent);
    await served.receive(report);
    await served.settle(TOKEN, COUNTED);
    expect(publishedBy(served)).toEqual({
      id: expect.stringMatching(/^[0-9a-f]{32}$/),
      items: [[header(type), report]],
    });
    await served.store('stored');
    expect([served.outcomes, served.line.said]).toEqual([['accepted'], ['200', 'end']]);
  });

  it('in a list are an item each', async () => {
    const served = serveReports('application/reports+json', {
      query: 'sentry_key=k&sentry_release=shop%401&sentry_environment=test',
    });
    await served.receive(`[${report},{"type":"deprecation"}]`);
    await served.settle(TOKEN, COUNTED);
    const of = header('application/reports+json', ',"sentry_release":"shop@1","sentry_environment":"test"');
    expect(publishedBy(served).items).toEqual([
      [of, report],
      [of, '{"type":"deprecation"}'],
    ]);
  });

  it('do without a release that is too long for their headers', async () => {
    const served = serveReports('application/csp-report', {
      query: `sentry_key=k&sentry_release=${'x'.repeat(300)}&sentry_environment=test`,
    });
    await served.receive(report);
    await served.settle(TOKEN, COUNTED);
    expect(publishedBy(served).items).toEqual([
      [header('application/csp-report', ',"sentry_environment":"test"'), report],
    ]);
  });

  it('are 200 and nothing more where they are not stored', async () => {
    const served = serveReports('application/csp-report', { extraTypes: [] });
    await served.receive(report);
    expect(served.wants()).toBe('t');
    await served.settle(TOKEN);
    expect([served.outcomes, served.published]).toEqual([['empty'], []]);
    expect(served.line.headers).toEqual(
      expect.arrayContaining([
        'X-Service-Empty: unstored-types',
        'X-Sentry-Rate-Limits: 86400:security:organization:unsupported',
      ]),
    );
    expect(served.metrics.skipped.raw_security).toBe(1);
  });

  it.each(['text/plain', 'application/xml', ''])('of the type %j are 415 after their token', async (type) => {
    const served = serveReports(type);
    expect(served.wants()).toBe('t');
    await served.settle(TOKEN);
    await served.receive(report);
    expect([served.outcomes, served.line.said[0]]).toEqual([['invalid'], '415']);
    expect(served.line.headers).toContain('X-Sentry-Error: the content type is not taken here');
    expect(served.line.body).toBe('{"error":"Unsupported media type"}');
  });

  it('of another type are 429 over the limit', async () => {
    const served = serveReports('text/plain');
    await served.settle(REFUSED);
    await served.receive(report);
    expect([served.outcomes, served.line.said[0]]).toEqual([['rate_limited'], '429']);
    const away = serveReports('text/plain');
    await away.settle(UNAVAILABLE);
    expect(away.outcomes).toEqual(['limiter_unavailable']);
  });

  it.each([true, false])('above their bound are 413; announced: %s', async (isAnnounced) => {
    const body = `{"a":"${'x'.repeat(REPORTS_BYTES_MAX)}"}`;
    const type = 'application/csp-report';
    const headers = { 'content-type': type, ...(isAnnounced && { 'content-length': `${body.length}` }) };
    const served = serveReports(type, { headers });
    if (!isAnnounced) await served.receive(body);
    await served.settle(TOKEN);
    if (isAnnounced) await served.receive(body);
    expect([served.outcomes, served.line.said[0]]).toEqual([['too_large'], '413']);
    expect(served.line.headers).toContain(`X-Sentry-Error: the body exceeds ${REPORTS_BYTES_MAX} bytes`);
  });

  it('at their bound are taken', async () => {
    const body = `{"a":"${'x'.repeat(REPORTS_BYTES_MAX - 8)}"}`;
    const served = serveReports('application/csp-report');
    await served.receive(body);
    await served.settle(TOKEN, COUNTED);
    expect([body.length, publishedBy(served).items[0]?.[1]]).toEqual([REPORTS_BYTES_MAX, body]);
  });
});

describe('a request of OTLP', () => {
  const PROTOBUF = 'application/x-protobuf';
  const JSON_TYPE = 'application/json';
  const REQUEST = '{"resourceSpans":[{"scopeSpans":[{"spans":[{}]}]}]}';
  /** The same in protobuf. */
  const BYTES = '\x0a\x04\x12\x02\x12\x00';
  const serveOtlp = (type: string, { signal = 'traces', ...serving }: Serving & { signal?: string } = {}) => {
    const headers = { 'content-type': type };
    const endpoint = endpointOf(`integration/otlp/v1/${signal}`, headers);
    return serve({ endpoint, headers, ...serving });
  };
  const bodyOf = (type: string): string => (type === PROTOBUF ? BYTES : REQUEST);

  it.each([
    [PROTOBUF, PROTOBUF, ''],
    [JSON_TYPE, JSON_TYPE, '{}'],
    ['Application/JSON; charset=utf-8', JSON_TYPE, '{}'],
  ])('of the type %s is one item, as it came, under an id of its bytes', async (sent, type, answer) => {
    const ids: unknown[] = [];
    for (let repetition = 0; repetition < 2; repetition++) {
      const served = serveOtlp(sent);
      await served.receive(bodyOf(type).slice(0, 3), false);
      await served.receive(bodyOf(type).slice(3));
      expect(served.wants()).toBe('b');
      await served.settle(TOKEN, COUNTED);
      const { id, items } = publishedBy(served);
      expect(items).toEqual([[`{"type":"otlp_traces","content_type":"${type}"}`, bodyOf(type)]]);
      ids.push(id);
      await served.store('stored');
      expect([served.outcomes, served.line.said[0], served.line.body]).toEqual([['accepted'], '200', answer]);
      expect(served.line.headers).toEqual(expect.arrayContaining(['X-Service-Usage: 3/10']));
      expect(served.metrics.items.otlp_traces).toBe(1);
    }
    expect(ids).toEqual([expect.stringMatching(/^[0-9a-f]{32}$/), ids[0]]);
  });

  it.each([PROTOBUF, JSON_TYPE])('of the type %s that is not acknowledged fails with a 503', async (type) => {
    const served = serveOtlp(type);
    await served.receive(bodyOf(type));
    await served.settle(TOKEN, COUNTED);
    await served.store('unknown');
    expect([served.outcomes, served.line.said[0]]).toEqual([['failed'], '503']);
    expect(served.line.headers).toContain('Retry-After: 5');
    const message = /Internal server error, errorId [0-9a-f]{32}/;
    if (type === JSON_TYPE)
      expect(JSON.parse(served.line.body)).toEqual({ code: 14, message: expect.stringMatching(message) });
    else expect(served.line.body).toMatch(new RegExp(`^\\x08\\x0e\\x12\\x3f${message.source}$`));
  });

  it('without a record takes a token and no position, also when it went to the disk', async () => {
    const small = serveOtlp(JSON_TYPE);
    await small.receive('{"resourceSpans":[]}');
    expect(small.wants()).toBe('t');
    await small.settle(TOKEN);
    const large = serveOtlp(JSON_TYPE);
    await large.receive(`{"resourceSpans":[],"x":"${'x'.repeat(200_000)}`, false);
    expect(large.wants()).toBe('t');
    await large.settle(TOKEN);
    await large.receive('"}');
    await expect.poll(() => large.outcomes).toEqual(['empty']);
    for (const served of [small, large]) {
      expect([served.outcomes, served.published, served.line.body]).toEqual([['empty'], [], '{}']);
      expect(served.line.headers).toContain('X-Service-Empty: no-items');
      expect(served.wants()).toBe('t');
    }
  });

  it.each(['text/plain', 'application/grpc', ''])('of the type %j is 415 after its token', async (type) => {
    const served = serveOtlp(type);
    expect(served.wants()).toBe('t');
    await served.settle(TOKEN);
    await served.receive(REQUEST);
    expect([served.outcomes, served.line.said[0]]).toEqual([['invalid'], '415']);
    expect(served.line.body).toBe('{"code":3,"message":"Unsupported media type"}');
  });

  it.each([
    ['traces', 'spans'],
    ['logs', 'logs'],
  ] as const)('with %s is limited with the category %s', async (signal, category) => {
    const served = serveOtlp(PROTOBUF, { signal, rateLimits: { [category]: 1 } });
    await served.receive(BYTES);
    await served.settle({ ...REFUSED, windowNumber: 2 });
    expect([served.outcomes, served.metrics.rateLimited[`otlp_${signal}`]]).toEqual([['rate_limited'], 1]);
    expect(served.line.body).toBe('\x08\x08\x12\x13Rate limit exceeded');
  });

  it('with metrics has an address only where they are stored', () => {
    const paths = (types: 'otlp_metrics'[]) => itemRoutes(types).map(({ path }) => path);
    expect(paths([])).not.toContain('integration/otlp/v1/metrics');
    expect(paths(['otlp_metrics'])).toContain('integration/otlp/v1/metrics');
  });
});
