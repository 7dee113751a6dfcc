import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { follow, TailFeed } from '../../src/stream/tail.ts';
import { link, type NatsLink } from '../projects/broker.ts';
import { natsServer, type TestServer } from '../support/servers.ts';

let server: TestServer;
let [worker, follower]: NatsLink[] = [];
let now = 0;
let seen: string[];
/** All that is shown, whoever calls. */
let shown: string[];

beforeEach(async () => {
  now = 1_000;
  seen = [];
  shown = [];
  server = await natsServer();
  [worker, follower] = [await link(server.url), await link(server.url)];
  follower.connection.subscribe('sluice.shown.>', { callback: (_, { data }) => void shown.push(`${data}`) });
  await follower.connection.flush();
});
afterEach(async () => {
  await Promise.all([worker?.close(), follower?.close()]);
  await server.close();
});

const newFeed = async (): Promise<TailFeed> => {
  const feed = new TailFeed({
    link: worker as NatsLink,
    of: 'frames',
    clock: { now: () => 0, monotonic: () => now },
  });
  await worker?.connection.flush();
  return feed;
};
const arrived = async (): Promise<void> => {
  await worker?.connection.flush();
  await follower?.connection.flush();
};
const look = async (): Promise<void> => {
  follow(follower as NatsLink, 'frames', (frame) => void seen.push(Buffer.from(frame).toString()));
  await follower?.connection.flush();
  await worker?.connection.flush();
};
const show = (feed: TailFeed, text: string): void => feed.show('events', Buffer.from(text));

describe('frames for a tail', () => {
  it('are shown from the first call on', async () => {
    const feed = await newFeed();
    now += 3_001;
    show(feed, 'before');
    await look();
    show(feed, 'after');
    await arrived();
    expect(seen).toEqual(['after']);
    expect(shown).toHaveLength(1);
  });

  it('are sent to nobody half a minute after the last call', async () => {
    const feed = await newFeed();
    const sentBy = (text: string): number => {
      const before = worker?.connection.stats().outMsgs ?? 0;
      show(feed, text);
      return (worker?.connection.stats().outMsgs ?? 0) - before;
    };
    await look();
    await follower?.close(); // calls no more
    now += 30_000;
    expect(sentBy('last')).toBe(1);
    now += 1;
    expect(sentBy('too late')).toBe(0);
  });

  it('are sent to nobody half a minute after a follower has stopped, whose link stays open', async () => {
    const feed = await newFeed();
    const stop = follow(follower as NatsLink, 'frames', (frame) => void seen.push(`${frame}`));
    await arrived();
    stop();
    now += 30_000;
    show(feed, 'unseen');
    await arrived();
    expect([seen, shown.length]).toEqual([[], 1]);
    now += 1;
    show(feed, 'too late');
    await arrived();
    expect(shown).toHaveLength(1);
  });

  it('are shown by a worker that has just started, since somebody may have called before', async () => {
    now += 60_000;
    const feed = await newFeed();
    now += 3_000;
    show(feed, 'first');
    now += 1;
    show(feed, 'nobody has called');
    await arrived();
    expect(shown).toHaveLength(1);
  });

  it('are shown as long as somebody goes on calling', async () => {
    const feed = await newFeed();
    await look();
    now += 30_001;
    await expect
      .poll(
        async () => {
          show(feed, 'again');
          await arrived();
          return seen;
        },
        { timeout: 5_000 },
      )
      .toContain('again');
  });

  it('are shown again after a reconnect, to a follower that reconnects too', async () => {
    const feed = await newFeed();
    await look();
    await server.close();
    await expect.poll(() => worker?.connected || follower?.connected).toBe(false);
    now += 60_000;
    server = await natsServer(server);
    await expect.poll(() => worker?.connected && follower?.connected).toBe(true);
    await follower?.connection.flush(); // its subscription follows the first PONG
    show(feed, 'again');
    await arrived();
    expect(seen).toEqual(['again']);
  });

  it('are dropped without a connection', async () => {
    const feed = await newFeed();
    await server.close();
    await expect.poll(() => worker?.connected).toBe(false);
    const before = worker?.connection.stats().outMsgs;
    show(feed, 'lost');
    expect(worker?.connection.stats().outMsgs).toBe(before);
  });

  it('are dropped while the connection closes, without an exception', async () => {
    const feed = await newFeed();
    const drained = worker?.connection.drain();
    expect(() => show(feed, 'lost')).not.toThrow();
    await drained;
    expect(() => show(feed, 'lost')).not.toThrow();
  });

  it('are dropped where a server takes less, without an exception', async () => {
    const feed = await newFeed();
    const { maxPayload } = worker as NatsLink;
    expect(() => feed.show('events', Buffer.alloc(maxPayload + 1))).not.toThrow();
  });
});
