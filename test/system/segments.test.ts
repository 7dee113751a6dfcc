/** A head of up to 16 KiB is accepted however it is cut into segments. Raw sockets throughout. */
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { RawConnection } from '../support/raw-http.ts';
import { type Project, System } from '../support/system.ts';

const KIB = 1024;
/** Long enough for the worker to read a segment by itself; where it reads two at once, the case is only easier. */
const BETWEEN_MS = 15;
let system: System;
let project: Project;

beforeAll(async () => {
  system = await System.start();
  project = await system.createProject();
});
afterAll(async () => {
  expect(system.ingest.errors).toEqual([]);
  await system.stop();
});

/** A head of exactly so many bytes, of headers of at most 1 KiB and the key. */
function headOf(bytes: number, bodyBytes: number): string {
  const auth = `X-Sentry-Auth: Sentry sentry_version=7, sentry_key=${project.key}\r\n`;
  const start = `POST /api/${project.id}/envelope/ HTTP/1.1\r\nHost: sluice\r\nContent-Length: ${bodyBytes}\r\n${auth}`;
  let head = start;
  for (let left = bytes - start.length - 2; left > 0; left = bytes - head.length - 2) {
    const line = left > 1_100 ? 1_000 : left;
    head += `X-Fill-${'n'.repeat(4)}: ${'v'.repeat(line - 15)}\r\n`;
  }
  return `${head}\r\n`;
}

/** Sends `bytes` cut at `cuts`, each piece as a segment of its own. */
async function sendCut(bytes: string, cuts: readonly number[]): Promise<RawConnection> {
  const connection = await RawConnection.open(system.port);
  connection.socket.setNoDelay(true);
  let from = 0;
  for (const to of [...cuts, bytes.length]) {
    if (connection.closed) break;
    connection.send(bytes.slice(from, to));
    from = to;
    await sleep(BETWEEN_MS);
  }
  return connection;
}

async function accepts(headBytes: number, cutsOf: (head: string, whole: string) => number[]): Promise<void> {
  const id = eventId();
  const body = errorEvent(id);
  const head = headOf(headBytes, body.length);
  expect(head.length).toBe(headBytes);
  const whole = head + body;
  const connection = await sendCut(whole, cutsOf(head, whole));
  const [answer] = await connection.receive();
  expect([answer?.status, answer?.body]).toEqual([200, `{"id":"${id}"}`]);
  connection.close();
}

const SIZES = [1, 3.9, 4.1, 8, 12, 15.9].map((size) => Math.floor(size * KIB));
const requestLine = (head: string): number => head.indexOf('\r\n') + 2;
const middle = (head: string): number => head.lastIndexOf('X-Fill', head.length / 2 + 300);

/** Where a head is cut in two. */
const CUTS: readonly (readonly [string, (head: string, whole: string) => number[]])[] = [
  ['nowhere', () => []],
  ['behind the request line', (head) => [requestLine(head)]],
  ['a byte behind the request line', (head) => [requestLine(head) + 1]],
  ['in the first name', (head) => [requestLine(head) + 3]],
  ['in a name', (head) => [middle(head) + 4]],
  ['behind a name', (head) => [middle(head) + 11]],
  ['behind a colon', (head) => [middle(head) + 12]],
  ['in a value', (head) => [middle(head) + 40]],
  ['before a line break', (head) => [head.indexOf('\r\n', middle(head))]],
  ['in a line break', (head) => [head.indexOf('\r\n', middle(head)) + 1]],
  ['behind a line break', (head) => [head.indexOf('\r\n', middle(head)) + 2]],
  ['before the empty line', (head) => [head.length - 2]],
  ['in the empty line', (head) => [head.length - 1]],
  ['before the line break that the empty line follows', (head) => [head.length - 4]],
  ['in the line break that the empty line follows', (head) => [head.length - 3]],
  ['behind the head', (head) => [head.length]],
  ['in the body', (head) => [head.length + 10]],
  ['in the head and in the body', (head) => [head.length - 20, head.length + 10]],
  ['at 4 KiB less one', (head) => [Math.min(4_095, head.length)]],
  ['at 4 KiB', (head) => [Math.min(4_096, head.length)]],
  ['at 4 KiB and one', (head) => [Math.min(4_097, head.length)]],
  [
    'every 1,000 bytes',
    (_, whole) => Array.from({ length: whole.length / 1_000 }, (_x, n) => (n + 1) * 1_000),
  ],
];

describe.each(SIZES)('a head of %i bytes', (bytes) => {
  it.each(CUTS)('is accepted when it is cut %s', (_name, cutsOf) => accepts(bytes, cutsOf));
});

it.each(SIZES)('a head of %i bytes is accepted byte after byte from its second line on', async (bytes) => {
  const id = eventId();
  const body = errorEvent(id);
  const head = headOf(bytes, body.length);
  const connection = await RawConnection.open(system.port);
  connection.socket.setNoDelay(true);
  connection.send(head.slice(0, requestLine(head)));
  for (const byte of head.slice(requestLine(head))) {
    connection.send(byte);
    await nextTurn();
  }
  connection.send(body);
  expect((await connection.receive())[0]?.body).toBe(`{"id":"${id}"}`);
  connection.close();
});

describe.each([
  ['16.1 KiB', Math.floor(16.1 * KIB)],
  ['17 KiB', 17 * KIB],
  ['33 KiB', 33 * KIB],
])('a head of %s', (_size, bytes) => {
  const over = CUTS.filter(([name]) => !name.includes('body'));
  it.each(over)('is refused, and nothing of it is stored, when it is cut %s', async (_name, cutsOf) => {
    const id = eventId();
    const body = errorEvent(id);
    const head = headOf(bytes, body.length);
    const connection = await sendCut(head + body, cutsOf(head, head + body));
    await expect.poll(() => connection.closed).toBe(true);
    expect(connection.text).toMatch(/^HTTP\/1\.1 (400|431) .*\r\nconnection: close\r\n/is);
    expect(connection.text.match(/^HTTP\/1\.1/gm)).toHaveLength(1);
    expect(system.stored().filter((record) => record.event_id === id)).toEqual([]);
  });
});

describe('a message whose length is 0', () => {
  const CUT_IN = ['Host', 'Length', ' 0', '0\r\n', '\r\n\r\n', '\n\r\n', '\r\n'];

  it.each(CUT_IN)(
    'is answered when its head is cut before the last %j, and so is the next on its connection',
    async (text) => {
      const token = await system.createHeartbeat();
      const ping = `POST /heartbeat/${token} HTTP/1.1\r\nHost: sluice\r\nContent-Length: 0\r\n\r\n`;
      const envelope = `POST /api/${project.id}/envelope/?compat_key=${project.key} HTTP/1.1\r\nContent-Length: 0\r\nHost: sluice\r\n\r\n`;
      for (const [message, status] of [
        [ping, 200],
        [envelope, 400],
        [ping.replace('POST', 'PUT'), 405],
      ] as const) {
        const connection = await sendCut(message, [message.lastIndexOf(text)]);
        expect((await connection.receive())[0]?.status).toBe(status);
        connection.send(ping);
        const [, second] = await connection.receive(2);
        expect([200, 429]).toContain(second?.status);
        connection.close();
      }
    },
  );
});

it.each([3, 10, 40])('a request line that is cut at byte %i is accepted, or refused at once', async (at) => {
  const id = eventId();
  const body = errorEvent(id);
  const connection = await sendCut(headOf(1_000, body.length) + body, [at]);
  const [answer] = await connection.receive(1, 2_000);
  expect([200, 505]).toContain(answer?.status); // README lists the second
  connection.close();
});
