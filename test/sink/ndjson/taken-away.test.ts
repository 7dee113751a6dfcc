/** Files of the ndjson sink are taken away by whoever read them; the newest is the one whose commit its index cannot prove. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { NdjsonSink } from '../../../src/sink/ndjson/ndjson.ts';
import { readTally } from '../../../src/sink/ndjson/tally.ts';
import type { StreamSink } from '../../../src/sink/sink.ts';
import { UnavailableError } from '../../../src/sink/unavailable.ts';
import { envelope, Harness, hexId, item, log, NOW } from '../../processor/harness.ts';
import { temporaryFolder } from '../../support/servers.ts';

const STREAM = 'SLUICE_EVENTS';
const MONTH = '2026-01';
const NOON = Date.UTC(2026, 0, 2, 12);
const PROJECT = '42';

describe('the newest file, taken away', () => {
  let harness: Harness;
  afterEach(() => harness.close());

  const event = (n: number, position: number) =>
    envelope([item('event', `{"n":${n}}`)], { eventId: hexId(n), month: MONTH, position });

  /** A batch for each frame. */
  async function storeBatches(...frames: ReturnType<typeof event>[]): Promise<void> {
    for (const frame of frames) {
      await harness.publish([frame]);
      await harness.drained();
    }
  }

  /** @returns the names that were taken */
  function takeAll(): string[] {
    const names = harness.files();
    for (const name of names) rmSync(join(harness.dir, name));
    return names.map((name) => basename(name));
  }

  it('counts on beside a running processor', async () => {
    harness = await Harness.start();
    await harness.process();
    await storeBatches(event(1, 1), event(2, 2));
    expect(takeAll()).toEqual(['000000001.ndjson', '000000002.ndjson']);
    expect(await readTally(harness.dir, PROJECT, MONTH)).toEqual({ count: 2, position: 2 });
    await storeBatches(event(3, 3));
    expect(await readTally(harness.dir, PROJECT, MONTH)).toEqual({ count: 3, position: 3 });
  });

  it('keeps its name, its items and its count over a restart', async () => {
    harness = await Harness.start();
    const first = await harness.process();
    await storeBatches(event(1, 1), event(2, 2));
    takeAll();
    await first.stop();
    await harness.process();
    await storeBatches(event(3, 3));
    expect(harness.files().map((name) => basename(name))).toEqual(['000000003.ndjson']);
    await storeBatches(event(1, 4), event(2, 5)); // the client's own resends
    expect(harness.stored().map(({ event_id }) => event_id)).toEqual([hexId(3)]);
    expect(await readTally(harness.dir, PROJECT, MONTH)).toEqual({ count: 5, position: 5 });
  });
});

describe('a batch', () => {
  let dir: string;
  let sink: NdjsonSink;
  let stream: StreamSink;
  beforeEach(async () => {
    dir = temporaryFolder('taken');
    await start();
  });
  afterEach(async () => {
    await sink.close();
    rmSync(dir, { recursive: true, force: true });
  });

  async function start(): Promise<void> {
    sink = await NdjsonSink.lock(dir, { log, clock: { now: () => NOON, monotonic: () => 0 } });
    stream = await sink.open(STREAM);
  }

  /** One frame of one line. @returns whether it was new */
  async function store(n: number): Promise<boolean> {
    const batch = await stream.begin([`frame ${n}`]);
    const isNew = batch.entriesKnown(`frame ${n}`) === 0;
    if (isNew) {
      batch.beginEntry({ frameId: `frame ${n}`, index: 0, usage: usage(n) });
      const fields = {
        envelope: { projectId: PROJECT, eventId: hexId(n), receivedAt: 0 },
        index: 0,
        header: '{}',
      };
      batch.add({ type: 'log', head: `{"n":${n},"payload":`, fields, json: Buffer.from('{}') });
    }
    await batch.commit(NOW);
    return isNew;
  }
  const usage = (position: number) => ({ projectId: PROJECT, month: MONTH, position });
  const dataPath = (n: number): string => join(dir, STREAM, '2026-01-02', `00000000${n}.ndjson`);
  const inJournal = (name: string): string => join(dir, STREAM, 'journal', name);

  /** Leaves what a kill between the two renames leaves: an index, and lines that could not take their name. */
  async function failBeforeCommit(n: number): Promise<void> {
    mkdirSync(join(dataPath(n), 'in the way'), { recursive: true });
    await expect(store(n)).rejects.toThrow(UnavailableError);
    rmSync(dataPath(n), { recursive: true });
    await sink.close();
  }

  it('that ended before the rename which commits is not counted, and is stored once by the next start', async () => {
    await store(1);
    await failBeforeCommit(2);
    expect(await readTally(dir, PROJECT, MONTH)).toEqual({ count: 1, position: 1 });
    await start();
    expect(await store(2)).toBe(true);
    expect(await store(2)).toBe(false);
    expect(readFileSync(dataPath(2), 'utf8')).toBe('{"n":2,"payload":{}}\n');
    expect(await readTally(dir, PROJECT, MONTH)).toEqual({ count: 2, position: 2 });
  });

  it('that a start is just removing is not counted', async () => {
    await store(1);
    await failBeforeCommit(2);
    const index = readFileSync(inJournal('2.idx'));
    rmSync(inJournal('2.idx'));
    execFileSync('mkfifo', [inJournal('2.idx')]); // a reader of it waits here
    const tally = readTally(dir, PROJECT, MONTH);
    const pipe = await open(inJournal('2.idx'), 'w');
    for (const name of ['2.idx', '2.tmp']) rmSync(inJournal(name));
    await pipe.writeFile(index);
    await pipe.close();
    expect(await tally).toEqual({ count: 1, position: 1 });
  });
});
