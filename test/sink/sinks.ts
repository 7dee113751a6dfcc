/** The sinks whose stores every machine has, as the conformance suite sees them. */
import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { sinksIn } from '../../src/config.ts';
import { tallyReader } from '../../src/sink/read-tally.ts';
import type { SinkGuarantee } from '../../src/sink/sink.ts';
import type { TallyOfMonth } from '../../src/sink/tally.ts';
import type { StoredRecord } from '../processor/harness.ts';
import { TestPostgres } from '../support/postgres.ts';
import { temporaryFolder } from '../support/servers.ts';

export interface SinkUnderTest {
  readonly guarantee: SinkGuarantee;
  /** The value of SLUICE_SINK. */
  readonly setting: string;
  /**
   * Every record as the contract shows it (part 6), in no particular order; a container is one record for each log or span of it. Of a
   * repeatable sink what a reader sees who merges by row key.
   */
  records(): Promise<StoredRecord[]>;
  /** The stored texts of an event's payloads. */
  payloadTexts(eventId: string): Promise<string[]>;
  /** Undefined where the sink keeps none. */
  readonly keepsNoTally?: true;
  tally(projectId: string, month: string): Promise<TallyOfMonth | undefined>;
  /** A sink that forgets them with its process writes a resend once more after a restart. */
  readonly forgetsResends?: true;
  close(): Promise<void>;
}

/** As a sink's reader says it of the project, and the same of all projects. */
export async function tallyIn(setting: string, projectId: string, month: string): Promise<TallyOfMonth> {
  const reader = tallyReader(sinksIn(setting) ?? []);
  const tally = await reader?.ofProject(projectId, month);
  expect((await reader?.ofMonth(month))?.get(projectId) ?? 0).toBe(tally?.count);
  return tally as TallyOfMonth;
}

export class NdjsonUnderTest implements SinkUnderTest {
  readonly guarantee = 'exactly once';
  readonly #dir = temporaryFolder('sink');
  readonly setting = `ndjson:${this.#dir}`;

  #lines(): string[] {
    return readdirSync(this.#dir, { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ndjson'))
      .flatMap((name) => readFileSync(join(this.#dir, name), 'utf8').trimEnd().split('\n'));
  }

  async records(): Promise<StoredRecord[]> {
    const found = this.#lines().map((line) => JSON.parse(line) as StoredRecord);
    return found.flatMap((record) =>
      record.type === 'log' || record.type === 'span'
        ? (record.payload as { items: unknown[] }).items.map((payload) => ({ ...record, payload }))
        : [record],
    );
  }

  async payloadTexts(eventId: string): Promise<string[]> {
    const lines = this.#lines().filter((line) => line.includes(eventId));
    return lines.map((line) => line.slice(line.indexOf('"payload":') + '"payload":'.length, -1));
  }

  tally(projectId: string, month: string): Promise<TallyOfMonth> {
    return tallyIn(this.setting, projectId, month);
  }

  async close(): Promise<void> {
    rmSync(this.#dir, { recursive: true, force: true });
  }
}

const WHEN = (column: string): string =>
  `to_char(${column} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS ${column}`;
const COMMON = `project_id, event_id, item_index, ${WHEN('received_at')}, ${WHEN('sent_at')}, sdk, item_header, payload`;

/** Without columns that are NULL, JSON parsed. */
function asRecord(row: Record<string, unknown>): StoredRecord {
  const values = Object.entries(row).filter(([, value]) => value !== null);
  const parsed = values.map(([name, value]) =>
    ['item_header', 'payload', 'body'].includes(name) ? [name, JSON.parse(value as string)] : [name, value],
  );
  return Object.fromEntries(parsed) as StoredRecord;
}

export class PostgresUnderTest implements SinkUnderTest {
  readonly guarantee = 'exactly once';
  readonly server: TestPostgres;

  private constructor(server: TestPostgres) {
    this.server = server;
  }

  static async start(options: Parameters<typeof TestPostgres.start>[0] = {}): Promise<PostgresUnderTest> {
    return new PostgresUnderTest(await TestPostgres.start(options));
  }

  get setting(): string {
    return this.server.url;
  }

  async records(): Promise<StoredRecord[]> {
    const [made] = await this.server.query(`SELECT to_regclass('sluice.heartbeats') IS NOT NULL AS made`);
    if (!made?.made) return [];
    const rows = await Promise.all([
      this.server.query(`SELECT ${COMMON}, type, payload_base64, payload_encoding FROM sluice.items`),
      this.server.query(`SELECT ${COMMON}, 'log' AS type FROM sluice.logs ORDER BY log_index`),
      this.server.query(`SELECT ${COMMON}, payload_base64, type FROM sluice.extras`),
      this.server.query(`SELECT ${COMMON}, 'span' AS type FROM sluice.spans ORDER BY span_index`),
      this.server.query(
        `SELECT 'heartbeat' AS type, token, ${WHEN('received_at')}, body, body_base64 FROM sluice.heartbeats`,
      ),
    ]);
    return rows.flat().map(asRecord);
  }

  async payloadTexts(eventId: string): Promise<string[]> {
    const rows = await this.server.query<{ payload: string }>(
      'SELECT payload FROM sluice.items WHERE event_id = $1',
      [eventId],
    );
    return rows.map(({ payload }) => payload);
  }

  tally(projectId: string, month: string): Promise<TallyOfMonth> {
    return tallyIn(this.setting, projectId, month);
  }

  close(): Promise<void> {
    return this.server.close();
  }
}

/** Two at once; what is read is what the one has, and the other must have the same. */
export class SeveralUnderTest implements SinkUnderTest {
  readonly guarantee: SinkGuarantee;
  readonly #sinks: readonly [SinkUnderTest, SinkUnderTest];

  constructor(...sinks: readonly [SinkUnderTest, SinkUnderTest]) {
    this.#sinks = sinks;
    this.guarantee = sinks.every(({ guarantee }) => guarantee === 'exactly once')
      ? 'exactly once'
      : 'repeatable';
  }

  get setting(): string {
    return this.#sinks.map(({ setting }) => setting).join(' ');
  }

  /** What the one has that has less. */
  async records(): Promise<StoredRecord[]> {
    const found = await Promise.all(this.#sinks.map((sink) => sink.records()));
    return found.sort((a, b) => a.length - b.length)[0] ?? [];
  }

  async payloadTexts(eventId: string): Promise<string[]> {
    const [one, other] = await Promise.all(this.#sinks.map((sink) => sink.payloadTexts(eventId)));
    expect(one?.sort()).toEqual(other?.sort());
    return one ?? [];
  }

  async tally(projectId: string, month: string): Promise<TallyOfMonth | undefined> {
    const [one, other] = await Promise.all(this.#sinks.map((sink) => sink.tally(projectId, month)));
    if (one && other) expect(one).toEqual(other);
    return one ?? other;
  }

  async close(): Promise<void> {
    for (const sink of this.#sinks) await sink.close();
  }
}

export type StartSink = () => Promise<SinkUnderTest>;
export const SINKS: readonly (readonly [name: string, start: StartSink])[] = [
  ['ndjson', async () => new NdjsonUnderTest()],
  ['postgres', () => PostgresUnderTest.start()],
];
