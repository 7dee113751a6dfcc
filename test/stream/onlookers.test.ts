import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { NatsLink } from '../../src/stream/nats.ts';
import { lookOn, Onlookers } from '../../src/stream/onlookers.ts';
import { link } from '../registry/broker.ts';
import { natsServer, type TestServer } from '../support/servers.ts';

let server: TestServer;
let [worker, onlooker]: NatsLink[] = [];
let now = 0;
let seen: string[];
/** All that is shown, whoever calls. */
let shown: string[];

beforeEach(async () => {
  now = 1_000;
  seen = [];
  shown = [];
  server = await natsServer();
  [worker, onlooker] = [await link(server.url), await link(server.url)];
  onlooker.connection.subscribe('sluice.shown.>', { callback: (_, { data }) => void shown.push(`${data}`) });
  await onlooker.connection.flush();
});
afterEach(async () => {
  await Promise.all([worker?.close(), onlooker?.close()]);
  await server.close();
});

const onlookers = async (): Promise<Onlookers> => {
  const frames = new Onlookers({ link: worker as NatsLink, clock: { now: () => 0, monotonic: () => now } });
  await worker?.connection.flush();
  return frames;
};
const arrived = async (): Promise<void> => {
  await worker?.connection.flush();
  await onlooker?.connection.flush();
};
const look = async (): Promise<void> => {
  const { connection } = onlooker as NatsLink;
  lookOn(connection, (frame) => void seen.push(Buffer.from(frame).toString()));
  await connection.flush();
  await worker?.connection.flush();
};
const show = (frames: Onlookers, text: string): void => frames.show('events', Buffer.from(text));

describe('frames for onlookers', () => {
  it('are shown from the first call on', async () => {
    const frames = await onlookers();
    now += 3_001;
    show(frames, 'before');
    await look();
    show(frames, 'after');
    await arrived();
    expect(seen).toEqual(['after']);
    expect(shown).toHaveLength(1);
  });

  it('are sent to nobody three seconds after the last call', async () => {
    const frames = await onlookers();
    await look();
    await onlooker?.close(); // calls no more
    now += 3_000;
    show(frames, 'last');
    now += 1;
    show(frames, 'nobody');
    const sent = worker?.connection.stats().outMsgs ?? 0;
    show(frames, 'nobody');
    expect(worker?.connection.stats().outMsgs).toBe(sent);
  });

  it('are shown by a worker that has just started, since somebody may have called before', async () => {
    now += 60_000;
    const frames = await onlookers();
    show(frames, 'first');
    await arrived();
    expect(shown).toHaveLength(1);
  });

  it('are shown as long as somebody goes on calling', async () => {
    const frames = await onlookers();
    await look();
    now += 3_001;
    await expect
      .poll(
        async () => {
          show(frames, 'again');
          await arrived();
          return seen;
        },
        { timeout: 5_000 },
      )
      .toContain('again');
  });

  it('need a connection, and are dropped without one', async () => {
    const frames = await onlookers();
    await worker?.close();
    expect(() => show(frames, 'lost')).not.toThrow();
  });
});
