/** The sinks whose stores `npm run test:sinks` installs, as the conformance suite sees them. */
import { readFileSync } from 'node:fs';
import { unpacked } from '../../../src/sink/s3/archive.ts';
import type { TallyOfMonth } from '../../../src/sink/tally.ts';
import type { StoredRecord } from '../../processor/harness.ts';
import { TestClickHouse } from '../../support/sinks/clickhouse.ts';
import { TestS3 } from '../../support/sinks/seaweedfs.ts';
import { type SinkUnderTest, tallyIn } from '../sinks.ts';

type Row = Record<string, unknown>;

/** The queries of docs/clickhouse.md, by their titles. */
const DOCUMENT = readFileSync(new URL('../../../docs/clickhouse.md', import.meta.url), 'utf8');
export const QUERIES = [...DOCUMENT.matchAll(/\n([^\n]+):\n\n```sql\n([^`]+)\n```/g)].map(
  ([, title = '', sql = '']) => ({ title, sql }),
);

/** The end of a line of the s3 sink. */
const ROW_KEY = /,"row_key":"[0-9a-f]{32}"\}$/;
const KEY_END = 34;

const COMMON = 'project_id, event_id, item_index, item_header, sdk, payload';
const MOMENTS = 'toUnixTimestamp64Milli(received_at) AS received, toUnixTimestamp64Milli(sent_at) AS sent';
/** Of each table the columns beside those that all have, and what a merge would leave. */
const SELECTS = [
  `SELECT ${COMMON}, ${MOMENTS}, 'event' AS type FROM sluice.events FINAL`,
  `SELECT ${COMMON}, ${MOMENTS}, 'transaction' AS type FROM sluice.transactions FINAL`,
  `SELECT ${COMMON}, ${MOMENTS}, type, payload_base64, payload_encoding FROM sluice.replays FINAL`,
  `SELECT ${COMMON}, ${MOMENTS}, 'log' AS type FROM sluice.logs FINAL ORDER BY log_index`,
  `SELECT ${COMMON}, ${MOMENTS}, 'span' AS type FROM sluice.spans FINAL ORDER BY span_index`,
  `SELECT ${COMMON}, ${MOMENTS}, payload_base64, type FROM sluice.extras FINAL`,
  `SELECT token, toUnixTimestamp64Milli(received_at) AS received, body, body_base64, 'heartbeat' AS type FROM sluice.heartbeats FINAL`,
];

const whenOf = (ms: unknown): string => new Date(Number(ms)).toISOString();

/** Without columns that are NULL, JSON parsed. */
function asRecord({ received, sent, item_header, payload, ...rest }: Row): StoredRecord {
  const more: Row = { received_at: whenOf(received) };
  if (sent !== null && sent !== undefined) more.sent_at = whenOf(sent);
  if (item_header !== undefined) more.item_header = JSON.parse(item_header as string);
  const isBase64 = typeof rest.payload_base64 === 'string';
  if (payload !== undefined && !isBase64) more.payload = JSON.parse(payload as string);
  const values = Object.entries({ ...rest, ...more }).filter(([, value]) => value !== null);
  return Object.fromEntries(values) as StoredRecord;
}

export class ClickHouseUnderTest implements SinkUnderTest {
  readonly guarantee = 'repeatable';
  readonly server: TestClickHouse;

  private constructor(server: TestClickHouse) {
    this.server = server;
  }

  static async start(on?: string): Promise<ClickHouseUnderTest> {
    return new ClickHouseUnderTest(await TestClickHouse.start(on === undefined ? {} : { on }));
  }

  get setting(): string {
    return this.server.url();
  }

  async records(): Promise<StoredRecord[]> {
    const tables = `SELECT name FROM system.tables WHERE database = 'sluice' AND name = 'migrations'`;
    if ((await this.server.query(tables)).length === 0) return [];
    const found: Row[] = [];
    for (const select of SELECTS) found.push(...(await this.server.query<Row>(select)));
    return found.map(asRecord);
  }

  async payloadTexts(eventId: string): Promise<string[]> {
    const rows = await this.server.query<{ payload: string }>(
      `SELECT payload FROM sluice.events FINAL WHERE event_id = '${eventId}'`,
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

/** Every object is read once: it never changes. */
export class S3UnderTest implements SinkUnderTest {
  readonly guarantee = 'repeatable';
  readonly forgetsResends = true;
  readonly keepsNoTally = true;
  readonly server: TestS3;
  readonly #options: string;
  readonly #read = new Map<string, string[]>();

  private constructor(server: TestS3, options: string) {
    this.server = server;
    this.#options = options;
  }

  static async start(options = '', on?: string): Promise<S3UnderTest> {
    return new S3UnderTest(await TestS3.start(on), options);
  }

  get setting(): string {
    return this.server.url({ options: this.#options });
  }

  /** Lines as they are stored, also those that are there twice. */
  async lines(): Promise<string[]> {
    for (const { key } of await this.server.list()) {
      if (this.#read.has(key) || !key.includes('.ndjson')) continue;
      const content = await this.server.get(key);
      this.#read.set(key, unpacked(key, content).toString().trimEnd().split('\n'));
    }
    return [...this.#read.values()].flat();
  }

  /** One line of each row key. */
  async #merged(): Promise<Map<string, string>> {
    const lines = await this.lines();
    return new Map(lines.map((line) => [line.slice(-KEY_END, -'"}'.length), line.replace(ROW_KEY, '}')]));
  }

  async records(): Promise<StoredRecord[]> {
    const found = [...(await this.#merged()).values()].map((line) => JSON.parse(line) as StoredRecord);
    return found.flatMap((record) =>
      record.type === 'log' || record.type === 'span'
        ? (record.payload as { items: unknown[] }).items.map((payload) => ({ ...record, payload }))
        : [record],
    );
  }

  async payloadTexts(eventId: string): Promise<string[]> {
    const lines = [...(await this.#merged()).values()].filter((line) => line.includes(eventId));
    return lines.map((line) => line.slice(line.indexOf('"payload":') + '"payload":'.length, -1));
  }

  async tally(): Promise<undefined> {}

  close(): Promise<void> {
    return this.server.close();
  }
}
