/** Events and reports that come without an envelope: what is answered is what is stored. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { deflateSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openBrowser } from '../support/browser.ts';
import { eventId } from '../support/envelopes.ts';
import { RawConnection } from '../support/raw-http.ts';
import { type NewProject, type Project, System, until } from '../support/system.ts';

const MIB = 1024 * 1024;
let system: System;
let project: Project;

beforeAll(async () => {
  system = await System.start({ env: { SLUICE_STORE_TYPES: 'raw_security' } });
  project = await system.createProject({ quota: 1_000 });
});
afterAll(async () => {
  expect(system.ingest.errors).toEqual([]);
  await system.stop();
});

const urlOf = (door: string, query = ''): string =>
  `${system.url}/api/${project.id}/${door}?sentry_key=${project.key}${query}`;
const post = (door: string, body: string | Uint8Array, headers: Record<string, string> = {}, query = '') =>
  fetch(urlOf(door, query), { method: 'POST', body, headers });
const idOf = async (answer: Response): Promise<string> => {
  expect([answer.status, answer.headers.get('x-service-usage')]).toEqual([
    200,
    expect.stringMatching(/^\d+\/1000$/),
  ]);
  return ((await answer.json()) as { id: string }).id;
};

type Door = [door: 'store/' | 'security/', contentType: string];
const DOORS: Door[] = [
  ['store/', 'application/json'],
  ['security/', 'application/csp-report'],
];

describe.each(DOORS)('%s answers as the endpoint of envelopes does', (door, contentType) => {
  const sendTo = (
    { id, key }: { id: string; key: string },
    body: string | Uint8Array = '{"n":1}',
    headers: Record<string, string> = {},
  ): Promise<Response> =>
    fetch(`${system.url}/api/${id}/${door}?sentry_key=${key}`, {
      method: 'POST',
      body,
      headers: { 'content-type': contentType, ...headers },
    });
  const bodyOf = async (answer: Response): Promise<[number, unknown]> => [answer.status, await answer.json()];
  const headersOf = ({ headers }: Response, ...names: string[]): (string | null)[] =>
    names.map((name) => headers.get(name));
  const newProject = (more: Partial<NewProject>): Promise<Project> => system.createProject(more);
  const outcomes = (outcome: string): Promise<number> =>
    system.metric('sluice_requests_total', `{endpoint="ingest",outcome="${outcome}"}`);

  it('401 without a key, and with one that is not the project’s', async () => {
    expect(await bodyOf(await sendTo({ ...project, key: '' }))).toEqual([
      401,
      { error: 'Missing authentication' },
    ]);
    const off = await newProject({ enabled: false });
    for (const stranger of [{ ...project, key: 'wrong' }, { ...project, id: '4711' }, off])
      expect(await bodyOf(await sendTo(stranger))).toEqual([401, { error: 'Invalid project or key' }]);
  });

  it('400 in an encoding that nobody knows', async () => {
    const answer = await sendTo(project, '{}', { 'content-encoding': 'lzma' });
    expect(headersOf(answer, 'x-sentry-error')).toEqual(['the content encoding is unknown']);
    expect(await bodyOf(answer)).toEqual([400, { error: 'Invalid envelope format' }]);
  });

  it('413 above its bound, as sent and inflated', async () => {
    const large = `{"a":"${'x'.repeat(door === 'store/' ? 21 * MIB : 64 * 1024)}"}`;
    let answers: Response[] = [];
    // A machine that is too busy to inflate it within a second says so first.
    await until(async () => {
      const packed = sendTo(project, gzipSync(large), { 'content-encoding': 'gzip' });
      answers = await Promise.all([sendTo(project, large.slice(0, 6 * MIB)), packed]);
      return answers.every(({ status }) => status !== 503);
    });
    for (const answer of answers) {
      expect(headersOf(answer, 'x-sentry-error')[0]).toMatch(
        /^the body (exceeds|inflates to over) \d+ bytes$/,
      );
      expect(await bodyOf(answer)).toEqual([413, { error: 'Payload too large' }]);
    }
  });

  it('417 for an Expect in other letters, and the connection ends', async () => {
    const connection = await RawConnection.open(system.port);
    const path = `/api/${project.id}/${door}?sentry_key=${project.key}`;
    connection.send(
      `POST ${path} HTTP/1.1\r\nHost: x\r\nContent-Type: ${contentType}\r\nContent-Length: 2\r\nExpect: 100-Continue\r\n\r\n`,
    );
    const [answer] = await connection.receive();
    expect([answer?.status, JSON.parse(answer?.body ?? '')]).toEqual([417, { error: 'Expectation failed' }]);
    expect(answer?.headers.get('connection')).toBe('close');
    await expect.poll(() => connection.closed).toBe(true);
  });

  it('429 over the limit, also for what would be 400', async () => {
    const limited = await newProject({ rateLimit: 1 });
    const before = await outcomes('rate_limited');
    expect((await sendTo(limited)).status).toBe(200);
    for (const body of ['{"n":1}', 'no JSON']) {
      const answer = await sendTo(limited, body);
      expect(headersOf(answer, 'retry-after', 'x-ratelimit-remaining', 'x-sentry-rate-limits')).toEqual([
        '60',
        '0',
        expect.stringMatching(/^\d+::project$/),
      ]);
      expect(await bodyOf(answer)).toEqual([429, { error: 'Rate limit exceeded' }]);
    }
    expect(await outcomes('rate_limited')).toBe(before + 2);
  });

  it('429 over the quota, and each counts once before', async () => {
    const used = await newProject({ quota: 2 });
    for (const position of ['1/2', '2/2'])
      expect(headersOf(await sendTo(used), 'x-service-usage')).toEqual([position]);
    const answer = await sendTo(used);
    expect(headersOf(answer, 'retry-after', 'x-sentry-rate-limits', 'x-service-usage')).toEqual([
      '600',
      '600::project',
      '2/2',
    ]);
    expect(await bodyOf(answer)).toEqual([429, { error: 'quota_exceeded' }]);
  });

  it('429 over the limit of errors at the endpoint of events alone', async () => {
    const limited = await newProject({ rateLimits: { errors: 1 } });
    expect((await sendTo(limited)).status).toBe(200);
    const answer = await sendTo(limited);
    expect([answer.status, ...headersOf(answer, 'x-sentry-rate-limits')]).toEqual(
      door === 'store/' ? [429, expect.stringMatching(/^\d+:error:project/)] : [200, null],
    );
  });

  it('200 where a filter takes it, which counts nothing', async () => {
    const strict = await newProject({
      allowedOrigins: ['https://good.example'],
      filters: ['localhost', 'browser-extension', 'crawler'],
    });
    const [origin, bot] = ['https://good.example', 'Mozilla/5.0 (compatible; Googlebot/2.1)'];
    const frames =
      '{"exception":{"values":[{"value":"x","stacktrace":{"frames":[{"filename":"chrome-extension://a/b.js"}]}}]}}';
    const filtered: [filter: string, body: string, headers: Record<string, string>][] = [
      ['origin', '{"n":1}', { origin: 'https://bad.example' }],
    ];
    // The other filters look at events.
    if (door === 'store/')
      filtered.push(
        ['crawler', '{"n":1}', { origin, 'user-agent': bot }],
        ['localhost', '{"request":{"url":"http://localhost/"}}', { origin }],
        ['browser-extension', frames, { origin }],
      );
    for (const [filter, body, headers] of filtered) {
      const answer = await sendTo(strict, body, headers);
      expect([answer.status, ...headersOf(answer, 'x-service-filtered', 'x-service-usage')]).toEqual([
        200,
        filter,
        null,
      ]);
    }
    const headers = { origin, ...(door === 'security/' && { 'user-agent': bot }) };
    const answer = await sendTo(strict, '{"n":1}', headers);
    expect(headersOf(answer, 'x-service-filtered', 'x-service-usage')).toEqual([null, '1/unlimited']);
  });
});

describe('an event without an envelope', () => {
  it.each(['store', 'store/', '/store//'])('to %s is stored under its id', async (door) => {
    const id = eventId();
    const payload = { event_id: id, message: 'größe', extra: { big: 1e300 } };
    const client = { 'x-sentry-auth': 'Sentry sentry_version=7, sentry_client=raven/6.9, sentry_key=x' };
    expect(await idOf(await post(door, JSON.stringify(payload), client))).toBe(id);
    expect(await system.storedOf(id)).toMatchObject([
      { project_id: project.id, type: 'event', item_index: 0, item_header: { type: 'event' }, payload },
    ]);
  });

  it.each([
    ['gzip', gzipSync],
    ['deflate', deflateSync],
  ])('in %s is stored', async (encoding, pack) => {
    const id = eventId();
    const sent = await post('store/', pack(`{"event_id":"${id}"}`), { 'content-encoding': encoding });
    expect(await idOf(sent)).toBe(id);
    expect(await system.storedOf(id)).toHaveLength(1);
  });

  it('in base64 of a zlib stream is stored', async () => {
    const id = eventId();
    const text = deflateSync(`{"event_id":"${id}","message":"raven"}`).toString('base64');
    const sent = await post('store/', text, { 'content-type': 'application/octet-stream' });
    expect(await idOf(sent)).toBe(id);
    expect(await system.storedOf(id)).toMatchObject([{ payload: { message: 'raven' } }]);
  });

  it('of 4 MiB, whose id is its last member, is stored whole', async () => {
    const [id, text] = [eventId(), 'x'.repeat(4 * MIB)];
    expect(await idOf(await post('store/', `{"message":"${text}","event_id":"${id}"}`))).toBe(id);
    const [record] = await system.storedOf(id);
    expect(record?.payload.message).toBe(text);
  });

  it('without an id gets one, and a resend of one with an id is stored once', async () => {
    const minted = await idOf(await post('store/', '{"message":"no id"}'));
    expect(await system.storedOf(minted)).toHaveLength(1);
    const id = eventId();
    for (const text of ['first', 'again'])
      await idOf(await post('store/', `{"event_id":"${id}","message":"${text}"}`));
    const last = await idOf(await post('store/', '{}'));
    await system.storedOf(last);
    expect(await system.storedOf(id)).toMatchObject([{ payload: { message: 'first' } }]);
  });

  it.each([
    ['', 'the body is empty'],
    ['not json', 'the body is no JSON object'],
    ['[]', 'the body is no JSON object'],
    ['{"a":1', 'the body is no JSON object'],
  ])('is 400 where it is %j', async (body, reason) => {
    const answer = await post('store/', body);
    expect([answer.status, answer.headers.get('x-sentry-error')]).toEqual([400, reason]);
  });
});

describe('reports of browsers', () => {
  const type = 'application/reports+json';

  it('in a list are stored, an item each', async () => {
    const reports = [{ type: 'csp-violation', body: { blockedURL: 'inline' } }, { type: 'deprecation' }];
    const sent = await post(
      'security/',
      JSON.stringify(reports),
      { 'content-type': type },
      '&sentry_release=a',
    );
    const stored = await system.storedOf(await idOf(sent), 2);
    const item_header = { type: 'raw_security', content_type: type, sentry_release: 'a' };
    expect(stored.sort((a, b) => a.item_index - b.item_index)).toMatchObject(
      reports.map((payload, item_index) => ({ type: 'raw_security', item_index, item_header, payload })),
    );
  });

  it('are refused where they are too large, of another type, or nobody knows the key', async () => {
    const large = `{"a":"${'x'.repeat(64 * 1024)}"}`;
    expect((await post('security/', large, { 'content-type': type })).status).toBe(413);
    const packed = { 'content-type': type, 'content-encoding': 'gzip' };
    expect((await post('security/', gzipSync(large), packed)).status).toBe(413);
    expect((await post('security/', '{}', { 'content-type': 'text/plain' })).status).toBe(415);
    const stranger = `${system.url}/api/${project.id}/security/?sentry_key=x`;
    expect((await fetch(stranger, { method: 'POST', body: '{}' })).status).toBe(401);
  });

  it('of the Reporting API are allowed by the preflight that browsers send before', async () => {
    const headers = {
      'access-control-request-method': 'POST',
      'access-control-request-headers': 'content-type',
      origin: 'https://shop.example',
    };
    const answer = await fetch(urlOf('security/'), { method: 'OPTIONS', headers });
    expect([answer.status, answer.headers.get('access-control-allow-headers')]).toEqual([
      204,
      'content-type',
    ]);
  });

  it('that Chromium sends by itself are stored', async () => {
    const policy = `default-src 'none'; report-uri ${urlOf('security/', '&sentry_environment=test')}`;
    const site = createServer((_req, res) =>
      res
        .writeHead(200, { 'content-type': 'text/html', 'content-security-policy': policy })
        .end('<script>blocked()</script>'),
    );
    await new Promise<void>((resolve) => site.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${(site.address() as AddressInfo).port}/`;
    const browser = await openBrowser();
    try {
      await (await browser.newPage()).goto(url);
      const found = () => system.stored().filter(({ payload }) => 'csp-report' in payload);
      await expect.poll(() => found().length).toBeGreaterThan(0);
      expect(found()[0]).toMatchObject({
        type: 'raw_security',
        item_header: { content_type: 'application/csp-report', sentry_environment: 'test' },
        payload: { 'csp-report': { 'document-uri': url, 'blocked-uri': 'inline' } },
      });
    } finally {
      await browser.close();
      site.close();
    }
  });
});
