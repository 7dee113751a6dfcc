import { connect, createServer, type Server } from 'node:net';
import { describe, expect, it, vi } from 'vitest';
import { POSTGRES_IDLE_MS_MAX, SINK_BATCH_BYTES_MAX } from '../../../src/limits.ts';
import { resendKey } from '../../../src/sink/item-key.ts';
import { Database, RefusedError } from '../../../src/sink/postgres/database.ts';
import { SCHEMA_VERSION, SchemaError } from '../../../src/sink/postgres/schema.ts';
import { readPostgresTally } from '../../../src/sink/postgres/tally.ts';
import type { SinkRecord, StreamSink } from '../../../src/sink/sink.ts';
import { UnavailableError } from '../../../src/sink/unavailable.ts';
import { eventually, hexId, log, NOW } from '../../processor/harness.ts';
import { connectTo, countingProxy, server, usePostgres } from './fixture.ts';

const STREAM = 'SLUICE_EVENTS';
const NOON = Date.UTC(2026, 4, 6, 12);
const HOUR_MS = 3_600_000;
const MONTH = '2026-05';

usePostgres();

const open = async (url?: string): Promise<StreamSink> => (await connectTo(url)).open(STREAM);

function row(n: number, receivedAt = NOON): SinkRecord {
  const envelope = { projectId: '1', eventId: hexId(n), receivedAt };
  const place = { index: 0, type: 'event' as const };
  return {
    type: 'event',
    head: '{',
    fields: { envelope, index: 0, header: '{"type":"event"}' },
    json: Buffer.from(`{"n":${n}}`),
    resend: { key: resendKey(envelope, place), receivedAt },
  };
}

/** One frame of these events, each an entry. @returns what the sink says of it */
async function store(stream: StreamSink, frameId: string, rows: readonly SinkRecord[]) {
  const batch = await stream.begin([frameId]);
  try {
    for (let index = batch.entriesKnown(frameId); index < rows.length; index++) {
      batch.beginEntry({ frameId, index, usage: { projectId: '1', month: MONTH, position: index + 1 } });
      batch.add(rows[index] as SinkRecord);
      await batch.relieve();
    }
    return await batch.commit(NOW);
  } finally {
    await batch.abandon();
  }
}
const count = async (table: string): Promise<number> =>
  (await server.query<{ count: number }>(`SELECT count(*)::int AS count FROM sluice.${table}`))[0]?.count ??
  -1;

it('keeps a transaction that is open while dead letters are filed', async () => {
  const batch = await (await open()).begin(['large']);
  const lastStatement = async (): Promise<string | undefined> =>
    (
      await server.query<{ query: string }>(
        "SELECT query FROM pg_stat_activity WHERE application_name = 'sluice' AND state = 'idle in transaction'",
      )
    )[0]?.query;
  vi.useFakeTimers({ toFake: ['performance'] });
  try {
    batch.beginEntry({ frameId: 'large', index: 0 });
    batch.add({ ...row(1), json: Buffer.from(`"${'x'.repeat(SINK_BATCH_BYTES_MAX)}"`) });
    await batch.relieve();
    await batch.relieve();
    expect(await lastStatement()).toBe('RELEASE SAVEPOINT rows');
    vi.advanceTimersByTime(POSTGRES_IDLE_MS_MAX / 2);
    await batch.relieve();
    expect(await lastStatement()).toBe('SELECT 1');
  } finally {
    vi.useRealTimers();
    await batch.abandon();
  }
});

it('compresses large rows with lz4 where the server has it, but a column that has a compression with that one', async () => {
  const stream = await open();
  const json = Buffer.from(`"${'large '.repeat(1_000)}"`);
  await store(stream, 'default', [{ ...row(1), json }]);
  await server.query('ALTER TABLE sluice.items_20260506 ALTER COLUMN payload SET COMPRESSION pglz');
  await store(stream, 'chosen', [{ ...row(2, NOON + 1), json }]);
  const found = await server.query<{ used: string; length: number }>(
    'SELECT pg_column_compression(payload) AS used, length(payload) FROM sluice.items ORDER BY received_at',
  );
  // A server that was built without lz4 knows no such compression.
  const hasLz4 = await server.client().then(async (client) => {
    const set = client.query('SET default_toast_compression = lz4').then(
      () => true,
      () => false,
    );
    return set.finally(() => client.end());
  });
  expect(found).toEqual([
    { used: hasLz4 ? 'lz4' : 'pglz', length: 6_002 },
    { used: 'pglz', length: 6_002 },
  ]);
});

describe('rows that the database refuses', () => {
  const refused = (n: number): SinkRecord => ({ ...row(n), json: Buffer.from(`{"refuse me":${n}}`) });

  it.each([
    ['a constraint', `ADD CONSTRAINT no_such CHECK (payload NOT LIKE '%refuse me%')`],
    ['a number', `ADD COLUMN n int GENERATED ALWAYS AS (replace(left(payload, 6), '{"n":', '')::int) STORED`],
  ])('by %s cost as many statements as one of them does', async (_, change) => {
    const proxy = await countingProxy(server.port);
    const stream = await open(server.url.replace(`:${server.port}/`, `:${proxy.port}/`));
    await store(stream, 'before', [row(9)]);
    await server.query(`ALTER TABLE sluice.items ${change}`);
    const statementsFor = async (frameId: string, rows: readonly SinkRecord[]): Promise<number> => {
      const before = proxy.statements();
      await store(stream, frameId, rows);
      return proxy.statements() - before;
    };
    const one = await statementsFor('one', [refused(1), row(5)]);
    const many = Array.from({ length: 300 }, (_, n) => (n % 100 === 50 ? row(100 + n) : refused(100 + n)));
    expect(await statementsFor('many', many)).toBe(one);
    expect(await count('items')).toBe(1 + 1 + 3);
    proxy.close();
  });

  it('by a unique index leave the first of them, and the others of their containers', async () => {
    const stream = await open();
    await server.query('CREATE UNIQUE INDEX by_payload ON sluice.logs (received_at, payload)');
    const logs = ['{"items":[1,2]}', '{"items":[3,2]}', '{"items":[3,4]}', '3'];
    const batch = await stream.begin(['f']);
    batch.beginEntry({ frameId: 'f', index: 0 });
    for (const [n, json] of logs.entries()) batch.add({ ...row(n), type: 'log', json: Buffer.from(json) });
    const refused = await batch.prepare?.();
    expect(refused).toEqual(
      [1, 0, undefined].map((element) => ({
        frameId: 'f',
        entry: 0,
        item: 0,
        ...(element !== undefined && { element }),
        reason: expect.stringMatching(/^postgres: SQLSTATE 23505 of logs_/),
      })),
    );
    // The third is counted by its first row, which is refused.
    expect(await batch.commit(NOW)).toEqual([{ type: 'log', result: 'stored', count: 2 }]);
    const found = await server.query('SELECT payload FROM sluice.logs ORDER BY payload');
    expect(found.map(({ payload }) => payload)).toEqual(['1', '2', '3', '4']);
  });
});

describe('the schema', () => {
  it('is made once, however many processors start together', async () => {
    await Promise.all(Array.from({ length: 5 }, () => connectTo()));
    expect(await count('migrations')).toBe(SCHEMA_VERSION);
    expect(await count('items')).toBe(0);
  });

  it('of a newer program is refused', async () => {
    await connectTo();
    await server.query('INSERT INTO sluice.migrations VALUES (1000)');
    await expect(connectTo()).rejects.toThrow(
      `version 1000 of the sink's schema, and this program knows ${SCHEMA_VERSION}:`,
    );
  });

  it('of a newer program that only added to it is taken, as an earlier program takes this one', async () => {
    await connectTo();
    // What version 0.1.0 asks: it knows version 1.
    const asked = 'SELECT coalesce(max(version), 0) AS version FROM sluice.migrations';
    expect(await server.query(asked)).toEqual([{ version: 1 }]);
    await server.query('INSERT INTO sluice.migrations VALUES (-1000)');
    await store(await open(), 'taken', [row(1)]);
    expect(await count('items')).toBe(1);
  });

  it('of the first version is brought up to date and keeps its rows', async () => {
    await store(await open(), 'before', [row(1)]);
    await server.query(
      `DROP TABLE sluice.spans, sluice.extras; ALTER TABLE sluice.heartbeats DROP COLUMN body_base64;
        DELETE FROM sluice.migrations WHERE abs(version) > 1`,
    );
    const stream = await open();
    await store(stream, 'after', [row(2), { ...row(3), type: 'span', json: Buffer.from('{"items":[1,2]}') }]);
    expect([await count('migrations'), await count('items'), await count('spans')]).toEqual([
      SCHEMA_VERSION,
      2,
      2,
    ]);
  });

  it('of an earlier version gets what is new, also a partition that was detached before', async () => {
    await connectTo();
    const partition = 'CREATE TABLE sluice.heartbeats_20260506 (LIKE sluice.heartbeats)';
    await server.query(`ALTER TABLE sluice.heartbeats DROP COLUMN body_base64; ${partition};
      DELETE FROM sluice.migrations WHERE abs(version) > 3`);
    const stream = await open();
    const fields = { token: 't', receivedAt: NOON, bodyIn: 'body_base64' } as const;
    const ping: SinkRecord = { type: 'heartbeat', head: '{', fields, json: Buffer.from('"/wA="') };
    await store(stream, 'ping', [ping]);
    const [stored] = await server.query('SELECT body, body_base64 FROM sluice.heartbeats_20260506');
    expect(stored).toEqual({ body: null, body_base64: '/wA=' });
    expect(await count('heartbeats')).toBe(1);
  });

  it('is brought up to date when no report reads its tables; meanwhile an earlier processor stores', async () => {
    const earlier = await open();
    await store(earlier, 'before', [row(1)]);
    await server.query(`ALTER TABLE sluice.items DROP COLUMN payload_encoding;
      DELETE FROM sluice.migrations WHERE abs(version) > 4`);
    const report = server.query('BEGIN; SELECT count(*) FROM sluice.items; SELECT pg_sleep(8); COMMIT');
    const reads = `SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'`;
    await eventually(async () => (await server.query(reads)).length > 0);
    const waits = `SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'`;
    const newer = open();
    await eventually(async () => (await server.query(waits)).length > 0);
    // What a processor of the earlier version writes.
    await server.query(`INSERT INTO sluice.items (project_id, event_id, item_index, type, received_at, item_header, payload)
      VALUES ('1', '${hexId(2)}', 0, 'event', '2026-05-06T12:00:00Z', '{}', '{}')`);
    await expect(store(await newer, 'newer', [row(3)])).rejects.toThrow('waits to be brought up to date');
    expect(await server.query(reads), 'the report still runs').toHaveLength(1);
    await report;
    await store(await newer, 'newer', [row(3)]);
    expect([await count('migrations'), await count('items')]).toEqual([SCHEMA_VERSION, 3]);
  });

  it('needs no right to create anything when it is there', async () => {
    await connectTo();
    await server.query(`CREATE ROLE writer LOGIN;
      GRANT USAGE ON SCHEMA sluice TO writer; GRANT ALL ON ALL TABLES IN SCHEMA sluice TO writer`);
    await connectTo(server.url.replace('postgres@', 'writer@'));
    await server.query('DROP OWNED BY writer; DROP ROLE writer');
  });

  it('whose role may add no partition stores the days that are there, and no new day', async () => {
    await store(await open(), 'before', [row(1)]);
    await server.query(`CREATE ROLE writer LOGIN;
      GRANT USAGE ON SCHEMA sluice TO writer; GRANT ALL ON ALL TABLES IN SCHEMA sluice TO writer;
      GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA sluice TO writer`);
    const stream = await open(server.url.replace('postgres@', 'writer@'));
    await store(stream, 'today', [row(2)]);
    const tomorrow = store(stream, 'tomorrow', [row(3, NOON + 24 * HOUR_MS)]);
    await expect(tomorrow).rejects.toThrow('permission denied for schema sluice');
    await expect(tomorrow).rejects.toThrow(UnavailableError);
    expect(await count('items')).toBe(2);
    await server.query('DROP OWNED BY writer; DROP ROLE writer');
  });

  it.each([
    ['a database that does not exist', (url: string) => url.replace(/\/postgres$/, '/absent')],
    ['a role that does not exist', (url: string) => url.replace('postgres@', 'nobody@')],
  ])('cannot be made in %s, which is said at once', async (_, change) => {
    await expect(connectTo(change(server.url))).rejects.toThrow(SchemaError);
  });

  it('is refused to a database that cannot hold every character', async () => {
    await server.query(
      `CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`,
    );
    await expect(connectTo(server.url.replace(/\/postgres$/, '/latin'))).rejects.toThrow(/LATIN1.*UTF8/);
  });
});

describe('partitions', () => {
  const partitions = async (): Promise<unknown[]> =>
    (
      await server.query(
        `SELECT relname FROM pg_inherits JOIN pg_class ON oid = inhrelid WHERE inhparent = 'sluice.items'::regclass ORDER BY 1`,
      )
    ).map(({ relname }) => relname);
  const edges = ['items_before_2020', 'items_from_2100'];

  it('are made for the days that come, by several processors at once', async () => {
    const streams = await Promise.all([open(), open(), open()]);
    const days = [NOON, NOON + 12 * HOUR_MS - 1, NOON + 12 * HOUR_MS];
    await Promise.all(
      streams.map((stream, s) =>
        store(
          stream,
          `f${s}`,
          days.map((at, n) => row(10 * s + n, at)),
        ),
      ),
    );
    expect(await partitions()).toEqual(['items_20260506', 'items_20260507', ...edges]);
    expect(await count('items_20260506')).toBe(6);
    expect(await count('items')).toBe(9);
  });

  it('are not made for moments that only a broken clock gives', async () => {
    const stream = await open();
    const moments = [0, Date.UTC(2020, 0, 1) - 1, Date.UTC(2100, 0, 1), Date.UTC(200_000, 0, 1)];
    await store(
      stream,
      'f',
      moments.map((at, n) => row(n, at)),
    );
    expect(await partitions()).toEqual(edges);
    expect([await count('items_before_2020'), await count('items_from_2100')]).toEqual([2, 2]);
  });

  it('that somebody dropped or detached come back when a row needs them', async () => {
    const stream = await open();
    await store(stream, 'a', [row(1)]);
    await server.query('DROP TABLE sluice.items_20260506');
    await expect(store(stream, 'b', [row(2)])).rejects.toThrow(UnavailableError);
    await store(stream, 'b', [row(2)]);
    expect(await count('items')).toBe(1);
    await server.query('ALTER TABLE sluice.items DETACH PARTITION sluice.items_20260506');
    await expect(store(stream, 'c', [row(3)])).rejects.toThrow(UnavailableError);
    await store(stream, 'c', [row(3)]);
    expect(await count('items')).toBe(2);
  });

  it('are made while somebody reads for a long time', async () => {
    const stream = await open();
    await store(stream, 'a', [row(1)]);
    const reader = await server.client();
    await reader.query('BEGIN; SELECT count(*) FROM sluice.items');
    await store(stream, 'b', [row(2, NOON + 24 * HOUR_MS)]);
    await reader.end();
    expect(await count('items_20260507')).toBe(1);
  });
});

describe('rows of containers', () => {
  it.each(['log', 'span'] as const)(
    'are one for each %s, and hold what else the container said',
    async (type) => {
      const stream = await open();
      const container = (json: string): SinkRecord => {
        const { resend: _, ...bare } = row(1);
        return { ...bare, type, json: Buffer.from(json) };
      };
      const texts = ['{"items":[{"n":1}, {"n":2.0}],"version":2}', '{"items":[]}', '{"items":[true]}'];
      await store(stream, 'f', texts.map(container));
      const rows = await server.query(
        `SELECT ${type}_index AS index, container, payload FROM sluice.${type}s ORDER BY payload COLLATE "C"`,
      );
      expect(rows).toEqual(
        [
          { index: null, container: null, payload: '{"items":[]}' },
          { index: 0, container: null, payload: 'true' },
          { index: 0, container: '{"version":2}', payload: '{"n":1}' },
          { index: 1, container: '{"version":2}', payload: '{"n":2.0}' },
        ].sort((a, b) => (a.payload < b.payload ? -1 : 1)),
      );
    },
  );
});

describe('a frame', () => {
  it('that two processors hold is stored by one of them, entry by entry', async () => {
    const [one, other] = [await open(), await open()];
    const rows = Array.from({ length: 40 }, (_, n) => row(n));
    const results = await Promise.all(
      Array.from({ length: 12 }, (_, n) => store(n % 2 ? one : other, 'f', rows.slice(0, 10 + (n % 3) * 15))),
    );
    expect(await count('items')).toBe(40);
    const stored = results.flat().filter(({ result }) => result === 'stored');
    expect(stored.reduce((sum, { count }) => sum + count, 0)).toBe(40);
    expect(await readPostgresTally(server.url, { projectId: '1', month: MONTH })).toEqual({
      count: 40,
      position: 40,
    });
  });

  it('may share keys in another order with what another processor stores: neither waits for ever', async () => {
    const streams = [await open(), await open()];
    const keyOf = ({ resend }: SinkRecord): Buffer => resend?.key ?? Buffer.alloc(0);
    const rows = Array.from({ length: 9 }, (_, n) => row(n)).sort((a, b) =>
      Buffer.compare(keyOf(a), keyOf(b)),
    );
    // Both are under way when both wait: for us, in the middle, or for each other.
    const third = await server.client();
    await third.query('BEGIN');
    await third.query(`INSERT INTO sluice.seen_items VALUES ($1, 'x', 0)`, [keyOf(rows[4] as SinkRecord)]);
    const stores = [rows, rows.toReversed()].map((order, n) =>
      store(streams[n] as StreamSink, `f${n}`, order),
    );
    await eventually(async () => {
      const waiting = await server.query(`SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'`);
      return waiting.length === 2;
    });
    await third.query('ROLLBACK');
    await third.end();
    await Promise.all(stores);
    expect(await count('items')).toBe(9);
    const tally = await readPostgresTally(server.url, { projectId: '1', month: MONTH });
    expect(tally).toEqual({ count: 18, position: 9 });
  });

  it('whose batch is abandoned after a block was written leaves nothing', async () => {
    const stream = await open();
    const batch = await stream.begin(['f']);
    batch.beginEntry({ frameId: 'f', index: 0 });
    for (let n = 0; n < 3; n++) {
      batch.add({ ...row(n), json: Buffer.from(`"${'x'.repeat(5 * 1024 * 1024)}"`) });
      await batch.relieve();
    }
    const [sent] = await server.query(
      `SELECT count(*)::int AS open FROM pg_stat_activity WHERE state = 'idle in transaction'`,
    );
    expect(sent?.open).toBe(1);
    await batch.abandon();
    expect([await count('items'), await count('seen_frames'), await count('seen_items')]).toEqual([0, 0, 0]);
    expect(await store(stream, 'f', [row(0)])).toEqual([{ type: 'event', result: 'stored', count: 1 }]);
  });
});

describe('what is known', () => {
  it('is forgotten by later batches: frames after a day, items fifteen minutes of the data later', async () => {
    const stream = await open();
    await store(stream, 'old', [row(1)]);
    await store(stream, 'new', [row(2, NOON + 15 * 60_000)]);
    await server.query(`UPDATE sluice.seen_frames SET stored_at = now() - interval '25 hours'
      WHERE key = (SELECT key FROM sluice.seen_frames ORDER BY stored_at LIMIT 1)`);
    expect([await count('seen_frames'), await count('seen_items')]).toEqual([2, 2]);
    await store(stream, 'next', [row(3, NOON + 15 * 60_000 + 1)]);
    expect([await count('seen_frames'), await count('seen_items')]).toEqual([2, 2]);
    expect(await count('items')).toBe(3);
  });

  it('in another stream is left alone, which may lag behind', async () => {
    const sink = await connectTo();
    await store(await sink.open('SLUICE_TRANSACTIONS'), 'a', [row(1)]);
    await store(await sink.open(STREAM), 'b', [row(2, NOON + 5 * HOUR_MS)]);
    expect(await count('seen_items')).toBe(2);
  });

  it('of the tally are the newest three months', async () => {
    await connectTo();
    await server.query(
      `INSERT INTO sluice.tally SELECT '1', m, 's', 1, 1 FROM unnest(ARRAY['2025-11','2025-12','2026-01','2026-02']) m`,
    );
    await connectTo();
    const months = await server.query('SELECT month FROM sluice.tally ORDER BY 1');
    expect(months.map(({ month }) => month)).toEqual(['2025-12', '2026-01', '2026-02']);
  });
});

describe('a commit', () => {
  it('waits for the disk although the server is set not to', async () => {
    await server.query('ALTER SYSTEM SET synchronous_commit = off');
    await server.query('SELECT pg_reload_conf()');
    const database = new Database(server.url, log);
    const seen: unknown[] = [];
    await database.transaction(async (transaction) => {
      seen.push(...(await transaction.query('SHOW synchronous_commit')));
    });
    await database.close();
    await server.query('ALTER SYSTEM RESET synchronous_commit');
    await server.query('SELECT pg_reload_conf()');
    expect(seen).toEqual([{ synchronous_commit: 'on' }]);
  });

  it('whose answer is lost is done again, and stores nothing twice', async () => {
    const proxy = await cuttingProxy(server.port);
    const stream = await open(server.url.replace(`:${server.port}/`, `:${proxy.port}/`));
    await store(stream, 'before', [row(0)]);
    proxy.cutAfterCommit();
    await expect(store(stream, 'f', [row(1), row(2)])).rejects.toThrow(UnavailableError);
    expect(await count('items')).toBe(3); // it did commit
    expect(await store(stream, 'f', [row(1), row(2)])).toEqual([]);
    expect(await count('items')).toBe(3);
    expect(await readPostgresTally(server.url, { projectId: '1', month: MONTH })).toMatchObject({ count: 3 });
    proxy.server.close();
  });
});

describe('a value that the server refuses', () => {
  it('is no outage: waiting would not fix it', async () => {
    const database = new Database(server.url, log);
    const error = await database.query(`SELECT 'x'::int`).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(RefusedError);
    expect(error).toMatchObject({ message: 'postgres: SQLSTATE 22P02' });
    await expect(database.query('SELECT * FROM absent')).rejects.toThrow(UnavailableError);
    await database.close();
  });
});

/** Hands bytes on in both directions; when told to, swallows the server's answer to the next COMMIT and cuts the connection. */
async function cuttingProxy(
  target: number,
): Promise<{ port: number; server: Server; cutAfterCommit(): void }> {
  let cutting = false;
  const proxy = createServer((client) => {
    const upstream = connect(target, '127.0.0.1');
    let committed = false;
    client.on('data', (data) => {
      committed ||= cutting && data.includes('COMMIT\0');
      upstream.write(data);
    });
    upstream.on('data', (data) => {
      if (!committed) return client.write(data);
      cutting = false;
      return client.destroy();
    });
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      from.on('error', () => to.destroy());
      from.on('close', () => to.destroy());
    }
  });
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  const address = proxy.address();
  return {
    port: typeof address === 'object' && address ? address.port : 0,
    server: proxy,
    cutAfterCommit: () => {
      cutting = true;
    },
  };
}
