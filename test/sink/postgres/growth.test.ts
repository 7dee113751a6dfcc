/** What the sink remembers does not grow with what it has stored: neither rows nor their indexes. */
import { expect, it } from 'vitest';
import { systemClock as clock } from '../../../src/lib/clock.ts';
import { resendKey } from '../../../src/sink/item-key.ts';
import { PostgresSink } from '../../../src/sink/postgres/postgres.ts';
import type { SinkRecord, StreamSink } from '../../../src/sink/sink.ts';
import { hexId, log, NOW } from '../../processor/harness.ts';
import { server, usePostgres } from './fixture.ts';

const HOUR_MS = 3_600_000;
const FROM = Date.UTC(2026, 4, 6);
const HOURS = 7;
const FRAMES = 15;
const ITEMS_OF_A_FRAME = 100;

usePostgres();

function event(n: number, receivedAt: number): SinkRecord {
  const envelope = { projectId: '1', eventId: hexId(n), receivedAt };
  return {
    type: 'event',
    head: '{',
    fields: { envelope, index: 0, header: '{}' },
    json: Buffer.from('{}'),
    resend: { key: resendKey(envelope, { index: 0, type: 'event' }), receivedAt },
  };
}

async function storeHour(stream: StreamSink, hour: number): Promise<void> {
  for (let frame = 0; frame < FRAMES; frame++) {
    const frameId = `${hour}:${frame}`;
    const batch = await stream.begin([frameId]);
    for (let index = 0; index < ITEMS_OF_A_FRAME; index++) {
      const n = (hour * FRAMES + frame) * ITEMS_OF_A_FRAME + index;
      batch.beginEntry({ frameId, index, usage: { projectId: '1', month: '2026-05', position: n } });
      batch.add(event(n, FROM + hour * HOUR_MS));
    }
    await batch.commit(NOW);
  }
}

it('keys, their indexes and the tally are as large after many hours as after a few', async () => {
  const sink = await PostgresSink.connect(server.url, { log, clock });
  const stream = await sink.open('SLUICE_EVENTS');
  const sizes: { rows: number; bytes: number }[] = [];
  for (let hour = 0; hour < HOURS; hour++) {
    // A frame's key stays for a day of the server's clock: a day passes.
    await server.query(`UPDATE sluice.seen_frames SET stored_at = stored_at - interval '25 hours'`);
    await storeHour(stream, hour);
    await server.query('VACUUM sluice.seen_frames, sluice.seen_items, sluice.tally');
    const [size] = await server.query<{ rows: string; bytes: string }>(`SELECT
  (SELECT count(*) FROM sluice.seen_frames) + (SELECT count(*) FROM sluice.seen_items) + (SELECT count(*) FROM sluice.tally) AS rows,
  pg_total_relation_size('sluice.seen_frames') + pg_total_relation_size('sluice.seen_items') + pg_total_relation_size('sluice.tally') AS bytes`);
    sizes.push({ rows: Number(size?.rows), bytes: Number(size?.bytes) });
  }
  await sink.close();
  const told = JSON.stringify(sizes);
  const early = sizes[2] as { rows: number; bytes: number };
  const late = sizes.at(-1) as { rows: number; bytes: number };
  expect(late.rows, told).toBeLessThanOrEqual(early.rows);
  expect(late.bytes, told).toBeLessThanOrEqual(1.5 * early.bytes);
  const [stored] = await server.query('SELECT count(*)::int AS n FROM sluice.items');
  expect(stored?.n).toBe(HOURS * FRAMES * ITEMS_OF_A_FRAME);
});
