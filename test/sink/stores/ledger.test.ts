/** The ledger of `npm run test:faults` holds on these stores: it is clean after a fault, and tells what is then done to the store. */
import { gunzipSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { seededRandom } from '../../../bench/random.ts';
import { assert } from '../../../src/lib/assert.ts';
import { SINK_RESET } from '../../faults/faults.ts';
import { judge } from '../../faults/ledger.ts';
import { type Report, runScenario } from '../../faults/scenario.ts';
import { Stand } from '../../faults/stand.ts';
import type { StoreName } from '../../faults/stores.ts';
import { TestClickHouse } from '../../support/sinks/clickhouse.ts';
import { TestS3 } from '../../support/sinks/seaweedfs.ts';

const SEED = 28;

let stand: Stand;
let report: Report;

async function startScenario(store: StoreName): Promise<void> {
  stand = await Stand.start({ store, processors: 2 });
  report = await runScenario(stand, [SINK_RESET], { random: seededRandom(SEED) });
}

function expectClean(): void {
  expect(report.judgement.broken, `seed ${SEED}`).toEqual([]);
  expect(report.judgement.accepted).toBeGreaterThan(100);
}

/** What the ledger says when it is closed now. */
async function judgeAgain(): Promise<string[]> {
  const { told, terms, evidence } = report;
  const projects = new Set(Object.values(terms.projects).map(({ id }) => id));
  return judge(told, { ...evidence, stored: await stand.stored(projects) }, terms).broken;
}

const acceptedIds = (): string[] => report.told.filter(({ status }) => status === 200).map(({ id }) => id);

describe('clickhouse', () => {
  beforeAll(() => startScenario('clickhouse'));
  afterAll(() => stand?.close());

  /** Both of the same table. */
  async function twoEvents(server: TestClickHouse): Promise<[string, string]> {
    const rows = await server.query<{ event_id: string }>('SELECT event_id FROM sluice.events FINAL');
    const accepted = new Set(acceptedIds());
    const [one, other] = rows.map(({ event_id }) => event_id).filter((id) => accepted.has(id));
    return [one ?? '', other ?? ''];
  }

  it('has each item once after resets, whatever was written again', () => expectClean());

  it('a row that is there again with its key is one; with another key it is double; without it is lost', async () => {
    const server = stand.backing.store?.server;
    assert(server instanceof TestClickHouse, 'the store is ClickHouse');
    await server.run('INSERT INTO sluice.events SELECT * FROM sluice.events');
    expect(await judgeAgain()).toEqual([]);
    const [double, lost] = await twoEvents(server);
    await server.run(
      `INSERT INTO sluice.events SELECT * REPLACE (toFixedString('another row, 16B', 16) AS row_key)
FROM sluice.events FINAL WHERE event_id = '${double}'`,
    );
    expect(await judgeAgain()).toEqual([`stored twice: ${double}`]);
    await server.run(
      `ALTER TABLE sluice.events DELETE WHERE event_id = '${lost}' SETTINGS mutations_sync = 1`,
    );
    expect(await judgeAgain()).toEqual([`lost: told 200, not stored: ${lost}`, `stored twice: ${double}`]);
  });
});

describe('s3', () => {
  beforeAll(() => startScenario('s3'));
  afterAll(() => stand?.close());

  it('has each item once after resets, whatever was written again', () => expectClean());

  it('a line that is there again with its key is one; with another key it is double; without its object it is lost', async () => {
    const server = stand.backing.store?.server;
    assert(server instanceof TestS3, 'the store is S3');
    const objects = (await server.list('sluice/SLUICE_EVENTS/')).filter(({ key }) => key.endsWith('.gz'));
    const [{ key } = { key: '' }] = objects.toSorted((one, other) => other.bytes - one.bytes);
    const content = gunzipSync(await server.get(key)).toString();
    const named = (name: string): string => key.replace(/[0-9a-f]{32}-/, `${name.repeat(32)}-`);
    await server.put(named('a'), gzipSync(content));
    expect(await judgeAgain()).toEqual([]);
    await server.remove(named('a'));
    const lines = content.trimEnd().split('\n');
    const accepted = new Set(acceptedIds());
    const ids = lines.map((line) => (JSON.parse(line) as { event_id: string }).event_id);
    const at = ids.findIndex((id) => accepted.has(id));
    const other = lines[at]?.replace(/"row_key":"[0-9a-f]{32}"/, `"row_key":"${'0'.repeat(32)}"`);
    await server.put(named('b'), gzipSync(`${other}\n`));
    expect(await judgeAgain()).toEqual([`stored twice: ${ids[at]}`]);
    await server.remove(key);
    const [lost, ...others] = await judgeAgain();
    expect(lost).toMatch(/^lost: told 200, not stored: /);
    expect(others).toEqual([]);
  });
});
