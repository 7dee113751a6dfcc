/**
 * The way on which a queue alone cannot say "once": the broker has the frame, its acknowledgement is lost, a processor stores the frame
 * and the broker forgets it, the broker is killed and forgets the message ids of what is gone, and then the worker tries again.
 */
import { connect, createServer, type Server, type Socket } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { systemClock as clock } from '../../src/lib/clock.ts';
import { NatsLink } from '../../src/stream/nats.ts';
import { Publisher, type PublishResult } from '../../src/stream/publish/publisher.ts';
import { lastingPort, natsServer } from '../support/servers.ts';
import { envelope, eventually, Harness, hexId, item, log } from './harness.ts';

/** Between a client and the broker; while `deaf`, the client hears nothing. */
class OneWay {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  deaf = false;

  constructor(port: number) {
    this.#server = createServer((client) => {
      const broker = connect(port, '127.0.0.1');
      client.pipe(broker);
      broker.on('data', (bytes) => this.deaf || client.write(bytes));
      for (const [socket, other] of [
        [client, broker],
        [broker, client],
      ] as const) {
        this.#sockets.add(socket);
        socket.on('error', () => undefined).on('close', () => other.destroy());
      }
    });
  }

  async listen(port: number): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(port, '127.0.0.1', resolve));
  }

  close(): void {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
  }
}

const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

it('a sink holds a frame once that is stored, its acknowledgement lost, the broker killed, and the publish repeated', async () => {
  const harness = await Harness.start();
  closers.push(() => harness.close());
  await harness.process();
  const way = new OneWay(harness.nats.port);
  closers.push(() => way.close());
  const port = await lastingPort();
  await way.listen(port);
  const link = await NatsLink.connect({ urls: [`nats://127.0.0.1:${port}`], name: 'worker', log });
  closers.push(() => link.close());
  const publisher = new Publisher({ link, shards: 1, clock, log });

  way.deaf = true;
  const told: PublishResult[] = [];
  for (const n of [1, 2, 3]) {
    const entry = envelope([item('log', `{"items":[{"n":${n}}]}`)], { eventId: hexId(n) });
    publisher.publish(entry, { deadline: clock.monotonic() + 25_000 }, (result) => told.push(result));
  }
  await harness.storedOnce(3);
  await harness.drained();
  expect((await harness.manager.streams.info('SLUICE_LOGS')).state.last_seq).toBe(1);
  expect(told).toEqual([]);

  harness.nats.process.kill('SIGKILL');
  await harness.nats.exited;
  way.deaf = false;
  Object.assign(harness.nats, await natsServer({ port: harness.nats.port, dir: harness.nats.dir }));
  await eventually(() => told.length === 3);
  expect(told).toEqual(['stored', 'stored', 'stored']);
  await eventually(() => harness.link.connected);
  // The broker took it for a new one: nobody but the sink knew better.
  expect((await harness.manager.streams.info('SLUICE_LOGS')).state.last_seq).toBe(2);
  await harness.drained();
  expect(
    harness
      .stored()
      .map(({ event_id }) => event_id)
      .sort(),
  ).toEqual([1, 2, 3].map(hexId));
});
