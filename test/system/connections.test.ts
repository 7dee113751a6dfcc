/** When a connection ends with its answer, and whether the answer says so. Raw sockets throughout. */
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { HostileWorker } from '../../bench/hostile/worker.ts';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { RawConnection } from '../support/raw-http.ts';
import { type Project, System, until } from '../support/system.ts';

const CLOSING: readonly (readonly [string, readonly string[]])[] = [
  ['Connection: close', ['Connection: close']],
  ['Connection: Close', ['Connection: Close']],
  ['close in a list', ['Connection: TE,  CLOSE', 'TE: trailers']],
  ['close in a second header', ['Connection: TE', 'Connection: close']],
  ['close in the first of two headers', ['Connection: close', 'Connection: TE']],
  ["the Rust SDK's User-Agent", ['User-Agent: sentry.rust/0.49.0']],
  ["the Rust SDK's sentry_client", ['X-Sentry-Auth: Sentry sentry_key=x, sentry_client=sentry.rust/0.49.0']],
];

let system: System;
let project: Project;
/** One for each way to close: each token has five pings a second. */
let tokens: string[];

beforeAll(async () => {
  system = await System.start();
  project = await system.createProject();
  tokens = await Promise.all(CLOSING.map(() => system.createHeartbeat()));
});
afterAll(async () => {
  expect(system.ingest.errors).toEqual([]);
  await system.stop();
});

type Asked = { method?: string; target?: string; body?: string; headers?: readonly string[] };

const targetOf = ({ id, key }: Project): string => `/api/${id}/envelope/?compat_key=${key}`;

function message({ method = 'POST', target, body = '', headers = [] }: Asked): string {
  const path = target ?? targetOf(project);
  const lines = [`${method} ${path} HTTP/1.1`, 'Host: sluice', `Content-Length: ${body.length}`, ...headers];
  return `${lines.join('\r\n')}\r\n\r\n${body}`;
}

/** Sends one request; `said` is how often its answer says that the connection ends, `closed` whether it does. */
async function ask(asked: Asked): Promise<{ status: number; said: number; closed: boolean }> {
  const connection = await RawConnection.open(system.port);
  connection.send(message(asked));
  const [answer] = await connection.receive();
  const said = connection.text.match(/^connection: close\r$/gim)?.length ?? 0;
  // What stays open answers once more; what does not is closed by then.
  if (said === 0) {
    connection.send(message({ method: 'GET', target: '/healthz' }));
    await connection.receive(2);
  } else await until(() => connection.closed);
  const { closed, error } = connection;
  connection.close();
  expect(error).toBeUndefined();
  return { status: answer?.status ?? 0, said, closed };
}

describe.each(CLOSING)('%s ends the connection, and the answer says so once:', (_name, headers) => {
  it.each([
    [200, () => ({ body: errorEvent(eventId()) })],
    [400, () => ({ body: 'nonsense' })],
    [401, () => ({ target: '/api/1/envelope?compat_key=wrong', body: errorEvent(eventId()) })],
    [204, () => ({ method: 'OPTIONS' })],
    [405, () => ({ method: 'PUT' })],
    [405, () => ({ method: 'HEAD' })],
    [404, () => ({ target: '/nowhere' })],
    [200, () => ({ method: 'GET', target: '/healthz' })],
    [200, () => ({ target: `/heartbeat/${tokens.pop()}` })],
    [404, () => ({ target: '/heartbeat/nobody' })],
  ] as [number, () => Asked][])('%i', async (status, asked) => {
    const seen = await ask({ ...asked(), headers });
    expect(seen).toEqual({ status, said: 1, closed: true });
  });
});

it.each([
  ['no Connection header', []],
  ['keep-alive', ['Connection: keep-alive']],
  ['an empty Connection header', ['Connection:']],
  ['a list without close', ['Connection: TE, closed', 'TE: trailers']],
  ['another SDK', ['User-Agent: sentry.python/2.0', 'X-Sentry-Auth: Sentry sentry_client=sentry.python/2.0']],
])('a request with %s leaves the connection open, and its answer says nothing', async (_name, headers) => {
  const seen = await ask({ body: errorEvent(eventId()), headers });
  expect(seen).toEqual({ status: 200, said: 0, closed: false });
});

describe('what follows a request in the same packet', () => {
  const one = (id: string): string => message({ body: errorEvent(id) });
  const chunked = (id: string): string => {
    const body = errorEvent(id);
    const head = `POST ${targetOf(project)} HTTP/1.1\r\nHost: sluice`;
    return `${head}\r\nTransfer-Encoding: chunked\r\n\r\n${body.length.toString(16)}\r\n${body}\r\n0\r\n`;
  };
  const SENT: readonly (readonly [string, (id: string) => string])[] = [
    ['two more requests', (id) => one(id) + one(eventId()) + one(eventId())],
    ['bytes that are no request', (id) => `${one(id)}GARBAGE\r\n\r\n`],
    ['a trailer', (id) => `${chunked(id)}X-Sum: 1\r\n\r\n`],
  ];
  type Sent = { id: string; connection: RawConnection };
  const answers = ({ id, connection }: Sent): boolean => connection.text.includes(`{"id":"${id}"}`);
  /** In rounds, so that the worker has tokens in hand for some and none for others. */
  const ROUNDS = 20;

  it.each(SENT)('stores nothing without an answer: %s', async (_name, bytesOf) => {
    const sent: Sent[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const id = eventId();
      const connection = await RawConnection.open(system.port);
      connection.send(bytesOf(id));
      // The library of Node.js 24 waits for more of what could still become a request.
      const decided = (): boolean => connection.closed || answers({ id, connection });
      await expect.poll(decided, { interval: 5 }).toBe(true);
      sent.push({ id, connection });
    }
    const last = eventId();
    expect((await ask({ body: errorEvent(last) })).status).toBe(200);
    await system.storedOf(last);
    const stored = new Set(system.stored().map(({ event_id }) => event_id));
    const silent = sent.filter((one) => !answers(one));
    for (const { connection } of sent) connection.close();
    expect(silent.filter(({ id }) => stored.has(id))).toEqual([]);
  });

  it('costs others no call to Redis: a request is still counted by the call that asks for its token', async () => {
    const fresh = await system.createProject({ rateLimit: 100 }); // so low a limit leaves no tokens in hand
    const calls = (script: string): Promise<number> =>
      system.metric('sluice_redis_calls_total', `{script="${script}"}`);
    expect((await ask({ target: targetOf(fresh), body: errorEvent(eventId()) })).status).toBe(200);
    const before = [await calls('admit'), await calls('quota'), await calls('rateWindow')];
    expect((await ask({ target: targetOf(fresh), body: errorEvent(eventId()) })).status).toBe(200);
    const after = [await calls('admit'), await calls('quota'), await calls('rateWindow')];
    expect(after.map((count, at) => count - (before[at] ?? 0))).toEqual([1, 0, 0]);
  });
});

describe('X-Request-Id', () => {
  const answered = async (asked: Asked): Promise<string | undefined> => {
    const connection = await RawConnection.open(system.port);
    connection.send(message(asked));
    const [answer] = await connection.receive();
    connection.close();
    return answer?.headers.get('x-request-id');
  };

  it('comes back with every answer, whatever the answer is', async () => {
    const headers = ['X-Request-Id: a-b.c/1'];
    expect(await answered({ body: errorEvent(eventId()), headers })).toBe('a-b.c/1');
    expect(await answered({ body: 'no envelope', headers })).toBe('a-b.c/1');
    expect(await answered({ target: '/none', headers })).toBe('a-b.c/1');
    expect(await answered({ method: 'GET', target: '/healthz', headers })).toBe('a-b.c/1');
  });

  it('does not come back when there was none, or one that is no name', async () => {
    for (const headers of [
      [],
      ['X-Request-Id: a b'],
      [`X-Request-Id: ${'a'.repeat(129)}`],
      ['X-Request-Id: \xe4'],
    ])
      expect(await answered({ body: errorEvent(eventId()), headers })).toBeUndefined();
    expect(
      await answered({ body: errorEvent(eventId()), headers: [`X-Request-Id: ${'a'.repeat(128)}`] }),
    ).toHaveLength(128);
  });
});

/** Sends a message on a connection of its own, so often, and waits for the end of each. */
async function askOnNewConnections(text: string, times: number): Promise<void> {
  let left = times;
  const client = async (): Promise<void> => {
    while (left-- > 0) {
      const socket = connect(system.port, '127.0.0.1');
      const ended = new Promise<void>((resolve, reject) =>
        socket.once('close', resolve).once('error', reject),
      );
      socket.resume().write(text);
      await ended;
    }
  };
  await Promise.all(Array.from({ length: 16 }, client));
}

it.runIf(process.platform === 'linux')(
  'a connection that was closed after its answer leaves no memory behind',
  async () => {
    const worker = new HostileWorker(system.ingest.child.pid);
    const target = '/api/1/envelope?compat_key=wrong';
    const text = message({ target, headers: ['Connection: close'] });
    await askOnNewConnections(text, 2_000);
    const before = worker.nativeBytes();
    const connections = 6_000;
    await askOnNewConnections(text, connections);
    // Two blocks that uWebSockets.js did not free took 464.
    expect((worker.nativeBytes() - before) / connections).toBeLessThan(100);
  },
);
