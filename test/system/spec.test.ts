/** Every rule of the specification's parts 4 to 8, numbered as there. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { envelope, errorEvent, eventId } from '../support/envelopes.ts';
import { RawConnection, rawRequest } from '../support/raw-http.ts';
import { MIB, type Project, System } from '../support/system.ts';

const HEX_32 = /^[0-9a-f]{32}$/;
let system: System;
let demo: Project;

beforeAll(async () => {
  system = await System.start({ workers: 2 });
  demo = await system.createProject({ quota: 100_000 });
});
afterAll(() => system.stop());

const error = async (response: Response): Promise<[number, unknown]> => [
  response.status,
  await response.json(),
];
const header = (response: Response, name: string): string | null => response.headers.get(name);

describe('4.1 Ingest envelope', () => {
  it('POST {base_url}/api/{projectId}/envelope answers 200 with one field, a 32-character id', async () => {
    const id = eventId();
    const response = await system.send(demo, errorEvent(id));
    expect([response.status, await response.json()]).toEqual([200, { id }]);
    expect(header(response, 'content-type')).toBe('application/json');
  });

  it('takes the path with and without a final slash', async () => {
    for (const slash of ['', '/']) {
      const url = `${system.url}/api/${demo.id}/envelope${slash}?compat_key=${demo.key}`;
      const response = await fetch(url, { method: 'POST', body: errorEvent(eventId()) });
      expect(response.status).toBe(200);
    }
  });

  it('takes the numeric id or the CUID of a project, and the alias of a CUID project', async () => {
    const project = await system.createProject({ id: 'clh3am8zx0000qz08u7v5h2w1' });
    expect(project.alias).toMatch(/^\d+$/);
    for (const name of [project.id, project.alias]) {
      const id = eventId();
      const url = `${system.url}/api/${name}/envelope/?compat_key=${project.key}`;
      expect((await fetch(url, { method: 'POST', body: errorEvent(id) })).status).toBe(200);
      expect((await system.storedOf(id))[0]?.project_id).toBe(project.id);
    }
  });

  it('mints an id of 32 hex when the envelope has none, and stores that one', async () => {
    const response = await system.send(demo, '{}\n{"type":"event"}\n{"message":"x"}');
    const { id } = (await response.json()) as { id: string };
    expect(id).toMatch(HEX_32);
    expect(await system.storedOf(id)).toHaveLength(1);
  });

  it('answers a dashed UUID as 32 lower-case hex', async () => {
    const response = await system.send(demo, errorEvent('12345678-ABCD-4ABC-8ABC-1234567890AB'));
    expect(await response.json()).toEqual({ id: '12345678abcd4abc8abc1234567890ab' });
  });

  it('stores every item type of part 2 and skips the others', async () => {
    const id = eventId();
    const body = [
      JSON.stringify({ event_id: id }),
      '{"type":"event"}\n{"message":"m"}',
      '{"type":"session"}\n{"sid":"1"}',
      '{"type":"log","item_count":1,"content_type":"application/vnd.sentry.items.log+json"}\n{"items":[{"body":"l"}]}',
      '{"type":"replay_event"}\n{"replay_id":"r"}',
      '{"type":"replay_recording","length":21}\n{"segment_id":0}\n[{}]',
    ].join('\n');
    expect((await system.send(demo, body)).status).toBe(200);
    const records = await system.storedOf(id, 4);
    expect(records.map(({ item_index, type }) => [item_index, type]).sort()).toEqual([
      [0, 'event'],
      [2, 'log'],
      [3, 'replay_event'],
      [4, 'replay_recording'],
    ]);
    const recording = records.find(({ type }) => type === 'replay_recording');
    expect(recording?.payload).toEqual({ segment_id: 0, recording: [{}] });
  });

  it('sends the five success headers', async () => {
    const project = await system.createProject({ plan: 'Free', quota: 4 });
    const seen: (string | null)[][] = [];
    for (let n = 0; n < 4; n++) {
      const response = await system.send(project, errorEvent(eventId()));
      const now = Date.now() / 1000;
      const names = [
        'x-service-usage',
        'x-service-usage-percent',
        'x-service-quota-warning',
        'x-ratelimit-remaining',
      ];
      seen.push(names.map((name) => header(response, name)));
      expect(Number(header(response, 'x-ratelimit-reset'))).toBeGreaterThanOrEqual(now + 58);
      expect(Number(header(response, 'x-ratelimit-reset'))).toBeLessThanOrEqual(now + 63);
    }
    expect(seen).toEqual([
      ['1/4', '25', null, '59'],
      ['2/4', '50', null, '58'],
      ['3/4', '75', null, '57'],
      ['4/4', '100', 'true', '56'],
    ]);
  });

  it('Order 1 before 2: a request that is not authenticated uses no rate token', async () => {
    const project = await system.createProject({ rateLimit: 50 });
    const before = Number(header(await system.send(project, '{}'), 'x-ratelimit-remaining'));
    for (let n = 0; n < 5; n++) await system.send({ ...project, key: 'wrong' }, errorEvent(eventId()));
    expect(Number(header(await system.send(project, '{}'), 'x-ratelimit-remaining'))).toBe(before - 1);
  });

  it('Order 2 before 3: a filtered request has used a rate token', async () => {
    const project = await system.createProject({ rateLimit: 50, allowedOrigins: ['good.example'] });
    const before = Number(header(await system.send(project, '{}'), 'x-ratelimit-remaining'));
    const response = await system.send(project, errorEvent(eventId()), { origin: 'https://evil.example' });
    expect(header(response, 'x-service-filtered')).toBe('origin');
    expect(Number(header(response, 'x-ratelimit-remaining'))).toBe(before - 1);
  });

  it('Order 3 before 4: a filtered request is answered 200 even when the quota is used up', async () => {
    const project = await system.createProject({ quota: 0, filters: ['localhost'] });
    const local = envelope(eventId(), 'event', { request: { url: 'http://localhost:3000/' } });
    const response = await system.send(project, local);
    expect([response.status, header(response, 'x-service-filtered')]).toEqual([200, 'localhost']);
    expect((await system.send(project, errorEvent(eventId()))).status).toBe(429);
  });

  it('Order 5 before 6: an answered envelope is in the sink', async () => {
    const id = eventId();
    await system.send(demo, errorEvent(id, 'kept'), {});
    const [record] = await system.storedOf(id);
    expect(record).toMatchObject({
      project_id: demo.id,
      event_id: id,
      item_index: 0,
      type: 'event',
      item_header: { type: 'event' },
      payload: { event_id: id, exception: { values: [{ type: 'Error', value: 'kept' }] } },
    });
  });

  it('Rule 1: a request rejected by the rate limit is not counted against the quota', async () => {
    const project = await system.createProject({ rateLimit: 30, quota: 1_000 });
    let accepted = 0;
    let refused = 0;
    for (let n = 0; n < 40; n++) {
      const { status } = await system.send(project, errorEvent(eventId()));
      if (status === 200) accepted++;
      else if (status === 429) refused++;
    }
    expect([accepted, refused]).toEqual([30, 10]);
    const raised = await raiseLimit(project, 40);
    expect(header(raised, 'x-service-usage')).toBe(`${accepted + 1}/1000`);
  });

  it('Rule 2: a request removed by an inbound filter is not counted against the quota and queues nothing', async () => {
    const project = await system.createProject({ quota: 1_000, filters: ['crawler'] });
    const id = eventId();
    const crawler = envelope(id, 'event', {
      request: { headers: { 'User-Agent': 'Googlebot/2.1 (+http://www.google.com/bot.html)' } },
    });
    const filtered = await system.send(project, crawler);
    expect([filtered.status, header(filtered, 'x-service-filtered'), await filtered.json()]).toEqual([
      200,
      'crawler',
      { id },
    ]);
    expect(header(filtered, 'x-service-usage')).toBeNull();
    const next = eventId();
    expect(header(await system.send(project, errorEvent(next)), 'x-service-usage')).toBe('1/1000');
    await system.storedOf(next);
    expect(system.stored().filter((record) => record.event_id === id)).toEqual([]);
  });

  it('filters browser-extension errors', async () => {
    const project = await system.createProject({ filters: ['browser-extension'] });
    const body = envelope(eventId(), 'event', {
      exception: { values: [{ value: "Can't find variable: ZiteReader" }] },
    });
    expect(header(await system.send(project, body), 'x-service-filtered')).toBe('browser-extension');
  });

  it('Rule 3: usage is counted on acceptance, not after processing', async () => {
    await system.processor?.stop();
    const project = await system.createProject({ quota: 10 });
    expect(header(await system.send(project, errorEvent(eventId())), 'x-service-usage')).toBe('1/10');
    expect(header(await system.send(project, errorEvent(eventId())), 'x-service-usage')).toBe('2/10');
    system.processor = system.startProcessor();
    await system.ready();
  });

  it('CORS: preflight and every answer are permissive, a null origin is allowed', async () => {
    const url = `${system.url}/api/${demo.id}/envelope/`;
    const ask = (names?: string): Promise<Response> =>
      fetch(url, {
        method: 'OPTIONS',
        headers: {
          origin: 'https://app.example',
          'access-control-request-method': 'POST',
          ...(names !== undefined && { 'access-control-request-headers': names }),
        },
      });
    const preflight = await ask();
    expect(preflight.status).toBe(204);
    expect(header(preflight, 'access-control-allow-origin')).toBe('*');
    expect(header(preflight, 'access-control-max-age')).toBe('86400');
    expect(header(preflight, 'vary')).toBe('Access-Control-Request-Headers');
    expect(header(preflight, 'access-control-allow-methods')).toContain('POST');
    for (const name of [
      'content-type',
      'content-encoding',
      'authorization',
      'x-service-auth',
      'x-compat-auth',
      'x-sentry-auth',
      'x-requested-with',
      'sentry-trace',
      'baggage',
      'traceparent',
      'tracestate',
    ])
      expect(header(preflight, 'access-control-allow-headers')?.toLowerCase()).toContain(name);
    const instrumented = await ask('content-type,x-anything');
    expect(header(instrumented, 'access-control-allow-headers')).toBe('content-type, x-anything');
    const accepted = await system.send(demo, errorEvent(eventId()), { origin: 'null' });
    expect([accepted.status, header(accepted, 'access-control-allow-origin')]).toEqual([200, '*']);
    const exposed = header(accepted, 'access-control-expose-headers')?.toLowerCase() ?? '';
    for (const name of [
      'x-service-usage',
      'x-service-usage-percent',
      'x-service-quota-warning',
      'x-ratelimit-remaining',
      'x-ratelimit-reset',
      'x-service-filtered',
      'retry-after',
      'x-sentry-rate-limits',
    ])
      expect(exposed.split(/,\s*/)).toContain(name);
    const refused = await fetch(url, { method: 'POST', body: '{}' });
    expect([refused.status, header(refused, 'access-control-allow-origin')]).toEqual([401, '*']);
  });
});

/** Sets a new custom limit and returns the first answer that it admits. */
async function raiseLimit(project: Project, rateLimit: number): Promise<Response> {
  await system.changeProject(project, (record) => ({ ...record, rateLimit }));
  for (let n = 0; n < 40; n++) {
    const response = await system.send(project, errorEvent(eventId()));
    if (response.status === 200) return response;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error('the raised limit never came into force');
}

describe('4.2 Heartbeat ping', () => {
  const ping = (token: string, body?: string): Promise<Response> =>
    fetch(`${system.url}/heartbeat/${token}`, { method: 'POST', body });

  it('POST {uptime_url}/{token} answers after the ping is queued, and its body is kept', async () => {
    const token = await system.createHeartbeat();
    const response = await ping(token, 'job 7 done');
    expect([response.status, await response.json()]).toEqual([200, { ok: true }]);
    await expect
      .poll(() => system.stored().filter((record) => 'token' in record && record.token === token), {
        timeout: 5_000,
      })
      .toMatchObject([{ type: 'heartbeat', token, body: 'job 7 done' }]);
  });

  it('lets exactly the first 5 of a second through', async () => {
    const token = await system.createHeartbeat();
    const answers = await Promise.all(Array.from({ length: 12 }, () => ping(token)));
    const refused = answers.filter(({ status }) => status === 429);
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(5);
    expect(refused).toHaveLength(7);
    expect(header(refused[0] as Response, 'retry-after')).toBe('1');
    expect(await refused[0]?.json()).toEqual({ error: 'Rate limit exceeded' });
    await new Promise((resolve) => setTimeout(resolve, 1_050));
    expect((await ping(token)).status).toBe(200);
  });

  it('does not know other tokens, nor bodies above 10 KiB, nor other methods', async () => {
    const token = await system.createHeartbeat();
    expect(await error(await ping('nobody'))).toEqual([404, { error: 'Unknown heartbeat token' }]);
    expect(await error(await ping(token, 'x'.repeat(10 * 1024 + 1)))).toEqual([
      413,
      { error: 'Payload too large' },
    ]);
    expect((await ping(token, 'x'.repeat(10 * 1024))).status).toBe(200);
    const get = await fetch(`${system.url}/heartbeat/${token}/`);
    expect([get.status, header(get, 'allow')]).toEqual([405, 'POST, OPTIONS']);
  });

  it('knows a body that is too long before its end', async () => {
    const token = await system.createHeartbeat();
    const tooLarge = (): Promise<number> =>
      system.metric('sluice_requests_total', '{endpoint="heartbeat",outcome="too_large"}');
    const before = await tooLarge();
    const line = await RawConnection.open(system.port);
    const length = `Host: x\r\nContent-Length: ${1024 * MIB}`;
    line.send(`POST /heartbeat/${token} HTTP/1.1\r\n${length}\r\n\r\n${'x'.repeat(10 * 1024 + 1)}`);
    await expect.poll(tooLarge, { timeout: 5_000 }).toBe(before + 1);
    line.close();
  });
});

describe('5 Authentication', () => {
  const post = (query: string, headers: Record<string, string> = {}): Promise<Response> =>
    fetch(`${system.url}/api/${demo.id}/envelope/${query}`, {
      method: 'POST',
      body: errorEvent(eventId()),
      headers,
    });

  it('takes the key from the query, x-service-auth or x-compat-auth', async () => {
    expect((await post(`?compat_key=${demo.key}`)).status).toBe(200);
    expect((await post('', { 'x-service-auth': `compat_key=${demo.key}` })).status).toBe(200);
    expect((await post('', { 'x-compat-auth': `compat_key=${demo.key}` })).status).toBe(200);
  });

  it('takes what unmodified SDKs send', async () => {
    expect((await post(`?sentry_version=7&sentry_key=${demo.key}&sentry_client=x%2F1`)).status).toBe(200);
    const value = `Sentry sentry_version=7, sentry_client=x/1, sentry_key=${demo.key}`;
    expect((await post('', { 'x-sentry-auth': value })).status).toBe(200);
    expect((await post('', { authorization: value })).status).toBe(200);
  });

  it('Rule 1: without a key 401 Missing authentication', async () => {
    for (const query of ['', '?compat_key=', '?other=1'])
      expect(await error(await post(query))).toEqual([401, { error: 'Missing authentication' }]);
    expect((await post('', { authorization: 'Bearer abc' })).status).toBe(401);
  });

  it('Rule 2: with a wrong id or key 401 Invalid project or key', async () => {
    const wrong = { error: 'Invalid project or key' };
    expect(await error(await post('?compat_key=nope'))).toEqual([401, wrong]);
    for (const id of ['999999', 'clzzzzzzzzzzzzzzzzzzzzzzz', '..', '%00', 'x'.repeat(300)]) {
      const answer = await rawRequest(
        system.port,
        `POST /api/${id}/envelope/?compat_key=${demo.key} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n`,
      );
      expect([answer.status, JSON.parse(answer.body)]).toEqual([401, wrong]);
    }
  });

  it('Rule 3, settled: the first source that is present wins', async () => {
    const good = `compat_key=${demo.key}`;
    expect((await post(`?${good}`, { 'x-service-auth': 'compat_key=bad' })).status).toBe(200);
    expect((await post('?compat_key=bad', { 'x-service-auth': good })).status).toBe(401);
    expect((await post('', { 'x-service-auth': good, 'x-compat-auth': 'compat_key=bad' })).status).toBe(200);
    expect((await post('', { 'x-service-auth': 'compat_key=bad', 'x-compat-auth': good })).status).toBe(401);
    expect((await post('?compat_key=', { 'x-service-auth': good })).status).toBe(200);
  });
});

describe('7 Errors', () => {
  it('400 Invalid envelope format', async () => {
    for (const body of [
      '',
      'not json',
      '[]',
      '{}\n{"type":"event","length":5}\n{}',
      '{}\n{}\n{}',
      '{"event_id":"short"}\n',
    ])
      expect(await error(await system.send(demo, body))).toEqual([400, { error: 'Invalid envelope format' }]);
  });

  it('413 Payload too large', async () => {
    const body = `{}\n{"type":"event"}\n"${'x'.repeat(6 * MIB)}"`;
    expect(await error(await system.send(demo, body))).toEqual([413, { error: 'Payload too large' }]);
  });

  it('429 Rate limit exceeded, with X-RateLimit-Remaining: 0 and Retry-After: 60', async () => {
    const project = await system.createProject({ rateLimit: 1 });
    expect((await system.send(project, errorEvent(eventId()))).status).toBe(200);
    const response = await system.send(project, errorEvent(eventId()));
    expect(await error(response)).toEqual([429, { error: 'Rate limit exceeded' }]);
    expect([header(response, 'x-ratelimit-remaining'), header(response, 'retry-after')]).toEqual(['0', '60']);
    expect(Number(header(response, 'x-ratelimit-reset'))).toBeGreaterThan(Date.now() / 1000);
    const [seconds, ...rest] = (header(response, 'x-sentry-rate-limits') ?? '').split(':');
    expect([rest, Number(seconds)]).toEqual([['', 'project'], expect.any(Number)]);
    const left = Number(header(response, 'x-ratelimit-reset')) - Date.now() / 1000;
    expect(Math.abs(Number(seconds) - left)).toBeLessThan(2); // a second of rounding, and the answer's way
  });

  it('429 quota_exceeded when overage is disabled; with overage the count goes on', async () => {
    const strict = await system.createProject({ quota: 1 });
    expect((await system.send(strict, errorEvent(eventId()))).status).toBe(200);
    const refused = await system.send(strict, errorEvent(eventId()));
    expect(await error(refused)).toEqual([429, { error: 'quota_exceeded' }]);
    expect(
      ['x-service-usage', 'x-service-usage-percent', 'x-service-quota-warning'].map((name) =>
        header(refused, name),
      ),
    ).toEqual(['1/1', '100', 'true']);
    expect([header(refused, 'retry-after'), header(refused, 'x-sentry-rate-limits')]).toEqual([
      '600',
      '600::project',
    ]);
    const lax = await system.createProject({ quota: 1, overage: true });
    for (const usage of ['1/1', '2/1', '3/1'])
      expect(header(await system.send(lax, errorEvent(eventId())), 'x-service-usage')).toBe(usage);
  });
});

describe('8 Limits', () => {
  it('Maximum request body: 5 MB pass, one byte more does not', async () => {
    const frame = (bytes: number): string => {
      const start = '{}\n{"type":"event"}\n"';
      return `${start}${'x'.repeat(bytes - start.length - 1)}"`;
    };
    expect((await system.send(demo, frame(5 * MIB))).status).toBe(200);
    expect((await system.send(demo, frame(5 * MIB + 1))).status).toBe(413);
  });

  it.each([
    ['Free', 60],
    ['Starter', 300],
    ['Pro', 1000],
    ['Business', 10_000],
    ['Scale', 30_000],
    ['Platform', 100_000],
  ] as const)('Plan %s has its default limit', async (plan, limit) => {
    const project = await system.createProject({ plan });
    const response = await system.send(project, '{}');
    expect(header(response, 'x-ratelimit-remaining')).toBe(`${limit - 1}`);
  });

  it('Rule 1: a custom rate limit replaces the plan default', async () => {
    const project = await system.createProject({ plan: 'Platform', rateLimit: 100 });
    expect(header(await system.send(project, '{}'), 'x-ratelimit-remaining')).toBe('99');
  });

  it('Without a quota usage is counted against "unlimited"', async () => {
    const project = await system.createProject();
    const response = await system.send(project, errorEvent(eventId()));
    expect(
      ['x-service-usage', 'x-service-usage-percent', 'x-service-quota-warning'].map((name) =>
        header(response, name),
      ),
    ).toEqual(['1/unlimited', '0', null]);
  });
});

describe('Contract part 1: other paths and methods', () => {
  it('405 with Allow, 404, healthz and readyz', async () => {
    const get = await fetch(`${system.url}/api/${demo.id}/envelope`);
    expect([get.status, header(get, 'allow'), await get.json()]).toEqual([
      405,
      'POST, OPTIONS',
      { error: 'Method not allowed' },
    ]);
    const unknown = await fetch(`${system.url}/nothing`, { method: 'POST', body: 'x' });
    expect([unknown.status, await unknown.json(), header(unknown, 'access-control-allow-origin')]).toEqual([
      404,
      { error: 'Not found' },
      '*',
    ]);
    for (const base of [system.url, system.adminUrl]) {
      expect(await (await fetch(`${base}/healthz`)).json()).toEqual({ status: 'ok' });
      expect(await (await fetch(`${base}/readyz`)).json()).toEqual({
        status: 'ready',
        checks: { redis: 'ok', nats: 'ok', registry: 'ok' },
      });
    }
  });

  it.each([
    [
      'the envelope',
      '{"sdk":{"name":"n","version":"1"}}',
      { 'x-sentry-auth': 'Sentry sentry_client=x/2' },
      'n/1',
    ],
    [
      'the key header',
      '{}',
      { 'x-sentry-auth': 'Sentry sentry_client=sentry.python/2.75.0' },
      'sentry.python/2.75.0',
    ],
    ['the User-Agent', '{}', { 'x-sentry-auth': 'Sentry sentry_version=7' }, 'agent/3'],
  ])('the sdk of a record is that of %s', async (_, begin, headers, sdk) => {
    const id = eventId();
    const header = JSON.stringify({ event_id: id, ...JSON.parse(begin) });
    const response = await fetch(`${system.url}/api/${demo.id}/envelope/`, {
      method: 'POST',
      body: `${header}\n{"type":"event"}\n{}`,
      headers: {
        'user-agent': 'agent/3 (of a test)',
        'x-sentry-auth': `${headers['x-sentry-auth']}, sentry_key=${demo.key}`,
      },
    });
    expect(response.status).toBe(200);
    expect((await system.storedOf(id))[0]?.sdk).toBe(sdk);
  });

  it('an envelope of unknown types only is answered 200, counts nothing, and hints the SDK to stop', async () => {
    const body = '{}\n{"type":"session"}\n{}\n{"type":"client_report"}\n{}\n{"type":"made_up"}\n{}';
    const response = await system.send(demo, body);
    expect([response.status, header(response, 'x-service-usage')]).toEqual([200, null]);
    expect(header(response, 'x-sentry-rate-limits')).toBe('86400:session;internal:organization:unsupported');
    const unknown = await system.send(demo, '{}\n{"type":"made_up"}\n{}');
    expect(header(unknown, 'x-sentry-rate-limits')).toBeNull();
  });
});
