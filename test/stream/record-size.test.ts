/** A full stream refuses the new message and keeps every old one, whatever the sizes: also on a server that forgets its own bytes. */
import { randomBytes } from 'node:crypto';
import { headers } from '@nats-io/transport-node';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { seededRandom } from '../../bench/random.ts';
import { systemClock } from '../../src/lib/clock.ts';
import { createLog } from '../../src/lib/log.ts';
import { NatsLink } from '../../src/stream/nats.ts';
import { Sender, type SendResult } from '../../src/stream/publish/sender.ts';
import { fillRecord, RECORD_BYTES, wholeRecords } from '../../src/stream/record-size.ts';
import { setupTopology } from '../../src/stream/setup/setup.ts';
import { natsServer, type TestServer } from '../support/servers.ts';

const STREAM = 'SLUICE_TRANSACTIONS';
const SUBJECT = 'sluice.transactions.0';
const MAX_BYTES = 64 * 1024;
const ROUNDS = 12;
const log = createLog('silent');
let server: TestServer;
let link: NatsLink;

beforeAll(async () => {
  server = await natsServer();
  link = await NatsLink.connect({ urls: [server.url], name: 'test', log });
  await setupTopology(link, { replicas: 1, shards: 1, maxBytes: MAX_BYTES + 77 });
});
afterAll(async () => {
  await link.close();
  await server.close();
});

const streamState = async () => (await (await link.manager()).streams.info(STREAM)).state;

describe('a stream that is full', () => {
  it('has a bound of whole records', async () => {
    const { config } = await (await link.manager()).streams.info(STREAM);
    expect(config.max_bytes).toBe(MAX_BYTES);
    expect(wholeRecords(MAX_BYTES + 77)).toBe(MAX_BYTES);
  });

  it('has refused the last message and still has the first', async () => {
    const sender = new Sender({ link, clock: systemClock, log });
    const random = seededRandom(8);
    const send = (bytes: number): Promise<SendResult> =>
      new Promise((resolve) => {
        const data = randomBytes(bytes);
        sender.send(
          { stream: STREAM, subject: SUBJECT, data, deadline: performance.now() + 30_000 },
          resolve,
        );
      });
    for (let round = 0; round < ROUNDS; round++) {
      let stored = 0;
      // Large ones until none fits, then small ones into the room that is left.
      for (const most of [8_000, 400, 1])
        while ((await send(1 + Math.floor(random() * most))).result === 'stored') stored++;
      const { messages, bytes } = await streamState();
      expect({ messages, short: bytes % RECORD_BYTES }).toEqual({ messages: stored, short: 0 });
      await (await link.manager()).streams.purge(STREAM);
    }
  });
});

describe('a record', () => {
  it('is a multiple of the quantum for every length of data, as the server counts it', async () => {
    for (let length = 0; length <= RECORD_BYTES; length++) {
      const head = fillRecord(headers(), SUBJECT, length);
      await link.js.publish(SUBJECT, new Uint8Array(length), { headers: head });
    }
    const { messages, bytes } = await streamState();
    expect([messages, bytes % RECORD_BYTES]).toEqual([RECORD_BYTES + 1, 0]);
  });
});
