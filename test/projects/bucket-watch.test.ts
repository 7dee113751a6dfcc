import { type KV, Kvm } from '@nats-io/kv';
import { beforeEach, describe, expect, it } from 'vitest';
import { REGISTRY_SLICE_ENTRIES } from '../../src/limits.ts';
import { bucketState, registryManager } from '../../src/projects/bucket.ts';
import type { BucketEntry } from '../../src/projects/bucket-copy.ts';
import { type BucketAccess, BucketWatch, readBucket } from '../../src/projects/bucket-mirror.ts';
import { eventually, eventuallyHolds, type NatsLink, useBroker } from './broker.ts';

describe('BucketWatch', () => {
  let link: NatsLink;
  let kv: KV;
  let access: BucketAccess;
  let made = 0;
  useBroker((to) => {
    link = to;
  });
  beforeEach(async () => {
    const bucket = `bucket_${++made}`;
    kv = await new Kvm(link.js).create(bucket);
    access = { link, bucket, manager: await registryManager(link) };
  });

  const texts = async (): Promise<Record<string, string>> =>
    Object.fromEntries(await readBucket(access, (key, text) => [key, text] as const));
  const consumers = async (): Promise<number> =>
    (await access.manager.streams.info(`KV_${access.bucket}`)).state.consumer_count;
  /** A watch whose content has come. */
  async function opened(from: number): Promise<{ watch: BucketWatch; seen: BucketEntry[] }> {
    const seen: BucketEntry[] = [];
    const state = await bucketState(access.manager, access.bucket);
    const watch = await BucketWatch.open(access, { from, onEntry: (entry) => seen.push(entry) });
    await watch.reach(state, () => new Set(seen.map(({ key }) => key)).size, 20_000);
    return { watch, seen };
  }

  it('reads an empty bucket, and then what comes', async () => {
    const { watch, seen } = await opened(0);
    expect(seen).toEqual([]);
    await kv.put('a', '1');
    await kv.delete('a');
    await eventually(5_000, () => seen.length === 2);
    expect(seen).toEqual([
      { key: 'a', text: '1', revision: 1 },
      { key: 'a', text: undefined, revision: 2 },
    ]);
    await watch.stop();
  });

  it('goes on with the revision that is named', async () => {
    for (const key of ['a', 'b', 'c', 'a']) await kv.put(key, key);
    const { watch, seen } = await opened(3);
    expect(seen.map(({ key, revision }) => [key, revision])).toEqual([
      ['c', 3],
      ['a', 4],
    ]);
    await watch.stop();
  });

  it('leaves deleted keys out, and reads on where the last one was deleted or purged without a trace', async () => {
    for (const key of ['a', 'b', 'c', 'd']) await kv.put(key, key);
    await kv.delete('b');
    expect(await texts()).toEqual({ a: 'a', c: 'c', d: 'd' });
    await access.manager.streams.purge(`KV_${access.bucket}`, { filter: `$KV.${access.bucket}.b` });
    await access.manager.streams.purge(`KV_${access.bucket}`, { filter: `$KV.${access.bucket}.d` });
    expect(await texts()).toEqual({ a: 'a', c: 'c' });
  });

  it('leaves no consumer behind', async () => {
    for (const key of ['a', 'b']) await kv.put(key, key);
    const { watch } = await opened(0);
    expect(await consumers()).toBe(1);
    await watch.stop();
    await texts();
    expect(await consumers()).toBe(0);
  });

  it('handles no more than a slice of entries in one turn of the loop', async () => {
    const { connection } = link;
    const keys = 10 * REGISTRY_SLICE_ENTRIES;
    for (let n = 0; n < keys; n++) connection.publish(`$KV.${access.bucket}.k${n}`, 'text');
    await eventuallyHolds(async () => (await bucketState(access.manager, access.bucket)).keys === keys);
    let handled = 0;
    let most = 0;
    let before = 0;
    const look = (): void => {
      most = Math.max(most, handled - before);
      before = handled;
      if (handled < keys) setImmediate(look);
    };
    setImmediate(look);
    await readBucket(access, () => ++handled);
    expect(handled).toBe(keys);
    expect(most).toBeLessThanOrEqual(REGISTRY_SLICE_ENTRIES);
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
        const found = Object.keys(await texts());
        expect(found.filter((key) => key.startsWith('still'))).toHaveLength(20);
        expect(found).toHaveLength(keys + 20);
      }
    } finally {
      writing = false;
      await written;
    }
  });

  it('misses no key that was overwritten between the look at the bucket and the first entry', async () => {
    const { connection } = link;
    const { manager } = access;
    // More than come in one turn, so that the reader can end before the last one.
    const keys = 2 * REGISTRY_SLICE_ENTRIES;
    const putAll = async (text: string): Promise<void> => {
      for (let n = 0; n < keys; n++) connection.publish(`$KV.${access.bucket}.k${n}`, text);
      await eventuallyHolds(async () => (await kv.get(`k${keys - 1}`))?.string() === text);
    };
    await putAll('old');
    const add: typeof manager.consumers.add = async (stream, config) => {
      await putAll('new');
      return manager.consumers.add(stream, config);
    };
    const consumers = { add, delete: manager.consumers.delete.bind(manager.consumers) };
    const late = Object.assign(Object.create(manager) as typeof manager, { consumers });
    const entries = await readBucket({ ...access, manager: late }, (_key, text) => text);
    expect(entries).toEqual(Array<string>(keys).fill('new'));
  });

  it('fails for a bucket that does not exist', async () => {
    await kv.destroy();
    await expect(texts()).rejects.toThrow('stream not found');
  });
});
