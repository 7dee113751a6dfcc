/** Bad input of every kind gets its clear error, as an answer and never as a reset. Raw sockets throughout. */
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { RawConnection, rawRequest } from '../support/raw-http.ts';
import { MIB, type Project, System, until } from '../support/system.ts';

const INVALID = [400, { error: 'Invalid envelope format' }] as const;
const TOO_LARGE = [413, { error: 'Payload too large' }] as const;
let system: System;
let project: Project;
let path: string;

beforeAll(async () => {
  system = await System.start();
  project = await system.createProject();
  path = `/api/${project.id}/envelope/?compat_key=${project.key}`;
});
afterAll(async () => {
  expect(system.ingest.errors).toEqual([]);
  await system.stop();
});

function message(body: string | Uint8Array, headers: readonly string[] = []): Buffer {
  const bytes = Buffer.from(body);
  const head = [`POST ${path} HTTP/1.1`, 'Host: sluice', `Content-Length: ${bytes.length}`, ...headers].join(
    '\r\n',
  );
  return Buffer.concat([Buffer.from(`${head}\r\n\r\n`), bytes]);
}

async function answerTo(
  body: string | Uint8Array,
  headers: readonly string[] = [],
): Promise<[number, unknown]> {
  const { status, body: text } = await rawRequest(system.port, message(body, headers));
  return [status, JSON.parse(text)];
}

describe('400 Invalid envelope format', () => {
  const id = eventId();
  it.each([
    ['an empty body', ''],
    ['a broken JSON header', '{"event_id":\n{"type":"event"}\n{}'],
    ['a header that is no object', '"x"\n{"type":"event"}\n{}'],
    ['a header line over 16 KiB', `{"x":"${'y'.repeat(16 * 1024)}"}\n`],
    ['an item header without a type', '{}\n{"length":2}\n{}'],
    ['an item header line over 16 KiB', `{}\n{"type":"event","x":"${'y'.repeat(16 * 1024)}"}\n{}`],
    ['a length that is too short', '{}\n{"type":"event","length":1}\n{}'],
    ['a length beyond the end', '{}\n{"type":"event","length":3}\n{}'],
    ['a negative length', '{}\n{"type":"event","length":-1}\n{}'],
    ['a fractional length', '{}\n{"type":"event","length":1.5}\n{}'],
    ['1,001 items', `{}${'\n{"type":"session"}\n{}'.repeat(1_001)}`],
    [
      'item headers of over 256 KiB together',
      `{}${`\n{"type":"session","x":"${'h'.repeat(16_000)}"}\n{}`.repeat(17)}`,
    ],
    ['an id of the wrong shape', '{"event_id":"123"}\n{"type":"event"}\n{}'],
    ['an id that is no string', '{"event_id":5}\n{"type":"event"}\n{}'],
  ])('%s', async (_name, body) => {
    expect(await answerTo(body)).toEqual(INVALID);
  });

  it('an unknown encoding, a corrupt and a truncated gzip', async () => {
    const good = gzipSync(errorEvent(id));
    const corrupt = Buffer.from(good);
    corrupt[20] = (corrupt[20] as number) ^ 0xff;
    expect(await answerTo(good, ['Content-Encoding: gzip'])).toEqual([200, { id }]);
    expect(await answerTo(good, ['Content-Encoding: lzma'])).toEqual(INVALID);
    expect(await answerTo(corrupt, ['Content-Encoding: gzip'])).toEqual(INVALID);
    expect(await answerTo(good.subarray(0, good.length - 9), ['Content-Encoding: gzip'])).toEqual(INVALID);
    expect(await answerTo('plain', ['Content-Encoding: gzip'])).toEqual(INVALID);
  });
});

describe('a message whose end cannot be trusted is refused and the connection closed', () => {
  const body = errorEvent(eventId());
  it.each([
    ['two Content-Lengths', [`Content-Length: ${body.length}`, 'Content-Length: 3']],
    ['two Content-Lengths that agree', Array(2).fill(`Content-Length: ${body.length}`)],
    ['a Content-Length with a zero before it', [`Content-Length: 0${body.length}`]],
    ['two hosts', [`Content-Length: ${body.length}`, 'Host: other']],
    ['a Content-Length that is no number', ['Content-Length: 0x10']],
    ['a Content-Length and chunks', [`Content-Length: ${body.length}`, 'Transfer-Encoding: chunked']],
    ['an unknown transfer encoding', ['Transfer-Encoding: gzip, chunked']],
    ['headers over 16 KiB', [`Content-Length: ${body.length}`, `X-Big: ${'x'.repeat(17 * 1024)}`]],
  ])('%s', async (_name, headers) => {
    const connection = await RawConnection.open(system.port);
    connection.send(`POST ${path} HTTP/1.1\r\nHost: sluice\r\n${headers.join('\r\n')}\r\n\r\n${body}`);
    const [answer] = await connection.receive();
    expect([400, 431]).toContain(answer?.status);
    await expect.poll(() => connection.closed).toBe(true);
    expect(connection.answers).toHaveLength(1);
  });
});

it('each request is in the durations, also one that is refused at its head', async () => {
  const page = await system.metrics();
  const figures = [...page.matchAll(/^sluice_requests_total\{[^}]*\} (\d+)$/gm)];
  const sum = figures.reduce((all, [, figure]) => all + Number(figure), 0);
  expect(sum).toBeGreaterThan(10);
  expect(page).toContain(`\nsluice_request_duration_seconds_count ${sum}\n`);
});

describe('413 arrives as an answer', () => {
  const big = `{}\n{"type":"event"}\n"${'x'.repeat(6 * MIB)}"`;

  /** The next request is sent after the answer: one that comes before it closes the connection. */
  async function goesOnAfterRefusal(connection: RawConnection): Promise<void> {
    const [refused] = await connection.receive();
    expect([refused?.status, JSON.parse(refused?.body ?? '')]).toEqual(TOO_LARGE);
    connection.send(message(errorEvent(eventId())));
    const [, accepted] = await connection.receive(2);
    expect(accepted?.status).toBe(200);
    connection.close();
  }

  it('with Content-Length, and the connection goes on', async () => {
    const connection = await RawConnection.open(system.port);
    connection.send(message(big));
    await goesOnAfterRefusal(connection);
  });

  it('with chunks, and the connection goes on', async () => {
    const connection = await RawConnection.open(system.port);
    connection.send(`POST ${path} HTTP/1.1\r\nHost: sluice\r\nTransfer-Encoding: chunked\r\n\r\n`);
    for (let at = 0; at < big.length; at += 65_536) {
      const piece = big.slice(at, at + 65_536);
      connection.send(`${piece.length.toString(16)}\r\n${piece}\r\n`);
    }
    connection.send('0\r\n\r\n');
    await goesOnAfterRefusal(connection);
  });

  it('for a small body that inflates beyond 20 MiB', async () => {
    const bomb = gzipSync(`{}\n{"type":"event"}\n"${'0'.repeat(21 * MIB)}"`);
    // A machine that is too busy to inflate it within a second says so first.
    let answer: [number, unknown] = [503, undefined];
    await until(async () => {
      answer = await answerTo(bomb, ['Content-Encoding: gzip']);
      return answer[0] !== 503;
    });
    expect(answer).toEqual(TOO_LARGE);
  });

  it('for 401 with a large body too', async () => {
    const saved = path;
    path = `/api/${project.id}/envelope/`;
    expect(await answerTo(big)).toEqual([401, { error: 'Missing authentication' }]);
    path = saved;
  });
});

describe('connections', () => {
  it('a truncated body is no request: the client is gone, nothing is stored', async () => {
    const id = eventId();
    const connection = await RawConnection.open(system.port);
    const bytes = message(errorEvent(id));
    connection.send(bytes.subarray(0, bytes.length - 5));
    await expect.poll(() => system.metric('sluice_inflight_requests')).toBe(1);
    connection.close();
    await expect
      .poll(() => system.metric('sluice_requests_total', '{endpoint="ingest",outcome="aborted"}'))
      .toBe(1);
    expect(system.stored().filter((record) => record.event_id === id)).toEqual([]);
  });

  it('a body that comes one byte at a time is an ordinary body', async () => {
    const id = eventId();
    const connection = await RawConnection.open(system.port);
    connection.socket.setNoDelay(true);
    const bytes = message(errorEvent(id));
    const body = bytes.indexOf('\r\n\r\n') + 4;
    connection.send(bytes.subarray(0, body));
    for (const byte of bytes.subarray(body)) {
      connection.send(Uint8Array.of(byte));
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(JSON.parse((await connection.receive())[0]?.body ?? '')).toEqual({ id });
    connection.close();
  });

  it.concurrent('a stalled body is cut after the grace, and counted as too slow', async ({ expect }) => {
    const connection = await RawConnection.open(system.port);
    const bytes = message(errorEvent(eventId()));
    connection.send(bytes.subarray(0, bytes.length - 5));
    await expect.poll(() => connection.closed, { interval: 200 }).toBe(true);
    expect(await system.metric('sluice_requests_total', '{endpoint="ingest",outcome="too_slow"}')).toBe(1);
  });

  it.concurrent('a slow body at 8 kB/s passes', async ({ expect }) => {
    const id = eventId();
    const connection = await RawConnection.open(system.port);
    const bytes = message(errorEvent(id, 'x'.repeat(120_000)));
    for (let at = 0; at < bytes.length; at += 2_000) {
      connection.send(bytes.subarray(at, at + 2_000));
      await new Promise((resolve) => setTimeout(resolve, 250));
    }
    expect(JSON.parse((await connection.receive())[0]?.body ?? '')).toEqual({ id });
    connection.close();
  });
});

describe('answers without a body', () => {
  it.each(['/api/1/envelope/', '/heartbeat/x'])(
    'a preflight of %s has no length, and the connection goes on',
    async (target) => {
      const connection = await RawConnection.open(system.port);
      connection.send(`OPTIONS ${target} HTTP/1.1\r\nHost: sluice\r\nOrigin: https://app.example\r\n\r\n`);
      const [preflight] = await connection.receive();
      expect(preflight?.status).toBe(204);
      expect([...(preflight?.headers.keys() ?? [])]).not.toContain('content-length');
      connection.send(message(errorEvent(eventId())));
      const [, accepted] = await connection.receive(2);
      expect(accepted?.status).toBe(200);
      connection.close();
    },
  );

  it.each([
    ['/healthz', 405],
    ['/nowhere', 404],
    ['/api/1/envelope/', 405],
  ])('HEAD %s is answered %i without a body, and the connection goes on', async (target, status) => {
    const connection = await RawConnection.open(system.port);
    connection.send(`HEAD ${target} HTTP/1.1\r\nHost: sluice\r\n\r\n`);
    expect((await connection.receive())[0]).toMatchObject({ status, body: '' });
    connection.send('GET /healthz HTTP/1.1\r\nHost: sluice\r\n\r\n');
    const [, health] = await connection.receive(2);
    expect([health?.status, health?.body]).toEqual([200, '{"status":"ok"}']);
    connection.close();
  });
});

it('a body of tiny pieces is refused after the limiter, with its headers', async () => {
  const limited = await system.createProject({ rateLimit: 100 });
  const body = Buffer.from(errorEvent(eventId(), 'x'.repeat(2_000)));
  const connection = await RawConnection.open(system.port);
  connection.send(
    `POST /api/${limited.id}/envelope/?compat_key=${limited.key} HTTP/1.1\r\nHost: sluice\r\nTransfer-Encoding: chunked\r\n\r\n`,
  );
  for (const byte of body) connection.send(Buffer.from([0x31, 0x0d, 0x0a, byte, 0x0d, 0x0a]));
  connection.send('0\r\n\r\n');
  const [answer] = await connection.receive();
  expect([answer?.status, JSON.parse(answer?.body ?? '')]).toEqual(INVALID);
  expect(answer?.headers.get('x-ratelimit-remaining')).toBe('99');
  connection.close();
});

describe('every header of an answer, byte for byte on the wire', () => {
  const CORS = ['access-control-allow-origin', 'access-control-expose-headers', 'content-type'];
  const ask = async (target: Project, body: string): Promise<[number, string, Record<string, string>]> => {
    const head = `POST /api/${target.id}/envelope HTTP/1.1\r\nHost: x\r\nX-Service-Auth: compat_key=${target.key}\r\n`;
    const bytes = `${head}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
    const answer = await rawRequest(system.port, bytes);
    return [answer.status, answer.body, Object.fromEntries(answer.headers)];
  };
  /** Names of an answer's own headers: what uWebSockets.js adds to every answer is left out. */
  const names = (headers: Record<string, string>): string[] =>
    Object.keys(headers)
      .filter((name) => !['date', 'uwebsockets', 'content-length', ...CORS].includes(name))
      .sort();

  it('200, 429 quota_exceeded and 429 Rate limit exceeded', async () => {
    const target = await system.createProject({ rateLimit: 2, quota: 1 });
    const [ok, okBody, okHeaders] = await ask(target, errorEvent('a'.repeat(32)));
    expect([ok, okBody]).toEqual([200, `{"id":"${'a'.repeat(32)}"}`]);
    const usage = ['x-service-quota-warning', 'x-service-usage', 'x-service-usage-percent'];
    const rate = ['x-ratelimit-remaining', 'x-ratelimit-reset'];
    expect(names(okHeaders)).toEqual([...rate, ...usage]);
    expect([okHeaders['x-ratelimit-remaining'], okHeaders['x-service-usage']]).toEqual(['1', '1/1']);
    for (const name of CORS) expect(okHeaders[name]).toBeDefined();
    const [over, overBody, overHeaders] = await ask(target, errorEvent(eventId()));
    expect([over, overBody]).toEqual([429, '{"error":"quota_exceeded"}']);
    expect(names(overHeaders)).toEqual(['retry-after', ...rate, 'x-sentry-rate-limits', ...usage]);
    const quotaHints = [overHeaders['retry-after'], overHeaders['x-sentry-rate-limits']];
    expect(quotaHints).toEqual(['600', '600::project']);
    const [limited, limitedBody, limitedHeaders] = await ask(target, errorEvent(eventId()));
    expect([limited, limitedBody]).toEqual([429, '{"error":"Rate limit exceeded"}']);
    expect(names(limitedHeaders)).toEqual(['retry-after', ...rate, 'x-sentry-rate-limits']);
    expect([limitedHeaders['x-ratelimit-remaining'], limitedHeaders['retry-after']]).toEqual(['0', '60']);
  });

  it('401, both', async () => {
    const [wrong, wrongBody, wrongHeaders] = await ask({ ...project, key: 'wrong' }, '{}');
    expect([wrong, wrongBody, names(wrongHeaders)]).toEqual([401, '{"error":"Invalid project or key"}', []]);
    const [none, noneBody, noneHeaders] = await ask({ ...project, key: '' }, '{}');
    expect([none, noneBody, names(noneHeaders)]).toEqual([401, '{"error":"Missing authentication"}', []]);
  });
});
