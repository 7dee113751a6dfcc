import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { storedMessages } from '../../src/stream/stored-messages.ts';
import { link as connect, type NatsLink } from '../projects/broker.ts';
import { natsServer, type TestServer } from '../support/servers.ts';

const STREAM = 'MANY';
const COUNT = 1_200;
let server: TestServer;
let link: NatsLink;
beforeAll(async () => {
  server = await natsServer();
  link = await connect(server.url);
  const manager = await link.manager();
  await manager.streams.add({ name: STREAM, subjects: ['many.*'] });
  await Promise.all(Array.from({ length: COUNT }, (_, n) => link.js.publish(`many.${n}`, `${n}`)));
});
afterAll(async () => {
  await link?.close();
  await server?.close();
});

it('gives all messages of a stream, oldest first', async () => {
  const sequences: number[] = [];
  for await (const { seq } of storedMessages(link, STREAM, {})) sequences.push(seq);
  expect(sequences).toEqual(Array.from({ length: COUNT }, (_, n) => n + 1));
});

it('gives them all also when the broker stands still for longer than a fetch waits', async () => {
  let read = 0;
  for await (const _message of storedMessages(link, STREAM, {}))
    if (++read === 500) {
      process.kill(server.pid, 'SIGSTOP');
      void pause(3_000).then(() => process.kill(server.pid, 'SIGCONT'));
    }
  expect(read).toBe(COUNT);
}, 30_000);
