import { describe, expect, it } from 'vitest';
import { seededRandom } from '../../bench/random.ts';
import { BucketCopy, type BucketEntry } from '../../src/projects/bucket-copy.ts';

const CREATED_MS = 1_700_000_000_000;
/** Pairs with the same hash. */
const COLLIDING = ['costarring', 'liquid', 'declinate', 'macallums', 'altarage', 'zinke'];
const end = (copy: BucketCopy): void => {
  for (const _ of copy.endSnapshot());
};

describe('BucketCopy', () => {
  it('tells keys apart that have the same hash', () => {
    const copy = new BucketCopy();
    COLLIDING.forEach((key, at) => {
      copy.put({ key, text: `text of ${key}`, revision: at + 1 });
    });
    COLLIDING.forEach((key, at) => {
      expect(copy.get(key)).toEqual({ text: `text of ${key}`, revision: at + 1 });
    });
    copy.put({ key: 'liquid', text: undefined, revision: 9 });
    expect([copy.has('costarring'), copy.has('liquid'), copy.size]).toEqual([true, false, 6]);
  });

  it('keeps texts of any characters and length, empty ones too', () => {
    const copy = new BucketCopy();
    const texts = ['', 'ä€𝄞', 'x'.repeat(100_000)];
    texts.forEach((text, at) => {
      copy.put({ key: `k${at}`, text, revision: 1 });
    });
    expect(texts.map((_, at) => copy.get(`k${at}`)?.text)).toEqual(texts);
    expect(copy.get('k')).toBeUndefined();
  });

  it('says what differs from before, and nothing twice', () => {
    const heard: BucketEntry[] = [];
    const copy = new BucketCopy((entry) => heard.push(entry));
    const one = { key: 'a', text: '1', revision: 1 };
    copy.put(one);
    copy.put(one);
    copy.put({ ...one, text: '2' });
    copy.put({ ...one, text: undefined, revision: 2 });
    expect(heard.map(({ text, revision }) => [text, revision])).toEqual([
      ['1', 1],
      ['2', 1],
      [undefined, 2],
    ]);
  });

  it('drops at the end of a snapshot what it lacks, and not before', () => {
    const heard: BucketEntry[] = [];
    const copy = new BucketCopy((entry) => heard.push(entry));
    copy.startSnapshot(CREATED_MS);
    for (const key of ['a', 'b', 'c']) copy.put({ key, text: key, revision: 1 });
    end(copy);
    copy.startSnapshot(CREATED_MS);
    copy.put({ key: 'b', text: 'b', revision: 1 });
    copy.put({ key: 'd', text: 'd', revision: 2 });
    expect([copy.size, copy.seen, copy.has('a')]).toEqual([4, 2, true]);
    heard.length = 0;
    end(copy);
    expect([copy.size, copy.has('a'), copy.has('b'), copy.has('c'), copy.has('d')]).toEqual([
      2,
      false,
      true,
      false,
      true,
    ]);
    expect(heard.map(({ key, text }) => [key, text]).sort()).toEqual([
      ['a', undefined],
      ['c', undefined],
    ]);
  });

  it('holds what a Map would, whatever is put, changed, deleted and read again', () => {
    const seed = Math.floor(Math.random() * 2 ** 32);
    const random = seededRandom(seed);
    const copy = new BucketCopy();
    let model = new Map<string, string | undefined>();
    copy.startSnapshot(CREATED_MS);
    for (let step = 1; step <= 60_000; step++) {
      const key = `${Math.floor(random() * 9_000)}`;
      const text = random() < 0.2 ? undefined : 'x'.repeat(Math.floor(random() * 200));
      copy.put({ key, text, revision: step });
      model.set(key, text);
      if (step % 20_000 !== 0) continue;
      copy.startSnapshot(CREATED_MS);
      const kept = [...model].filter(() => random() < 0.7);
      for (const [one, old] of kept) copy.put({ key: one, text: old, revision: step });
      end(copy);
      model = new Map(kept);
    }
    expect([copy.size, copy.seen], `seed ${seed}`).toEqual([model.size, model.size]);
    for (let n = 0; n < 9_000; n++) {
      expect(copy.get(`${n}`)?.text, `seed ${seed}`).toBe(model.get(`${n}`));
      expect(copy.has(`${n}`), `seed ${seed}`).toBe(model.get(`${n}`) !== undefined);
    }
  });
});
