import { type KV, Kvm } from '@nats-io/kv';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { openBucket, registryManager } from '../../src/projects/bucket.ts';
import {
  type BucketAccess,
  type BucketEntry,
  BucketWatch,
  readBucket,
} from '../../src/projects/bucket-watch.ts';
import type { NatsLink } from '../../src/stream/nats.ts';
import { natsServer, type TestServer } from '../support/servers.ts';
import { link as connect, eventually } from './broker.ts';

describe('BucketWatch', () => {
  let server: TestServer;
  let link: NatsLink;
  let kv: KV;
  let access: BucketAccess;
  let made = 0;
  beforeAll(async () => {
    server = await natsServer();
    link = await connect(server.url);
  });
  beforeEach(async () => {
    const bucket = `bucket_${++made}`;
    kv = await new Kvm(link.js).create(bucket);
    access = { bucket, kv: await openBucket(link, bucket), manager: await registryManager(link) };
  });
  afterAll(async () => {
    await link?.close();
    await server?.close();
  });

  const textOf = (entries: readonly BucketEntry[]): Record<string, string | undefined> =>
    Object.fromEntries(entries.map(({ key, text }) => [key, text]));

  it('reads an empty bucket, and then what comes', async () => {
    const { watch, snapshot } = await BucketWatch.open(access);
    expect(snapshot).toEqual([]);
    const seen: BucketEntry[] = [];
    const following = watch.follow((entry) => seen.push(entry));
    await kv.put('a', '1');
    await kv.delete('a');
    await eventually(1_000, () => seen.length === 2);
    expect(seen.map(({ key, text }) => [key, text])).toEqual([
      ['a', '1'],
      ['a', undefined],
    ]);
    watch.stop();
    await following;
  });

  it('leaves deleted keys out, and reads on where the last one was deleted or purged without a trace', async () => {
    for (const key of ['a', 'b', 'c', 'd']) await kv.put(key, key);
    await kv.delete('b');
    expect(textOf(await readBucket(access))).toEqual({ a: 'a', c: 'c', d: 'd' });
    await access.manager.streams.purge(`KV_${access.bucket}`, { filter: `$KV.${access.bucket}.b` });
    await access.manager.streams.purge(`KV_${access.bucket}`, { filter: `$KV.${access.bucket}.d` });
    expect(textOf(await readBucket(access))).toEqual({ a: 'a', c: 'c' });
  });

  it.each([1, 3, 40])('reads a snapshot while %d keys are overwritten without a pause', async (keys) => {
    for (let n = 0; n < keys; n++) await kv.put(`k${n}`, '0');
    for (let n = 0; n < 20; n++) await kv.put(`still${n}`, '0');
    let writing = true;
    const write = async (): Promise<void> => {
      for (let n = 1; writing; n++) await kv.put(`k${n % keys}`, `${n}`);
    };
    const written = write();
    try {
      for (let n = 0; n < 25; n++) {
        const { watch, snapshot } = await BucketWatch.open(access);
        watch.stop();
        expect(snapshot.filter(({ key }) => key.startsWith('still'))).toHaveLength(20);
        expect(new Set(snapshot.map(({ key }) => key)).size).toBe(keys + 20);
      }
    } finally {
      writing = false;
      await written;
    }
  });

  it('fails for a bucket that does not exist', async () => {
    await kv.destroy();
    await expect(BucketWatch.open(access)).rejects.toThrow('stream not found');
  });
});
