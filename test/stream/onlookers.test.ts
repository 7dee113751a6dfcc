import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { NatsLink } from '../../src/stream/nats.ts';
import { lookOn, Onlookers } from '../../src/stream/onlookers.ts';
import { link } from '../projects/broker.ts';
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
  lookOn(onlooker as NatsLink, (frame) => void seen.push(Buffer.from(frame).toString()));
  await onlooker?.connection.flush();
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

  it('are sent to nobody half a minute after the last call', async () => {
    const frames = await onlookers();
    const sentBy = (text: string): number => {
      const before = worker?.connection.stats().outMsgs ?? 0;
      show(frames, text);
      return (worker?.connection.stats().outMsgs ?? 0) - before;
    };
    await look();
    await onlooker?.close(); // calls no more
    now += 30_000;
    expect(sentBy('last')).toBe(1);
    now += 1;
    expect(sentBy('too late')).toBe(0);
  });

  it('are shown by a worker that has just started, since somebody may have called before', async () => {
    now += 60_000;
    const frames = await onlookers();
    now += 3_000;
    show(frames, 'first');
    now += 1;
    show(frames, 'nobody has called');
    await arrived();
    expect(shown).toHaveLength(1);
  });

  it('are shown as long as somebody goes on calling', async () => {
    const frames = await onlookers();
    await look();
    now += 30_001;
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

  it('are shown again after a reconnect, to an onlooker that reconnects too', async () => {
    const frames = await onlookers();
    await look();
    await server.close();
    await expect.poll(() => worker?.connected || onlooker?.connected).toBe(false);
    now += 60_000;
    server = await natsServer(server);
    await expect.poll(() => worker?.connected && onlooker?.connected).toBe(true);
    await onlooker?.connection.flush(); // its subscription follows the first PONG
    show(frames, 'again');
    await arrived();
    expect(seen).toEqual(['again']);
  });

  it('are dropped without a connection', async () => {
    const frames = await onlookers();
    await server.close();
    await expect.poll(() => worker?.connected).toBe(false);
    const before = worker?.connection.stats().outMsgs;
    show(frames, 'lost');
    expect(worker?.connection.stats().outMsgs).toBe(before);
  });

  it('are dropped while the connection closes, without an exception', async () => {
    const frames = await onlookers();
    const drained = worker?.connection.drain();
    expect(() => show(frames, 'lost')).not.toThrow();
    await drained;
    expect(() => show(frames, 'lost')).not.toThrow();
  });

  it('are dropped where a server takes less, without an exception', async () => {
    const frames = await onlookers();
    const { maxPayload } = worker as NatsLink;
    expect(() => frames.show('events', Buffer.alloc(maxPayload + 1))).not.toThrow();
  });
});
