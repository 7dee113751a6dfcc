/** What is older than SLUICE_RETENTION goes, day by day; what tells what is stored and counted stays. */
import { closeSync, existsSync, openSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type Clock, DAY_MS, systemClock } from '../../src/lib/clock.ts';
import { resendKey } from '../../src/sink/item-key.ts';
import { NdjsonSink } from '../../src/sink/ndjson/ndjson.ts';
import { readTally } from '../../src/sink/ndjson/tally.ts';
import { readPostgresTally } from '../../src/sink/postgres/tally.ts';
import { Retention } from '../../src/sink/retention.ts';
import type { Sink, SinkRecord, StreamSink } from '../../src/sink/sink.ts';
import { UnavailableError } from '../../src/sink/unavailable.ts';
import {
  envelope,
  eventually,
  Harness,
  hexId,
  item,
  log,
  NOW,
  type RunningProcessor,
} from '../processor/harness.ts';
import { temporaryFolder } from '../support/servers.ts';
import { connectTo, server, usePostgres } from './postgres/fixture.ts';

const STREAM = 'SLUICE_EVENTS';
const MONTH = '2026-05';
const NOON = Date.UTC(2026, 4, 6, 12);
const noonOf = (day: number): number => NOON + day * DAY_MS;

/** An event of that day's noon. */
function row(day: number): SinkRecord {
  const receivedAt = noonOf(day);
  const event = { projectId: '1', eventId: hexId(day), receivedAt };
  return {
    type: 'event',
    head: '{',
    fields: { envelope: event, index: 0, header: '{"type":"event"}' },
    json: Buffer.from(`{"day":${day}}`),
    resend: { key: resendKey(event, { index: 0, type: 'event' }), receivedAt },
  };
}

/** @returns whether it was stored */
async function store(stream: StreamSink, day: number, frameId = `frame ${day}`): Promise<boolean> {
  const batch = await stream.begin([frameId]);
  try {
    if (batch.entriesKnown(frameId) > 0) return false;
    batch.beginEntry({ frameId, index: 0, usage: { projectId: '1', month: MONTH, position: day } });
    batch.add(row(day));
    const counts = await batch.commit(NOW);
    return counts.some(({ result, count }) => result === 'stored' && count > 0);
  } finally {
    await batch.abandon();
  }
}

/** A clock that a test sets. */
class SetClock implements Clock {
  at = NOON;
  now(): number {
    return this.at;
  }
  monotonic(): number {
    return systemClock.monotonic();
  }
}

describe('postgres', () => {
  usePostgres();

  const partitions = async (table: string): Promise<string[]> => {
    const rows = await server.query<{ relname: string }>(
      `SELECT relname FROM pg_class WHERE relnamespace = 'sluice'::regnamespace AND relkind = 'r'
        AND relname ~ '^${table}_\\d{8}$' ORDER BY relname`,
    );
    return rows.map(({ relname }) => relname);
  };
  const days = async (): Promise<number[]> => {
    const rows = await server.query<{ day: number }>(
      `SELECT (payload::json ->> 'day')::int AS day FROM sluice.items ORDER BY day`,
    );
    return rows.map(({ day }) => day);
  };
  /** Days 1 to 4. */
  async function four(sink: Sink): Promise<StreamSink> {
    const stream = await sink.open(STREAM);
    for (const day of [1, 2, 3, 4]) await store(stream, day);
    return stream;
  }

  it('loses the partitions of which all is older, and nothing else', async () => {
    const sink = await connectTo();
    const stream = await four(sink);
    // Day 2 ends at midnight after its noon.
    await sink.removeBefore(noonOf(2) + DAY_MS / 2 - 1);
    expect(await days()).toEqual([2, 3, 4]);
    await sink.removeBefore(noonOf(2) + DAY_MS / 2);
    expect(await days()).toEqual([3, 4]);
    expect(await partitions('items')).toEqual(['items_20260509', 'items_20260510']);
    const kept = await server.query(`SELECT to_regclass('sluice.items_before_2020') IS NOT NULL AS is`);
    expect(kept).toEqual([{ is: true }]);
    expect(await readPostgresTally(server.url, { projectId: '1', month: MONTH })).toEqual({
      count: 4,
      position: 4,
    });
    expect(await store(stream, 1)).toBe(false);
    expect(await store(stream, 5)).toBe(true);
  });

  it('stores a late row of a day that is gone, and removes it the next time', async () => {
    const [sink, other] = [await connectTo(), await connectTo()];
    await four(sink);
    const stream = await other.open(STREAM);
    await sink.removeBefore(noonOf(3));
    // The other processor still believes in the partition.
    await expect.poll(() => store(stream, 1, 'late').catch(() => false), { timeout: 10_000 }).toBe(true);
    expect(await days()).toEqual([1, 3, 4]);
    await other.removeBefore(noonOf(3));
    expect(await days()).toEqual([3, 4]);
  });

  it('is removed once by processors that do it together', async () => {
    const sinks = [await connectTo(), await connectTo(), await connectTo()];
    await four(sinks[0] as Sink);
    await Promise.all(sinks.map((sink) => sink.removeBefore(noonOf(4))));
    expect(await days()).toEqual([4]);
    expect(await partitions('items')).toEqual(['items_20260510']);
  });

  it('leaves a partition that the operator has detached, and drops one that it has left behind', async () => {
    const sink = await connectTo();
    await four(sink);
    await server.query('ALTER TABLE sluice.items DETACH PARTITION sluice.items_20260507');
    await server.query('ALTER TABLE sluice.items DETACH PARTITION sluice.items_20260508');
    await server.query(
      `COMMENT ON TABLE sluice.items_20260508 IS 'older than SLUICE_RETENTION: to be dropped'`,
    );
    await sink.removeBefore(noonOf(4));
    expect(await partitions('items')).toEqual(['items_20260507', 'items_20260510']);
  });

  it('does not wait behind a report, nor lets those who store wait', async () => {
    const sink = await connectTo();
    const stream = await four(sink);
    const report = server.query('BEGIN; SELECT count(*) FROM sluice.items; SELECT pg_sleep(6); COMMIT');
    const reads = `SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'`;
    await eventually(async () => (await server.query(reads)).length > 0);
    const removed = sink.removeBefore(noonOf(3)).catch((error: unknown) => error);
    expect(await store(stream, 5)).toBe(true);
    expect(await removed).toBeInstanceOf(UnavailableError);
    expect(await server.query(reads), 'the report still runs').toHaveLength(1);
    expect(await days()).toEqual([1, 2, 3, 4, 5]);
    await report;
    await sink.removeBefore(noonOf(3));
    expect(await days()).toEqual([3, 4, 5]);
  });
});

describe('ndjson', () => {
  const clock = new SetClock();
  let dir: string;
  let sink: NdjsonSink;
  let stream: StreamSink;

  const open = async (): Promise<void> => {
    sink = await NdjsonSink.lock(dir, { log, clock });
    stream = await sink.open(STREAM);
  };
  const folders = (): string[] =>
    readdirSync(join(dir, STREAM))
      .filter((name) => name !== 'journal')
      .sort();

  beforeEach(async () => {
    dir = temporaryFolder('sink');
    await open();
    for (const day of [1, 2, 3, 4]) {
      clock.at = noonOf(day);
      await store(stream, day);
    }
  });
  afterEach(async () => {
    await sink.close();
    rmSync(dir, { recursive: true });
  });

  it('loses the files of days of which all is older, and nothing else', async () => {
    await sink.removeBefore(noonOf(2) + DAY_MS / 2 - 1);
    expect(folders()).toEqual(['2026-05-08', '2026-05-09', '2026-05-10']);
    await sink.removeBefore(noonOf(2) + DAY_MS / 2);
    expect(folders()).toEqual(['2026-05-09', '2026-05-10']);
    expect(await readTally(dir, '1', MONTH)).toEqual({ count: 4, position: 4 });
    expect(await store(stream, 2)).toBe(false);
  });

  it('leaves a reader the file that it has open', async () => {
    const [day = ''] = folders();
    const [name = ''] = readdirSync(join(dir, STREAM, day));
    const file = openSync(join(dir, STREAM, day, name), 'r');
    try {
      await sink.removeBefore(noonOf(9));
      expect(folders()).toEqual([]);
      expect(readFileSync(file, 'utf8')).toBe('{{"day":1}}\n');
    } finally {
      closeSync(file);
    }
  });

  it('goes on behind it, also after a restart with no file left', async () => {
    await sink.removeBefore(noonOf(9));
    expect(folders()).toEqual([]);
    await sink.close();
    await open();
    expect(await readTally(dir, '1', MONTH)).toEqual({ count: 4, position: 4 });
    expect(await store(stream, 4)).toBe(false);
    expect(await store(stream, 4, 'the same item in another frame')).toBe(false);
    expect(await store(stream, 5)).toBe(true);
    expect(readdirSync(join(dir, STREAM, '2026-05-10'))).toEqual(['000000006.ndjson']);
  });

  it('leaves files of others', async () => {
    const notes = join(dir, STREAM, '2026-05-07', 'notes.txt');
    writeFileSync(notes, 'read me');
    writeFileSync(join(dir, 'README'), 'about this folder');
    await sink.removeBefore(noonOf(3));
    expect(readdirSync(join(dir, STREAM, '2026-05-07'))).toEqual(['notes.txt']);
    expect(folders()).toEqual(['2026-05-07', '2026-05-09', '2026-05-10']);
  });

  it('is looked at every hour', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    let look: Promise<void> | undefined;
    const watched = Object.create(sink, {
      removeBefore: { value: (before: number) => (look = sink.removeBefore(before)) },
    }) as Sink;
    /** Each look sets the timer of the next when it has ended. */
    const lookEnded = async (): Promise<void> => {
      await new Promise((resolve) => setImmediate(resolve));
      await look;
      await new Promise((resolve) => setImmediate(resolve));
    };
    const retention = new Retention({ sink: watched, days: 2, now: async () => clock.now(), log });
    try {
      retention.start();
      await lookEnded();
      expect(folders()).toEqual(['2026-05-08', '2026-05-09', '2026-05-10']);
      clock.at = noonOf(5);
      vi.advanceTimersByTime(3_600_000);
      await lookEnded();
      expect(folders()).toEqual(['2026-05-09', '2026-05-10']);
      await retention.stop();
      clock.at = noonOf(6);
      vi.advanceTimersByTime(3_600_000);
      await lookEnded();
      expect(folders()).toEqual(['2026-05-09', '2026-05-10']);
    } finally {
      vi.useRealTimers();
      await retention.stop();
    }
  });
});

describe('the processor', () => {
  let harness: Harness;
  let running: RunningProcessor | undefined;
  const clock = new SetClock();
  const start = async (settings: Record<string, string>): Promise<void> => {
    running = await harness.run(settings, { clock });
  };
  afterEach(async () => {
    await running?.stop();
    await harness.close();
  });

  it('removes nothing without SLUICE_RETENTION, and with it what is older', async () => {
    harness = await Harness.start();
    clock.at = noonOf(1);
    await start({});
    await harness.publish([envelope([item('event', '{}')], { month: MONTH, position: 1 })]);
    await harness.drained();
    await running?.stop();
    const [file = ''] = harness.files();
    expect(file).toContain('2026-05-07');

    clock.at = noonOf(30);
    await start({});
    await running?.stop();
    expect(harness.files()).toEqual([file]);

    await start({ SLUICE_RETENTION: '30d' });
    await running?.stop();
    expect(harness.files()).toEqual([file]);

    clock.at = noonOf(32);
    await start({ SLUICE_RETENTION: '30d' });
    await eventually(() => !existsSync(join(harness.dir, file)));
    expect(await readTally(harness.dir, '42', MONTH)).toEqual({ count: 1, position: 1 });
  });

  it('removes nothing that only its own clock takes for old', async () => {
    harness = await Harness.start();
    clock.at = Date.now();
    await start({});
    await harness.publish([envelope([item('event', '{}')])]);
    await harness.drained();
    await running?.stop();
    const files = harness.files();
    expect(files).toHaveLength(1);
    clock.at = Date.now() + 400 * DAY_MS;
    await start({ SLUICE_RETENTION: '30d' });
    await running?.stop();
    expect(harness.files()).toEqual(files);
  });
});
