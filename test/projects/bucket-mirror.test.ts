import { Kvm } from '@nats-io/kv';
import { expect, it } from 'vitest';
import { systemClock as clock } from '../../src/lib/clock.ts';
import { REGISTRY_SLICE_ENTRIES } from '../../src/limits.ts';
import { BucketCopy } from '../../src/projects/bucket-copy.ts';
import { BucketMirror } from '../../src/projects/bucket-mirror.ts';
import { link as connect, eventually, eventuallyHolds, log, type NatsLink, useBroker } from './broker.ts';

const BUCKET = 'mirrored';
const OVERWRITTEN = 100;

let link: NatsLink;
let url: string;
useBroker((to, at) => {
  [link, url] = [to, at];
});

it('keeps a record that is overwritten while the bucket is read again', async () => {
  await new Kvm(link.js).create(BUCKET);
  const put = (n: number, text: string): void => link.connection.publish(`$KV.${BUCKET}.k${n}`, text);
  const last = async (): Promise<number> =>
    (await (await link.manager()).streams.info(`KV_${BUCKET}`)).state.last_seq;
  // What is overwritten comes behind a whole slice of the others.
  const count = OVERWRITTEN + REGISTRY_SLICE_ENTRIES;
  for (let n = 0; n < count; n++) put(n, 'old');
  await eventuallyHolds(async () => (await last()) === count);

  const removed: string[] = [];
  let isReadAgain = false;
  /** The mirror has asked for the bucket's state when it begins a snapshot, and has read nothing. */
  class OverwrittenCopy extends BucketCopy {
    override startSnapshot(createdMs: number): void {
      super.startSnapshot(createdMs);
      if (isReadAgain) for (let n = 0; n < OVERWRITTEN; n++) put(n, 'new');
    }
  }
  const copy = new OverwrittenCopy(({ key, text }) => {
    if (text === undefined) removed.push(key);
  });
  copy.startSnapshot(0);
  for (let n = 0; n < count; n++) copy.put({ key: `k${n}`, text: 'old', revision: n + 1 });
  isReadAgain = true;
  const mirror = new BucketMirror({ link, bucket: BUCKET, copy, log, clock });
  await mirror.start();
  expect(removed).toEqual([]);
  await eventually(5_000, () => copy.get('k0')?.text === 'new');
  await mirror.stop();
});

it('leaves no watch behind when the connection breaks while one is opened', async () => {
  const bucket = 'renewed';
  await (await new Kvm(link.js).create(bucket)).put('a', '1');
  let reconnected = (): void => undefined;
  let breaks = true;
  class WatchedCopy extends BucketCopy {
    /** Right before the watch is opened. */
    override startSnapshot(createdMs: number): void {
      super.startSnapshot(createdMs);
      if (breaks) reconnected();
      breaks = false;
    }
  }
  const own = await connect(url);
  own.onReconnect = (run) => {
    reconnected = run;
  };
  let opened = 0;
  link.connection.subscribe(`$JS.API.CONSUMER.CREATE.KV_${bucket}.>`, { callback: () => void opened++ });
  await link.connection.flush();
  const copy = new WatchedCopy(() => undefined);
  const mirror = new BucketMirror({ link: own, bucket, copy, log, clock });
  await mirror.start();
  expect(copy.get('a')?.text).toBe('1');
  const consumers = async (): Promise<number> =>
    (await (await link.manager()).streams.info(`KV_${bucket}`)).state.consumer_count;
  await eventually(10_000, () => opened === 2);
  await eventuallyHolds(async () => (await consumers()) === 1);
  await mirror.stop();
  await eventuallyHolds(async () => (await consumers()) === 0);
  await own.close();
});
