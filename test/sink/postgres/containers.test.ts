/** Log containers that are small and would make many or large rows: anybody with a public key can send them. */
import { describe, expect, it } from 'vitest';
import type { SinkCount, SinkRecord, StreamSink } from '../../../src/sink/sink.ts';
import { hexId, NOW, RECEIVED_AT } from '../../processor/harness.ts';
import { connectTo, countingProxy, server, usePostgres } from './fixture.ts';

const MIB = 1024 * 1024;
const PLAIN_HEADER = '{"type":"log"}';

usePostgres();

const open = async (url?: string): Promise<StreamSink> => (await connectTo(url)).open('SLUICE_LOGS');

type Container = { json: string; header?: string; sdk?: string };

/** `n`: of the envelope; `index`: the item's place in it. */
function row({ json, header = PLAIN_HEADER, sdk }: Container, n: number, index = 0): SinkRecord {
  const envelope = { projectId: '1', eventId: hexId(n), receivedAt: RECEIVED_AT, ...(sdk && { sdk }) };
  const head = `{"project_id":"1","item_header":${header},"payload":`;
  return { type: 'log', head, fields: { envelope, index, header }, json: Buffer.from(json) };
}

/** One frame of these containers, each an entry: an envelope of its own. */
async function store(
  stream: StreamSink,
  frameId: string,
  containers: readonly Container[],
): Promise<{ counts: readonly SinkCount[]; bytes: number }> {
  const batch = await stream.begin([frameId]);
  try {
    for (let index = batch.entriesKnown(frameId); index < containers.length; index++) {
      batch.beginEntry({ frameId, index });
      batch.add(row(containers[index] as Container, index));
      await batch.relieve();
    }
    return { counts: await batch.commit(NOW), bytes: batch.bytes };
  } finally {
    await batch.abandon();
  }
}

const ones = (count: number): string => Array(count).fill('1').join(',');
const headerOf = (bytes: number): string => `{"type":"log","x":"${'h'.repeat(bytes - 21)}"}`;
const LONG_HEADER = { json: `{"items":[${ones(40_000)}]}`, header: headerOf(15_000) };
const LONG_CONTAINER = { json: `{"items":[${ones(50_000)}],"x":"${'c'.repeat(100_000)}"}` };

type Stored = { event_id: string; log_index: number | null; container: string | null; payload: string };
const stored = (): Promise<Stored[]> =>
  server.query<Stored>(
    'SELECT event_id, log_index, container, payload FROM sluice.logs ORDER BY event_id, item_index, log_index',
  );
const whole = (json: string, n = 0): Stored => ({
  event_id: hexId(n),
  log_index: null,
  container: null,
  payload: json,
});

describe('a small container', () => {
  it.each([
    ['whose header would stand in 40,000 rows', LONG_HEADER],
    ['that says 100 KB beside 50,000 logs', LONG_CONTAINER],
    ['that says much beside few logs', { json: `{"x":"${'c'.repeat(MIB)}","items":[1,2,3]}` }],
    ['whose SDK has a long name', { json: `{"items":[${ones(200)}]}`, sdk: 'ü'.repeat(4_000) }],
    ['of more than 1,000 logs', { json: `{"items":[${ones(1_001)}]}` }],
    ['of more than 1,000 members', { json: `{${'"a":1,'.repeat(1_000)}"items":[1,2]}` }],
  ])('%s stays whole', async (_, container) => {
    const { counts } = await store(await open(), 'f', [container]);
    expect(counts).toEqual([{ type: 'log', result: 'stored', count: 1 }]);
    expect(await stored()).toEqual([whole(container.json)]);
  });

  it.each([
    ['1,000 logs', { json: `{"items":[${ones(1_000)}],"version":2}` }, 1_000],
    ['60 logs beside a header of 16 KiB', { json: `{"items":[${ones(60)}]}`, header: headerOf(16_384) }, 60],
    ['one log beside 2 MiB', { json: `{"items":[1],"x":"${'c'.repeat(2 * MIB)}"}` }, 1],
  ])('of %s is split', async (_, container, rows) => {
    await store(await open(), 'f', [container]);
    const found = await stored();
    expect(found.map(({ log_index }) => log_index)).toEqual(Array.from({ length: rows }, (_, n) => n));
    expect(new Set(found.map(({ payload }) => payload))).toEqual(new Set(['1']));
  });

  it('behind ten others in its envelope stays whole', async () => {
    const stream = await open();
    const batch = await stream.begin(['f']);
    batch.beginEntry({ frameId: 'f', index: 0 });
    for (const index of [8, 9, 10, 999]) batch.add(row({ json: `{"items":[${index},0]}` }, 0, index));
    await batch.commit(NOW);
    expect((await stored()).map(({ log_index, payload }) => [log_index, payload])).toEqual([
      [0, '8'],
      [1, '0'],
      [0, '9'],
      [1, '0'],
      [null, '{"items":[10,0]}'],
      [null, '{"items":[999,0]}'],
    ]);
  });

  it('is stored beside the others of its frame, which it does not hold up', async () => {
    const others = Array.from({ length: 20 }, () => ({ json: '{"items":[true]}' }));
    await store(await open(), 'f', [...others, LONG_CONTAINER, LONG_HEADER]);
    const found = await stored();
    expect(found.filter(({ payload }) => payload === 'true')).toHaveLength(20);
    expect(found.slice(20)).toEqual([whole(LONG_CONTAINER.json, 20), whole(LONG_HEADER.json, 21)]);
  });

  it('makes the same rows in whatever batch it comes, once', async () => {
    const [one, other] = [await open(), await open()];
    const split = { json: `{"items":[${ones(900)}]}`, header: headerOf(1_000) };
    const frame = [LONG_HEADER, split, LONG_CONTAINER, ...Array(20).fill(split)];
    // First a part of the frame, then all of it by two processors: what was there is not stored again, however the rest is cut up.
    await store(one, 'f', frame.slice(0, 2));
    await Promise.all([store(one, 'f', frame), store(other, 'f', frame)]);
    await store(other, 'f', frame);
    const rows = await stored();
    expect(rows).toHaveLength(2 + 21 * 900);
    const wholes = rows.filter(({ log_index }) => log_index === null);
    expect(wholes).toEqual([whole(LONG_HEADER.json), whole(LONG_CONTAINER.json, 2)]);
  });
});

describe('a batch of containers', () => {
  it.each([
    ['many rows', Array.from({ length: 30 }, () => ({ json: `{"items":[${ones(1_000)}]}` }))],
    ['long rows', Array(12).fill({ json: `{"items":[${ones(60)}]}`, header: headerOf(16_384) })],
    ['whole ones', Array(40).fill(LONG_CONTAINER)],
  ])('of %s counts what it sends', async (_, containers) => {
    const proxy = await countingProxy(server.port);
    const stream = await open(server.url.replace(`:${server.port}/`, `:${proxy.port}/`));
    await store(stream, 'before', [{ json: '{"items":[1]}' }]); // connections, partitions
    const before = proxy.sent();
    const { bytes } = await store(stream, 'f', containers);
    const sent = proxy.sent() - before;
    expect(sent).toBeGreaterThan(3 * MIB);
    expect(bytes / sent).toBeGreaterThan(0.99); // beside it there are keys and commands
    expect(bytes / sent).toBeLessThan(1.1);
    proxy.close();
  });
});
