/** docs/openapi.yaml and the running server say the same: every documented answer is given, and no other. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { envelope, errorEvent, eventId } from '../support/envelopes.ts';
import { freeze, thaw } from '../support/freeze.ts';
import { rawRequest } from '../support/raw-http.ts';
import { type Project, System, until } from '../support/system.ts';
import { type Answered, answered, OpenApi } from './openapi-document.ts';

const ENVELOPE = '/api/{projectId}/envelope';
const SLASHED = '/api/{projectId}/envelope/';
const STORE = '/api/{projectId}/store/';
const SECURITY = '/api/{projectId}/security/';
const OTLP = '/api/{projectId}/integration/otlp/v1/{signal}/';
const HEARTBEAT = '/heartbeat/{token}';
const MIB = 1024 * 1024;

const api = new OpenApi();
let system: System;
let open: Project;
let free: Project;
let token: string;
let calmToken: string;

beforeAll(async () => {
  // Only Free is limited here, so that a project without a limit shows what happens when its quota cannot be counted.
  system = await System.start({ env: { SLUICE_PLAN_LIMITS: 'free-only', SLUICE_LOG_LEVEL: 'silent' } });
  open = await system.createProject({ plan: 'Pro' });
  free = await system.createProject({ plan: 'Free' });
  [token, calmToken] = [await system.createHeartbeat(), await system.createHeartbeat()];
});
afterAll(() => system?.stop());

/** Sends, checks against the document, and gives the answer back for what the document cannot say. */
async function ask(
  method: string,
  path: string,
  options: RequestInit & { url?: string } = {},
): Promise<Answered> {
  const { url = path, ...init } = options;
  const answer = await answered(await fetch(`${system.url}${url}`, { method, ...init }));
  expect(api.problems(method, path, answer)).toEqual([]);
  return answer;
}
const urlOf = (project: Project, key = project.key): string =>
  `/api/${project.alias ?? project.id}/envelope?compat_key=${key}`;
/** SDKs send the slash; it is the same path item, so one answer of it stands for all. */
const slashed = (project: Project): Promise<Answered> =>
  ask('POST', SLASHED, { url: urlOf(project).replace('?', '/?'), body: errorEvent(eventId()) });
const send = (
  project: Project,
  body: string | Uint8Array,
  headers: Record<string, string> = {},
): Promise<Answered> => ask('POST', ENVELOPE, { url: urlOf(project), body, headers });
/** The path of an endpoint below that of the project. */
const doorOf = (path: string): string => path.replace('{signal}', 'traces').slice('/api/{projectId}'.length);
const post = (
  path: string,
  body: string | Uint8Array,
  type: string,
  of: Project = open,
): Promise<Answered> => {
  const url = urlOf(of).replace('/envelope', doorOf(path));
  return ask('POST', path, { url, body, headers: { 'content-type': type } });
};
const ping = (body?: string | Uint8Array, to = token): Promise<Answered> =>
  ask('POST', HEARTBEAT, { url: `/heartbeat/${to}`, ...(body !== undefined && { body }) });

it('is a document of OpenAPI 3.1 whose references all lead somewhere', () => {
  expect(api.document.openapi).toBe('3.1.0');
  expect(api.documented.length).toBeGreaterThan(25);
});

it('accepts, filters, and answers what is empty', async () => {
  const { headers, status } = await send(open, errorEvent(eventId()));
  expect([status, headers.get('x-service-usage')]).toEqual([200, '1/unlimited']);
  expect((await slashed(open)).status).toBe(200);
  const filtering = await system.createProject({ filters: ['localhost'], rateLimit: 100, quota: 4 });
  const local = envelope(eventId(), 'event', { request: { url: 'http://localhost/' } });
  expect((await send(filtering, local)).headers.get('x-service-filtered')).toBe('localhost');
  const hint = await send(filtering, envelope(eventId(), 'session', {}));
  expect(hint.headers.get('x-sentry-rate-limits')).toContain('session');
  expect(hint.headers.get('x-service-empty')).toBe('unstored-types');
  for (let position = 1; position <= 4; position++) await send(filtering, errorEvent(eventId()));
  const exceeded = await send(filtering, errorEvent(eventId()));
  expect([exceeded.status, exceeded.headers.get('x-service-quota-warning')]).toEqual([429, 'true']);
});

it("refuses what is not an envelope, too large, a stranger's, or over the limit", async () => {
  expect((await send(open, 'not json')).status).toBe(400);
  expect((await send(open, Buffer.alloc(5 * MIB + 1, 'x'))).status).toBe(413);
  expect((await ask('POST', ENVELOPE, { url: `/api/${open.id}/envelope` })).status).toBe(401);
  expect((await ask('POST', ENVELOPE, { url: urlOf(open, 'wrong') })).status).toBe(401);
  const limited = await system.createProject({ rateLimit: 1 });
  await send(limited, errorEvent(eventId()));
  const refused = await send(limited, errorEvent(eventId()));
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '60']);
});

it('takes events without an envelope, and reports of browsers', async () => {
  const event = await post(STORE, '{"message":"x"}', 'application/json');
  expect(event.headers.get('x-service-usage')).toMatch(/\/unlimited$/);
  const report = await post(SECURITY, '[{}]', 'application/reports+json');
  expect(report.headers.get('x-service-empty')).toBe('unstored-types');
  for (const path of [STORE, SECURITY]) {
    expect((await post(path, 'x', 'application/json')).status).toBe(400);
    expect((await post(path, Buffer.alloc(5 * MIB + 1, 'x'), 'application/json')).status).toBe(413);
    await askUnauthorized(path);
  }
  expect((await post(SECURITY, '{}', 'text/plain')).status).toBe(415);
});

/** Sends without a key, asks for leave as browsers do, and with a wrong method. */
async function askUnauthorized(path: string): Promise<void> {
  const url = `/api/${open.id}${doorOf(path)}`;
  expect((await ask('POST', path, { url })).status).toBe(401);
  await ask('OPTIONS', path, { url });
  await ask('PUT', path, { url });
}

const PROTOBUF = 'application/x-protobuf';
/** A request with one span, which is empty. */
const SPAN = Buffer.from([0x0a, 0x04, 0x12, 0x02, 0x12, 0x00]);
const SPAN_JSON = '{"resourceSpans":[{"scopeSpans":[{"spans":[{}]}]}]}';

it('takes OTLP, in both encodings', async () => {
  const limited = await system.createProject({ rateLimit: 2 });
  for (const [type, body] of [
    [PROTOBUF, SPAN],
    ['application/json', SPAN_JSON],
  ] as const) {
    expect((await post(OTLP, body, type)).headers.get('x-service-usage')).toMatch(/\/unlimited$/);
    expect((await post(OTLP, 'x', type)).status).toBe(400);
    expect((await post(OTLP, Buffer.alloc(5 * MIB + 1, 'x'), type)).status).toBe(413);
    await post(OTLP, body, type, limited);
    await post(OTLP, body, type, limited);
    expect((await post(OTLP, body, type, limited)).status).toBe(429);
    await askUnauthorized(OTLP);
    const url = urlOf(open).replace('/envelope', doorOf(OTLP));
    const lines = `Host: x\r\nContent-Type: ${type}\r\nContent-Length: 1\r\nExpect: 100-Continue\r\n\r\n`;
    const expecting = await rawRequest(system.port, `POST ${url} HTTP/1.1\r\n${lines}`);
    expect([expecting.status, api.problems('POST', OTLP, expecting)]).toEqual([417, []]);
  }
  expect((await post(OTLP, '{}', 'text/plain')).status).toBe(415);
});

it('answers heartbeats', async () => {
  expect((await ping()).status).toBe(200);
  expect((await ping('x'.repeat(10 * 1024 + 1))).status).toBe(413);
  expect((await ask('POST', HEARTBEAT, { url: '/heartbeat/nobody' })).status).toBe(404);
  const twice = 'Content-Length: 0\r\nContent-Length: 0\r\n';
  const dubious = await rawRequest(
    system.port,
    `POST /heartbeat/${token} HTTP/1.1\r\nHost: x\r\n${twice}\r\n`,
  );
  expect(api.problems('POST', HEARTBEAT, dubious)).toEqual([]);
  expect(dubious.status).toBe(400);
  for (const [where, url] of [
    [HEARTBEAT, `/heartbeat/${token}`],
    [ENVELOPE, urlOf(open)],
  ] as const) {
    const lines = 'Host: x\r\nContent-Length: 1\r\nExpect: 100-Continue\r\n\r\n';
    const expecting = await rawRequest(system.port, `POST ${url} HTTP/1.1\r\n${lines}`);
    expect([expecting.status, api.problems('POST', where, expecting)]).toEqual([417, []]);
  }
  const answers = await Promise.all(Array.from({ length: 12 }, () => ping()));
  expect(answers.map(({ status }) => status)).toContain(429);
});

it('answers preflights, other methods and unknown paths', async () => {
  await ask('OPTIONS', ENVELOPE, { url: `/api/${open.id}/envelope` });
  await ask('OPTIONS', HEARTBEAT, { url: `/heartbeat/${token}` });
  const names = { 'access-control-request-headers': "content-type,x-odd.~!#$%&'*+^_`|9" };
  await ask('OPTIONS', ENVELOPE, { url: `/api/${open.id}/envelope`, headers: names });
  await ask('PUT', ENVELOPE, { url: `/api/${open.id}/envelope` });
  await ask('PUT', HEARTBEAT, { url: `/heartbeat/${token}` });
  await ask('PUT', '/healthz');
  await ask('PUT', '/readyz');
  await ask('GET', '/healthz');
  await ask('GET', '/readyz');
  await ask('GET', '/{anything}', { url: '/nowhere' });
  const unserved = await ask('GET', '/{anything}', { url: '/api/1/minidump/' });
  expect(unserved.headers.get('x-sentry-error')).toContain('minidump');
});

it('fails and refuses as documented when NATS hangs or is away', async () => {
  await freeze(system.nats.pid);
  const answers = await Promise.all([
    send(open, errorEvent(eventId())),
    ping('', calmToken),
    post(OTLP, SPAN, PROTOBUF),
    post(OTLP, SPAN_JSON, 'application/json'),
  ]);
  expect(answers.map(({ status }) => status)).toEqual([500, 500, 503, 503]);
  expect(answers[3]?.body).toMatch(/^\{"code":14,"message":"Internal server error, errorId [0-9a-f]{32}"\}$/);
  thaw(system.nats.pid);
  await system.nats.stop();
  await until(async () => (await send(open, errorEvent(eventId()))).status === 503);
  expect((await ping('', calmToken)).status).toBe(503);
  await system.restartNats();
  await until(async () => (await send(open, errorEvent(eventId()))).status === 200);
});

it('fails closed as documented when Redis is away', async () => {
  await system.redis.stop();
  expect((await send(free, errorEvent(eventId()))).status).toBe(429);
  expect((await send(open, errorEvent(eventId()))).status).toBe(500);
  expect((await ping('', calmToken)).status).toBe(429);
});

it('is not ready from the start of shutdown', async () => {
  const stopped = system.ingest.stop();
  await until(async () => (await ask('GET', '/readyz')).status === 503);
  await stopped;
});

it('gives every documented answer, with and without the final slash', () => {
  // What happens before and after the body is the same wherever items are taken.
  const asEnvelopes = [STORE, SECURITY].flatMap((path) =>
    [417, 429, 500, 503].map((status) => `POST ${path} ${status}`),
  );
  const seen = new Set([
    ...[...api.seen].flatMap((where) => [where, where.replace(`${ENVELOPE} `, `${SLASHED} `)]),
    ...asEnvelopes,
  ]);
  expect(api.documented.filter((where) => !seen.has(where))).toEqual([]);
});
