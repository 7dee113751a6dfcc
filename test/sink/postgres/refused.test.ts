/** Rows that the database refuses because of what an operator added to the sink's tables. */
import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { ACK_WAIT_MS } from '../../../src/limits.ts';
import { Database } from '../../../src/sink/postgres/database.ts';
import { UnavailableError } from '../../../src/sink/unavailable.ts';
import { encoded, logsOf, otlpItem } from '../../processor/decode/otlp/requests.ts';
import {
  entryOf,
  envelope,
  eventually,
  type FiledDeadLetter,
  Harness,
  hexId,
  item,
  log,
  type RunningProcessor,
} from '../../processor/harness.ts';
import { PostgresUnderTest } from '../sinks.ts';

const SECRET = 'bob@example.com';
/** Payloads that we accept, and the error of an index on `payload::jsonb ->> 'message'`. */
const HOSTILE: readonly (readonly [payload: string, code: string])[] = [
  [`{"message":"${SECRET}\\u0000"}`, '22P05'],
  [`{"message":"${SECRET}\\ud800"}`, '22P02'],
  [`{"message":"${SECRET}","n":1e999999}`, '22003'],
  [
    JSON.stringify({ message: Array.from({ length: 9_000 }, (_, n) => (n * n * 7919).toString(36)).join() }),
    '54000',
  ],
  [`{"message":"${SECRET}","deep":${'['.repeat(20_000)}${']'.repeat(20_000)}}`, '54001'],
];

let harness: Harness;
let sink: PostgresUnderTest;
let processor: RunningProcessor | undefined;
beforeEach(async () => {
  [harness, sink] = await Promise.all([Harness.start({ ackWaitMs: ACK_WAIT_MS }), PostgresUnderTest.start()]);
  processor = await harness.run({ SLUICE_SINK: sink.setting });
});
afterEach(async () => {
  await processor?.stop();
  await harness.close();
  await sink.close();
});

const event = (n: number, payload: string, type: 'event' | 'log' = 'event') =>
  envelope([item(type, payload)], { eventId: hexId(n), month: '2026-01', position: n });
const payloads = async (table = 'items'): Promise<string[]> =>
  (await sink.server.query<{ payload: string }>(`SELECT payload FROM sluice.${table} ORDER BY payload`)).map(
    ({ payload }) => payload,
  );
const letters = async (count: number): Promise<FiledDeadLetter[]> => {
  const box = await harness.letters();
  return eventually(async () => {
    const found = await box.list();
    return found.length >= count ? found : undefined;
  });
};

it('become dead letters by their error, among rows that are stored', async () => {
  await sink.server.query(`CREATE INDEX by_message ON sluice.items ((payload::jsonb ->> 'message'))`);
  const good = (n: number): string => `{"message":"good","n":${100 + n}}`;
  const entries = HOSTILE.flatMap(([payload], n) => [event(2 * n, payload), event(2 * n + 1, good(n))]);
  await harness.publish(entries);
  const filed = await letters(HOSTILE.length);
  expect(filed.map(({ reason }) => reason)).toEqual(
    HOSTILE.map(([, code]) => `the sink refuses it: postgres: SQLSTATE ${code}`),
  );
  await harness.drained();
  expect(await payloads()).toEqual(HOSTILE.map((_, n) => good(n)));
  expect(await sink.tally('42', '2026-01')).toMatchObject({ count: entries.length });
});

it('can be stored when the cause is gone: their keys are not those of resends', async () => {
  await sink.server.query(`CREATE INDEX by_message ON sluice.items ((payload::jsonb ->> 'message'))`);
  await harness.publish([event(1, HOSTILE[0]?.[0] as string)]);
  await letters(1);
  await harness.drained();
  await sink.server.query('DROP INDEX sluice.by_message');
  await harness.publish([event(1, HOSTILE[0]?.[0] as string)]);
  await eventually(async () => (await payloads()).length === 1);
});

it('are told by the constraint that they violate', async () => {
  await sink.server.query(`ALTER TABLE sluice.logs ADD CONSTRAINT no_bob CHECK (payload NOT LIKE '%bob%')`);
  await harness.publish([
    event(1, `{"items":[{"body":"${SECRET}"},1]}`, 'log'),
    event(2, '{"items":[2]}', 'log'),
  ]);
  const [letter] = await letters(1);
  expect(letter?.reason).toBe('the sink refuses it: postgres: SQLSTATE 23514 of no_bob');
  const entry = letter && entryOf(letter, await (await harness.letters()).bytesOf(letter));
  const [only] = entry?.kind === 'envelope' ? entry.items : [];
  expect(`${Buffer.from(only?.payload ?? [])}`).toBe(`{"items":[{"body":"${SECRET}"}]}`);
  await harness.drained();
  expect(await payloads('logs')).toEqual(['1', '2']);
});

it('of one log of an OTLP request leave the other logs stored, also when the client sends the request again', async () => {
  await sink.server.query(`ALTER TABLE sluice.logs ADD CONSTRAINT no_bob CHECK (payload NOT LIKE '%bob%')`);
  const request = logsOf(['first', 'bob', 'third'].map((stringValue) => ({ body: { stringValue } })));
  const one = otlpItem('otlp_logs', encoded('otlp_logs', request, 'protobuf'), 'protobuf');
  const entry = envelope([one], { eventId: hexId(1) });
  await harness.publish([entry], { stream: 'logs' });
  const [letter] = await letters(1);
  const stored = async (): Promise<unknown[]> =>
    (await payloads('logs')).map((payload) => (JSON.parse(payload) as { body: string }).body);
  await harness.drained();
  expect(await stored()).toEqual(['first', 'third']);
  await harness.publish([entry], { stream: 'logs' });
  await harness.drained();
  expect(await stored()).toEqual(['first', 'third']);
  await sink.server.query('ALTER TABLE sluice.logs DROP CONSTRAINT no_bob');
  await harness.replay(letter as FiledDeadLetter);
  await eventually(async () => (await stored()).length === 3);
});

it('do not keep a day from its partition where a generated column refuses them', async () => {
  await sink.server.query(
    `ALTER TABLE sluice.items ADD COLUMN message text GENERATED ALWAYS AS (payload::jsonb ->> 'message') STORED`,
  );
  await harness.publish([event(1, HOSTILE[0]?.[0] as string), event(2, '{"message":"good"}')]);
  await letters(1);
  await harness.drained();
  expect(await sink.server.query('SELECT message FROM sluice.items')).toEqual([{ message: 'good' }]);
});

it('are none for the documented index, and the documented queries read them', async () => {
  const [, sql] =
    /```sql\n(CREATE FUNCTION sluice[^`]*)```/.exec(readFileSync('docs/sinks.md', 'utf8')) ?? [];
  await sink.server.query(sql as string);
  const rows = [...HOSTILE.map(([payload]) => payload), '{"message":"hello"}'];
  await harness.publish(rows.map((payload, n) => event(n, payload)));
  await harness.drained();
  expect(await payloads()).toHaveLength(rows.length);
  expect(await harness.messages('SLUICE_DEAD_LETTERS')).toBe(0);
  const asked = (sql as string).split(';\n').find((statement) => statement.startsWith('SELECT event_id'));
  expect(await sink.server.query(asked as string)).toMatchObject([{ message: 'hello' }]);
});

it('are not quoted by an error', async () => {
  const database = new Database(sink.setting, log);
  const raise = `DO $$ BEGIN RAISE '${SECRET}' USING DETAIL = '${SECRET}', HINT = '${SECRET}'; END $$`;
  try {
    for (const asked of [`SELECT '${SECRET}'::int`, raise]) {
      const error = await database.query(asked).catch((thrown: unknown) => thrown);
      const { cause } = error as Error;
      const shown = [error, cause].map((one) => `${(one as Error)?.stack}${JSON.stringify(one)}`).join();
      expect(shown).not.toContain(SECRET);
      expect(shown).toMatch(/postgres: SQLSTATE (22P02|P0001)/);
    }
    await expect(database.query(raise)).rejects.toThrow(UnavailableError);
  } finally {
    await database.close();
  }
});
