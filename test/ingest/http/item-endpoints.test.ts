/** What the endpoints for items that are no envelopes make of a request; the rest of the story is that of an envelope (request.test.ts). */
import { describe, expect, it } from 'vitest';
import type { HeldItem } from '../../../src/ingest/envelope/upload.ts';
import { type ItemEndpoint, itemRoutes } from '../../../src/ingest/http/item-endpoints.ts';
import { REPORTS_BYTES_MAX } from '../../../src/limits.ts';
import { COUNTED, type Serving, serve, TOKEN } from './ingest.ts';
import { headOf } from './line.ts';

const endpointOf = (path: string, headers: Record<string, string> = {}): ItemEndpoint =>
  itemRoutes([])
    .find((route) => route.path === path)
    ?.endpointFor(headOf(headers)) as ItemEndpoint;

type Serves = ReturnType<typeof serve>;
/** What is published: id, and each item's header and payload. */
function publishedBy({ published }: Serves): { id: unknown; items: [header: string, payload: string][] } {
  const [{ entry }] = published as [(typeof published)[number]];
  const { eventId, items } = entry as { eventId: unknown; items: HeldItem[] };
  const text = (bytes: Uint8Array | undefined): string => Buffer.from(bytes ?? []).toString();
  return { id: eventId, items: items.map(({ header, payload }) => [text(header), text(payload)]) };
}

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

  const NAMED = '&sentry_release=shop%401&sentry_environment=test';
  const LONG = `&sentry_release=${'x'.repeat(300)}&sentry_environment=test`;
  it.each([
    ['application/CSP-report; charset=utf-8', '', header('application/csp-report')],
    ['application/expect-ct-report+json', '', header('application/expect-ct-report+json')],
    [
      'application/json',
      NAMED,
      header('application/json', ',"sentry_release":"shop@1","sentry_environment":"test"'),
    ],
    ['application/csp-report', LONG, header('application/csp-report', ',"sentry_environment":"test"')],
  ])(
    'of the type %s are stored as they came, with the names of a query of %j',
    async (type, names, itemHeader) => {
      const served = serveReports(type, { query: `sentry_key=k${names}` });
      await served.receive(report);
      await served.settle(TOKEN, COUNTED);
      expect(publishedBy(served)).toEqual({
        id: expect.stringMatching(/^[0-9a-f]{32}$/),
        items: [[itemHeader, report]],
      });
    },
  );

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

  it('at their bound are taken, and above it are 413', async () => {
    const body = `{"a":"${'x'.repeat(REPORTS_BYTES_MAX - 8)}"}`;
    const served = serveReports('application/csp-report');
    await served.receive(body);
    await served.settle(TOKEN, COUNTED);
    expect([body.length, publishedBy(served).items[0]?.[1]]).toEqual([REPORTS_BYTES_MAX, body]);
    const over = serveReports('application/csp-report');
    await over.receive(`${body} `);
    await over.settle(TOKEN);
    expect([over.outcomes, over.line.said[0]]).toEqual([['too_large'], '413']);
    expect(over.line.headers).toContain(`X-Sentry-Error: the body exceeds ${REPORTS_BYTES_MAX} bytes`);
  });
});

it('a request of OTLP without a record takes a token and no position, also when it went to the disk', async () => {
  const headers = { 'content-type': 'application/json' };
  const served = serve({ endpoint: endpointOf('integration/otlp/v1/traces', headers), headers });
  await served.receive(`{"resourceSpans":[],"x":"${'x'.repeat(200_000)}`, false);
  expect(served.wants()).toBe('t');
  await served.settle(TOKEN);
  await served.receive('"}');
  await expect.poll(() => served.outcomes).toEqual(['empty']);
  expect([served.wants(), served.published, served.line.body]).toEqual(['t', [], '{}']);
});
