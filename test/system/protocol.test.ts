/** The paragraphs of docs/protocol.md that no other test is about: a client learns why nothing was stored. */
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { RawConnection, rawRequest } from '../support/raw-http.ts';
import { MIB, type Project, System } from '../support/system.ts';

let system: System;
let project: Project;
let token: string;
beforeAll(async () => {
  system = await System.start({ env: { SLUICE_LOG_LEVEL: 'silent' } });
  project = await system.createProject({ quota: 1_000 });
  token = await system.createHeartbeat();
});
afterAll(() => system?.stop());

const ITEM = '{}\n{"type":"event"}\n';
const KEY = (): string => `?sentry_key=${project.key}`;
const reasonOf = ({ headers }: Response): string | null => headers.get('x-sentry-error');
const refused = (reason: string): Promise<number> =>
  system.metric('sluice_refused_bodies_total', `{reason="${reason}"}`);
const head = (path: string, ...lines: string[]): string =>
  [`POST ${path} HTTP/1.1`, 'Host: x', ...lines, '', ''].join('\r\n');

describe('a body that is refused', () => {
  it.each<[why: string, status: number, body: string | Uint8Array, headers?: Record<string, string>]>([
    ['the body is empty', 400, ''],
    [
      'the envelope header is no JSON object',
      400,
      '{\n  "message": "an event, printed over several lines"\n}',
    ],
    ['an item header has no type', 400, '{}\n{"message":"x"}'],
    ['the event_id is neither 32 hex digits nor a dashed UUID', 400, '{"event_id":"1"}'],
    ['the content encoding is unknown', 400, '{}', { 'content-encoding': 'compress' }],
    ['the compressed body is corrupt', 400, 'no gzip', { 'content-encoding': 'gzip' }],
    [`the body exceeds ${5 * MIB} bytes`, 413, 'x'.repeat(5 * MIB + 1)],
    [
      `the body inflates to over ${20 * MIB} bytes`,
      413,
      gzipSync(`${ITEM}${'y'.repeat(21 * MIB)}`),
      { 'content-encoding': 'gzip' },
    ],
  ])('says that %s, with %i', async (why, status, body, headers) => {
    const before = await refused(why);
    let answer = await system.send(project, body, headers);
    // A machine that is too busy to inflate it within a second says so first.
    while (answer.status === 503) answer = await system.send(project, body, headers);
    expect([answer.status, reasonOf(answer)]).toEqual([status, why]);
    expect(answer.headers.get('access-control-expose-headers')).toContain('X-Sentry-Error');
    await expect.poll(() => refused(why)).toBe(before + 1);
  });

  it('says so of chunks, of a heartbeat and of a head', async () => {
    const body = new Blob([ITEM, 'z'.repeat(5 * MIB)]).stream();
    const chunked = { method: 'POST', body, duplex: 'half' } as RequestInit;
    const large = await fetch(system.endpoint(project), chunked);
    expect([large.status, reasonOf(large)]).toEqual([413, `the body exceeds ${5 * MIB} bytes`]);
    const url = `${system.url}/heartbeat/${token}`;
    const ping = await fetch(url, { method: 'POST', body: 'x'.repeat(10 * 1024 + 1) });
    expect([ping.status, reasonOf(ping)]).toEqual([413, 'the body exceeds 10240 bytes']);
    const odd = await rawRequest(
      system.port,
      head(`/api/1/envelope/`, 'Content-Length: 1', 'Content-Length: 1'),
    );
    expect([odd.status, odd.headers.get('x-sentry-error')]).toEqual([
      400,
      'the Content-Length is not one number',
    ]);
    const zeros = await rawRequest(system.port, `${head(`/api/1/envelope/`, 'Content-Length: 02')}{}`);
    expect([zeros.status, zeros.headers.get('x-sentry-error')]).toEqual([
      400,
      'the Content-Length is not one number',
    ]);
    const hosts = await rawRequest(
      system.port,
      `${head(`/api/1/envelope/`, 'Host: another.example', 'Content-Length: 2')}{}`,
    );
    // On Node 24 uWebSockets.js refuses such a head by itself, with an answer that has no type.
    const isOfLibrary = !hosts.headers.has('content-type');
    const reason = isOfLibrary ? undefined : 'there is more than one Host';
    expect([hosts.status, hosts.headers.get('x-sentry-error')]).toEqual([400, reason]);
  });

  it('says nothing where the limit or the key refuses first', async () => {
    const limited = await system.createProject({ rateLimit: 1 });
    await system.send(limited, 'no envelope');
    const late = await system.send(limited, 'no envelope');
    expect([late.status, reasonOf(late)]).toEqual([429, null]);
    const stranger = await fetch(`${system.url}/api/1/envelope/?sentry_key=x`, { method: 'POST', body: 'x' });
    expect([stranger.status, reasonOf(stranger)]).toEqual([401, null]);
  });
});

describe('a 200 that stores nothing', () => {
  const emptiness = ({ headers, status }: Response): unknown => [status, headers.get('x-service-empty')];

  it('says that there was no item: a plain event is the header of an empty envelope', async () => {
    const answer = await system.send(project, '{"message":"an event on one line","level":"error"}');
    expect(emptiness(answer)).toEqual([200, 'no-items']);
    expect(answer.headers.get('access-control-expose-headers')).toContain('X-Service-Empty');
  });

  it('says that no item was of a type that is stored', async () => {
    expect(emptiness(await system.send(project, '{}\n{"type":"session"}\n{}'))).toEqual([
      200,
      'unstored-types',
    ]);
  });

  it('says neither when something was stored or a filter took it', async () => {
    const beside = '{}\n{"type":"event"}\n{}\n{"type":"session"}\n{}';
    expect(emptiness(await system.send(project, beside))).toEqual([200, null]);
    const filtering = await system.createProject({ filters: ['localhost'] });
    const local = '{}\n{"type":"event"}\n{"request":{"url":"http://localhost/"}}';
    expect(emptiness(await system.send(filtering, local))).toEqual([200, null]);
  });
});

describe('a path with doubled slashes', () => {
  it.each(['//api/ID/envelope/', '/api//ID///envelope', '//api/ID/envelope//'])(
    '%s takes envelopes as with single ones',
    async (path) => {
      const id = eventId();
      const url = `${system.url}${path.replace('ID', project.id)}${KEY()}`;
      const answer = await fetch(url, { method: 'POST', body: errorEvent(id) });
      expect([answer.status, await answer.json()]).toEqual([200, { id }]);
      expect((await system.storedOf(id))[0]?.project_id).toBe(project.id);
      expect((await fetch(url, { method: 'OPTIONS' })).status).toBe(204);
      const put = await fetch(url, { method: 'PUT' });
      expect([put.status, put.headers.get('allow')]).toEqual([405, 'POST, OPTIONS']);
      const wrong = await fetch(url.replace(/=.*/, '=x'), { method: 'POST', body: 'x' });
      expect(wrong.status).toBe(401);
    },
  );

  it('takes pings and shows health', async () => {
    const ping = await fetch(`${system.url}//heartbeat//${token}/`, { method: 'POST' });
    expect([ping.status, await ping.json()]).toEqual([200, { ok: true }]);
    expect((await fetch(`${system.url}//healthz`)).status).toBe(200);
    expect((await fetch(`${system.url}//readyz`)).status).toBe(200);
  });

  it('is not found where the single one is not', async () => {
    for (const path of ['//', '/api//envelope/', '//api/1/envelope/x', '/api/1//other/'])
      expect((await fetch(`${system.url}${path}`, { method: 'POST', body: 'x' })).status, path).toBe(404);
  });
});

describe('what is not served', () => {
  it.each([
    ['/api/1/minidump/', 'minidump'],
    ['/api/1/upload/', 'upload'],
    ['/api/1/unreal/key/', 'crash'],
    ['/api/1/integration/otlp/v1/metrics', 'metrics only where'],
    ['//api/1//integration/otlp/v1/profiles/', 'OTLP'],
  ])('%s is 404 and says so', async (path, word) => {
    const answer = await fetch(`${system.url}${path}`, { method: 'POST', body: 'x' });
    expect([answer.status, await answer.json()]).toEqual([404, { error: 'Not found' }]);
    expect(reasonOf(answer)).toContain(word);
  });

  it('says nothing of a path that nobody knows', async () => {
    for (const path of ['/', '/api', '/api/1', '/api/1/constructor/', '/store/'])
      expect(reasonOf(await fetch(`${system.url}${path}`, { method: 'POST' })), path).toBeNull();
  });
});

describe('Expect', () => {
  const waits = async (expectation: string, path = `/api/${project.id}/envelope/${KEY()}`) => {
    const body = errorEvent(eventId());
    const connection = await RawConnection.open(system.port);
    connection.send(head(path, `Content-Length: ${Buffer.byteLength(body)}`, `Expect: ${expectation}`));
    return { connection, body };
  };

  it('is continued in lower case', async () => {
    const { connection, body } = await waits('100-continue');
    await expect.poll(() => connection.text).toContain('100 Continue');
    connection.send(body);
    expect((await connection.receive())[0]?.status).toBe(200);
    connection.close();
  });

  it.each(['100-Continue', '100-CONTINUE', 'something-else'])(
    '%s is 417 at once, and the connection ends, so that the client sends again without it',
    async (expectation) => {
      const { connection } = await waits(expectation);
      const [answer] = await connection.receive();
      expect([answer?.status, JSON.parse(answer?.body ?? '')]).toEqual([
        417,
        { error: 'Expectation failed' },
      ]);
      expect(answer?.headers.get('connection')).toBe('close');
      expect(answer?.headers.get('x-sentry-error')).toBe('Expect must be written 100-continue');
      await expect.poll(() => connection.closed).toBe(true);
      expect(connection.error).toBeUndefined();
    },
  );

  it('is never met by silence, wherever it is sent', async () => {
    for (const [path, status] of [
      [`/heartbeat/${token}`, 417],
      ['/nowhere', 404],
      ['//api/1/envelope/', 417],
      ['/healthz', 405],
    ] as const) {
      const { connection } = await waits('100-Continue', path);
      expect((await connection.receive())[0]?.status, path).toBe(status);
      connection.close();
    }
  });
});
