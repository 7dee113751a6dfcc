/** The proxy does to the bytes what it says, and nothing else. */
import { randomBytes } from 'node:crypto';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { TcpProxy } from '../support/tcp-proxy.ts';

let echo: Server;
let proxy: TcpProxy;
let client: Socket;
let received: Buffer[];

beforeEach(async () => {
  echo = createServer((socket) => void socket.on('error', () => undefined).pipe(socket));
  await new Promise<void>((resolve) => echo.listen(0, '127.0.0.1', resolve));
  proxy = await TcpProxy.start((echo.address() as { port: number }).port);
  received = [];
  client = connect(proxy.port, '127.0.0.1').on('data', (data: Buffer) => received.push(data));
  await new Promise((resolve) => client.once('connect', resolve));
});
afterEach(async () => {
  client.destroy();
  await proxy.close();
  await new Promise((resolve) => echo.close(resolve));
});

/** @returns milliseconds until all of it had come back unchanged */
async function sent(bytes: Buffer): Promise<number> {
  const began = performance.now();
  received = [];
  client.write(bytes);
  while (received.reduce((sum, { length }) => sum + length, 0) < bytes.length) await pause(5);
  expect(Buffer.concat(received).equals(bytes)).toBe(true);
  return performance.now() - began;
}

it.each([{}, { sliceBytes: 3 }, { latencyMs: 20 }, { bytesPerSec: 100_000, sliceBytes: 50 }])(
  'keeps every byte in its place: %j',
  async (weather) => {
    proxy.weather = weather;
    await sent(randomBytes(3_000));
    proxy.weather = {};
    await sent(randomBytes(3_000_000));
  },
);

it('is late by its latency in each direction', async () => {
  proxy.weather = { latencyMs: 100 };
  expect(await sent(Buffer.from('hello'))).toBeGreaterThanOrEqual(195);
});

it('passes no more than its bandwidth', async () => {
  proxy.weather = { bytesPerSec: 10_000 };
  expect(await sent(randomBytes(5_000))).toBeGreaterThanOrEqual(400);
});

it('swallows everything while it is a black hole, and gives it back afterwards', async () => {
  proxy.weather = { blackhole: true };
  const back = sent(Buffer.from('hello'));
  await pause(300);
  expect(received).toEqual([]);
  proxy.weather = {};
  await back;
});

it('resets both ends', async () => {
  await sent(Buffer.from('hello'));
  const gone = new Promise<NodeJS.ErrnoException>((resolve) => client.once('error', resolve));
  proxy.reset();
  expect((await gone).code).toBe('ECONNRESET');
});
