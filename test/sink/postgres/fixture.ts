/** A PostgreSQL for the tests of a file, empty before each, and sinks on it that are closed after each. */
import { connect, createServer } from 'node:net';
import { afterAll, afterEach, beforeAll } from 'vitest';
import { systemClock as clock } from '../../../src/lib/clock.ts';
import { PostgresSink } from '../../../src/sink/postgres/postgres.ts';
import { log } from '../../processor/harness.ts';
import { TestPostgres } from '../../support/postgres.ts';

export let server: TestPostgres;
const sinks: PostgresSink[] = [];

export function usePostgres(): void {
  beforeAll(async () => {
    server = await TestPostgres.start();
  });
  afterEach(async () => {
    for (const sink of sinks.splice(0)) await sink.close();
    await server.query('DROP SCHEMA IF EXISTS sluice CASCADE');
  });
  afterAll(() => server.close());
}

export async function connectTo(url = server.url): Promise<PostgresSink> {
  const sink = await PostgresSink.connect(url, { log, clock });
  sinks.push(sink);
  return sink;
}

/** `ReadyForQuery`: the server has answered a statement. */
const READY = Buffer.of(0x5a, 0, 0, 0, 5);

/** Hands bytes on in both directions, counts those to the server, and the statements that it answers. */
export async function countingProxy(
  target: number,
): Promise<{ port: number; sent(): number; statements(): number; close(): void }> {
  let sent = 0;
  let statements = 0;
  const proxy = createServer((client) => {
    const upstream = connect(target, '127.0.0.1');
    client.on('data', (data) => {
      sent += data.length;
    });
    upstream.on('data', (data) => {
      for (let at = data.indexOf(READY); at >= 0; at = data.indexOf(READY, at + 1)) statements++;
    });
    client.pipe(upstream).pipe(client);
    for (const socket of [client, upstream]) socket.on('error', () => undefined);
  });
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  const address = proxy.address();
  return {
    port: typeof address === 'object' && address ? address.port : 0,
    sent: () => sent,
    statements: () => statements,
    close: () => proxy.close(),
  };
}
