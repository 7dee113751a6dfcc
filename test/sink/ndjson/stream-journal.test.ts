import { mkdirSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FRAME_MEMORY_MS, INDEX_PRUNE_COUNT, SINK_BLOCK_BYTES } from '../../../src/limits.ts';
import { resendKey } from '../../../src/sink/item-key.ts';
import type { NdjsonBatch } from '../../../src/sink/ndjson/batch.ts';
import { JournalError } from '../../../src/sink/ndjson/index-file.ts';
import { StreamJournal } from '../../../src/sink/ndjson/stream-journal.ts';
import { readTally } from '../../../src/sink/ndjson/tally.ts';
import { hexId, log } from '../../processor/harness.ts';
import { temporaryFolder } from '../../support/servers.ts';

const NOON = Date.UTC(2026, 4, 6, 12);
const MONTH = '2026-05';
let root: string;
let dir: string;
let now: number;
beforeEach(() => {
  root = temporaryFolder('journal');
  dir = join(root, 'SLUICE_EVENTS');
  now = NOON;
  stepMs = 0;
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

/** How far the wall clock is ahead of the one that never steps. */
let stepMs: number;
const clock = { now: () => now + stepMs, monotonic: () => now };
const open = (): Promise<StreamJournal> => StreamJournal.open(dir, { clock, log });
const row = (n: number, receivedAt = now) => ({
  type: 'event' as const,
  head: `{"n":${n},"payload":`,
  fields: { envelope: { projectId: '1', eventId: hexId(n), receivedAt }, index: 0, header: '{}' },
  json: Buffer.from('{}'),
  resend: { key: resendKey({ projectId: '1', eventId: hexId(n) }, { index: 0, type: 'event' }), receivedAt },
});
const usage = (position: number) => ({ projectId: '1', month: MONTH, position });

/** One frame of one event. @returns whether it was written */
function fill(batch: NdjsonBatch, n: number): boolean {
  if (batch.entriesKnown(`frame ${n}`) > 0) return false;
  batch.beginEntry({ frameId: `frame ${n}`, index: 0, usage: usage(n) });
  return batch.add(row(n));
}

/** The same event in another frame. */
async function isResend(journal: StreamJournal, n: number): Promise<boolean> {
  const batch = journal.begin();
  const written = batch.add(row(n));
  await batch.abandon();
  return !written;
}

async function store(journal: StreamJournal, n: number): Promise<boolean> {
  const batch = journal.begin();
  const written = fill(batch, n);
  await batch.commit();
  return written;
}

const dataFiles = (): string[] =>
  (readdirSync(dir, { recursive: true, encoding: 'utf8' }) as string[])
    .filter((name) => name.endsWith('.ndjson'))
    .sort();
const journalFiles = (): string[] => readdirSync(join(dir, 'journal')).sort();
const lines = (): string[] =>
  dataFiles().flatMap((name) => readFileSync(join(dir, name), 'utf8').trimEnd().split('\n'));

describe('a batch', () => {
  it('appears whole when it is committed, under its date, and is known from then on', async () => {
    const journal = await open();
    const batch = journal.begin();
    fill(batch, 1);
    expect(batch.entriesKnown('frame 1')).toBe(1);
    expect(dataFiles()).toEqual([]);
    await batch.commit();
    expect(dataFiles()).toEqual(['2026-05-06/000000001.ndjson']);
    expect(lines()).toEqual(['{"n":1,"payload":{}}']);
    const next = journal.begin();
    expect(next.entriesKnown('frame 1')).toBe(1);
    expect(next.entriesKnown('frame 2')).toBe(0);
    expect(next.add(row(1))).toBe(false);
    await next.abandon();
  });

  it('that is abandoned leaves nothing behind and knows nothing', async () => {
    const journal = await open();
    const batch = journal.begin();
    const large = { ...row(1), json: Buffer.alloc(SINK_BLOCK_BYTES, 0x31) };
    batch.beginEntry({ frameId: 'frame 1', index: 0 });
    batch.add(large);
    await batch.relieve();
    expect(journalFiles()).toEqual(['1.tmp']);
    await batch.abandon();
    expect(await store(journal, 1)).toBe(true);
    expect(lines()).toEqual(['{"n":1,"payload":{}}']);
    expect(journalFiles()).toEqual(['1.idx']);
  });

  it('keeps lines in order, be they small, large or in between', async () => {
    const journal = await open();
    const batch = journal.begin();
    const sizes = [1, SINK_BLOCK_BYTES + 1, 10, 2 * SINK_BLOCK_BYTES, SINK_BLOCK_BYTES - 1, 3];
    batch.beginEntry({ frameId: 'f', index: 0 });
    for (const [n, size] of sizes.entries()) {
      batch.add({ ...row(n), json: Buffer.alloc(size, 0x30 + n) });
      await batch.relieve();
    }
    await batch.commit();
    expect(lines().map((line) => line.length)).toEqual(
      sizes.map((size) => size + '{"n":0,"payload":}'.length),
    );
    expect(lines().every((line, n) => line.startsWith(`{"n":${n},"payload":${n}`))).toBe(true);
  });

  it('may end in the middle of a frame; the next one goes on there', async () => {
    const journal = await open();
    const first = journal.begin();
    first.beginEntry({ frameId: 'f', index: 0 });
    first.add(row(1));
    await first.commit();
    const again = await open();
    const second = again.begin();
    expect(second.entriesKnown('f')).toBe(1);
    second.beginEntry({ frameId: 'f', index: 1 });
    await second.commit();
    const third = again.begin();
    expect(third.entriesKnown('f')).toBe(2);
    await third.abandon();
  });

  it('without lines makes no file, and is known all the same', async () => {
    const journal = await open();
    const batch = journal.begin();
    batch.beginEntry({ frameId: 'dead', index: 0, usage: usage(7) });
    await batch.commit();
    expect(dataFiles()).toEqual([]);
    const next = (await open()).begin();
    expect(next.entriesKnown('dead')).toBe(1);
    expect(await readTally(root, '1', MONTH)).toEqual({ count: 1, position: 7 });
  });
});

describe('a start', () => {
  it('never uses a name twice, even when the journal is gone', async () => {
    for (const n of [1, 2]) await store(await open(), n);
    rmSync(join(dir, 'journal'), { recursive: true });
    await store(await open(), 3);
    expect(dataFiles().at(-1)).toBe('2026-05-06/000000003.ndjson');
    expect(lines()).toHaveLength(3);
  });

  it('refuses an index that is damaged rather than write its items again', async () => {
    const before = await open();
    for (const n of [1, 2]) await store(before, n);
    truncateSync(join(dir, 'journal', '1.idx'), 150);
    await expect(open()).rejects.toThrow(JournalError);
    writeFileSync(join(dir, 'journal', '1.idx'), 'no index');
    await expect(open()).rejects.toThrow(/1\.idx is damaged/);
  });
});

describe('what is known', () => {
  it('is bounded: old indexes go, their counts stay, and what is younger than ten minutes is known', async () => {
    let journal = await open();
    const batches = INDEX_PRUNE_COUNT * 4;
    const stepMs = 20_000;
    for (let n = 1; n <= batches; n++) {
      now += stepMs;
      await store(journal, n);
    }
    const kept = journalFiles().filter((name) => name.endsWith('.idx')).length;
    expect(kept).toBeLessThan(INDEX_PRUNE_COUNT * 2);
    expect(await readTally(root, '1', MONTH)).toEqual({ count: batches, position: batches });
    journal = await open();
    expect(await readTally(root, '1', MONTH)).toEqual({ count: batches, position: batches });
    const batch = journal.begin();
    for (let n = batches; n > batches - FRAME_MEMORY_MS / stepMs; n--)
      expect(batch.entriesKnown(`frame ${n}`)).toBe(1);
    expect(batch.entriesKnown('frame 1')).toBe(0);
    await batch.abandon();
    expect(dataFiles()).toHaveLength(batches);
  });

  /** Batches of so many frames that the table of those that are known is built anew. */
  async function storeMany(journal: StreamJournal, first = 10_000): Promise<void> {
    for (const from of [first, first + 2_000, first + 4_000]) {
      const batch = journal.begin();
      for (let n = from; n < from + 2_000; n++) batch.beginEntry({ frameId: `frame ${n}`, index: 0 });
      await batch.commit();
    }
  }
  async function isKnown(journal: StreamJournal, n: number): Promise<boolean> {
    const batch = journal.begin();
    const entries = batch.entriesKnown(`frame ${n}`);
    await batch.abandon();
    return entries > 0;
  }

  it('is a frame whose acknowledgement was lost when the clock stepped forward, as after a machine slept', async () => {
    const journal = await open();
    await store(journal, 1);
    stepMs = 3_600_000;
    await storeMany(journal);
    expect(await isKnown(journal, 1)).toBe(true);
    now += FRAME_MEMORY_MS + 1;
    await storeMany(journal, 20_000);
    expect(await isKnown(journal, 1)).toBe(false);
  });

  it('is such a frame also when the process was killed and its successor came late', async () => {
    await store(await open(), 1);
    now += 3_600_000;
    const journal = await open();
    await storeMany(journal);
    expect(await isKnown(journal, 1)).toBe(true);
  });

  it('survives a clock that steps back', async () => {
    const journal = await open();
    await store(journal, 1);
    stepMs = -3_600_000;
    await store(journal, 2);
    const batch = (await open()).begin();
    expect([batch.entriesKnown('frame 1'), batch.entriesKnown('frame 2')]).toEqual([1, 1]);
  });

  it('is filed under its own day after a clock that was days ahead, also by the next process', async () => {
    const files = (): string[] => readdirSync(dir).filter((name) => name !== 'journal');
    const day = (ms: number): string => new Date(ms).toISOString().slice(0, 10);
    stepMs = 10 * 86_400_000;
    const ahead = day(now + stepMs);
    const journal = await open();
    await store(journal, 1);
    stepMs = 0;
    await store(journal, 2);
    await store(await open(), 3);
    expect(files().sort()).toEqual([day(now), ahead]);
    expect(readdirSync(join(dir, day(now)))).toHaveLength(2);
    rmSync(join(dir, 'journal'), { recursive: true });
    await store(await open(), 4);
    expect(readdirSync(join(dir, day(now)))).toHaveLength(3);
  });

  it('is not filed under a day before it was received, by a clock that is days behind', async () => {
    const journal = await open();
    await store(journal, 1);
    stepMs = -10 * 86_400_000;
    await store(journal, 2);
    const days = readdirSync(dir).filter((name) => name !== 'journal');
    expect(days).toEqual([new Date(now).toISOString().slice(0, 10)]);
  });

  it('does not depend on a worker whose clock is far ahead', async () => {
    const journal = await open();
    const batch = journal.begin();
    batch.beginEntry({ frameId: 'future', index: 0 });
    batch.add(row(99, now + 365 * 86_400_000));
    await batch.commit();
    await store(journal, 1);
    for (let n = 100; n < 2_000; n++) {
      const more = journal.begin();
      more.beginEntry({ frameId: `frame ${n}`, index: 0 });
      more.add(row(n));
      if (n % 100 === 99) await more.commit();
      else await more.abandon();
    }
    expect(await isResend(journal, 1)).toBe(true);
  });
});

describe('a reader of the tally', () => {
  it('ignores what is no stream of the sink', async () => {
    await store(await open(), 1);
    writeFileSync(join(root, 'note.txt'), 'mine');
    mkdirSync(join(root, 'mine'));
    expect(dirname(dir)).toBe(root);
    expect(await readTally(root, '1', MONTH)).toEqual({ count: 1, position: 1 });
  });
});
