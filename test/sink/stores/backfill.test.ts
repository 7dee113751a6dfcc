/** `sluice backfill`: what the archive has is in a database, each row once, also when the command is killed or run again. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type Ran, runCommand } from '../../commands/run-command.ts';
import {
  EVENT_ID,
  envelope,
  eventually,
  Harness,
  hexId,
  item,
  RECEIVED_AT,
} from '../../processor/harness.ts';
import { temporaryFolder } from '../../support/servers.ts';
import { DIST } from '../../support/system.ts';
import { PostgresUnderTest, type SinkUnderTest, type StartSink } from '../sinks.ts';
import { ClickHouseUnderTest, S3UnderTest } from './under-test.ts';

const HOUR_MS = 3_600_000;
const folder = temporaryFolder('backfill');
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const sorted = (records: readonly object[]): string[] =>
  records.map((one) => JSON.stringify(one, Object.keys(one).sort())).sort();

const ODD = '{"z":12345678901234567890.10,"s":"a\\u0000\\ud800","b":1,"b":2,"row_key":"x","payload":[1]}';

async function everyKind(harness: Harness): Promise<void> {
  const more = { sentAt: '2026-01-02T03:04:05.1+02:00', sdk: 'a "b" ü/1' };
  await harness.publish([
    envelope([item('event', ODD, { header: '{"type":"event","x":{"payload":"\\"}"}}' })], {
      eventId: hexId(1),
      ...more,
    }),
    envelope([item('event', '{"n":2}'), item('attachment', 'bytes \0', { index: 1 })], {
      eventId: hexId(2),
      projectId: '7',
    }),
    envelope([item('event', '{"n":3}')], { eventId: hexId(3), receivedAt: RECEIVED_AT + HOUR_MS }),
  ]);
  await harness.publish([envelope([item('transaction', '{"t":1}')], { eventId: hexId(4) })], {
    stream: 'transactions',
  });
  const spans = '{"items":[{"span":1},{"span":2}],"ingest_settings":{"version":2}}';
  await harness.publish([envelope([item('span', spans)], { eventId: hexId(5) })], { stream: 'transactions' });
  await harness.publish(
    [envelope([item('log', '{"items":[{"l":1},{"l":2},{"l":3}]}')], { eventId: hexId(6) })],
    { stream: 'logs' },
  );
  // Two segments of a replay that came in one millisecond.
  const recording = (n: number) =>
    Buffer.concat([Buffer.from(`{"segment_id":${n}}\n`), gzipSync(`[{"n":${n}}]`)]);
  for (const n of [0, 1])
    await harness.publish(
      [
        envelope(
          [item('replay_event', `{"segment_id":${n}}`), item('replay_recording', recording(n), { index: 1 })],
          { eventId: EVENT_ID },
        ),
      ],
      { stream: 'replays' },
    );
  const ping = { kind: 'heartbeat' as const, receivedAt: RECEIVED_AT };
  await harness.publish(
    [
      { ...ping, token: 'none' },
      { ...ping, token: 'text', body: Buffer.from('a "b"') },
      { ...ping, token: 'bytes', body: Uint8Array.of(0xff, 0) },
    ],
    { stream: 'heartbeats' },
  );
}

const backfill = (archive: SinkUnderTest, to: SinkUnderTest, ...flags: string[]): Promise<Ran> =>
  runCommand(['backfill', archive.setting, '--to', to.setting, '--json', ...flags], {});
const figures = ({ status, out, err }: Ran): object => {
  expect(status, err).toBe(0);
  return JSON.parse(out) as object;
};

describe.each<[name: string, start: StartSink]>([
  ['clickhouse', () => ClickHouseUnderTest.start()],
  ['postgres', () => PostgresUnderTest.start()],
])('%s', (name, start) => {
  let harness: Harness;
  let archive: S3UnderTest;
  let to: SinkUnderTest;
  const process = async (...sinks: SinkUnderTest[]): Promise<void> => {
    const more = {
      SLUICE_SINK: sinks.map(({ setting }) => setting).join(' '),
      SLUICE_STORE_TYPES: 'attachment',
    };
    const processor = await harness.run(more);
    await harness.drained();
    await processor.stop();
  };
  beforeAll(async () => {
    harness = await Harness.start();
  });
  afterAll(() => harness.close());
  beforeEach(async () => {
    [archive, to] = await Promise.all([S3UnderTest.start(), start()]);
    return async () => {
      await archive.close();
      await to.close();
    };
  });

  it('has what the archive has, byte for byte, however often it is brought', async () => {
    await everyKind(harness);
    await process(archive);
    for (const time of ['first', 'second']) {
      figures(await backfill(archive, to));
      expect(sorted(await to.records()), time).toEqual(sorted(await archive.records()));
      expect(await to.payloadTexts(hexId(1)), time).toEqual([ODD]);
    }
  });

  it('has the rows once that a processor stored there too, by the keys or by what they hold', async () => {
    await everyKind(harness);
    await process(archive, to);
    const before = sorted(await to.records());
    figures(await backfill(archive, to));
    expect(sorted(await to.records())).toEqual(before);
  });

  it('brings the hours and the project that are asked for', async () => {
    await everyKind(harness);
    await process(archive);
    expect(figures(await backfill(archive, to, '--since', '2026-01-02T04'))).toMatchObject({
      objects: 1,
      rows: 1,
      stored: 1,
    });
    expect(figures(await backfill(archive, to, '--until', '2026-01-01'))).toMatchObject({ objects: 0 });
    figures(await backfill(archive, to, '--project', '7'));
    expect((await to.records()).map(({ event_id, type }) => `${Number(event_id)} ${type}`).sort()).toEqual([
      '2 attachment',
      '2 event',
      '3 event',
    ]);
    // What was read for one project is brought for the others.
    figures(await backfill(archive, to, '--since', '2026-01-02', '--until', '2026-01-02'));
    expect(sorted(await to.records())).toEqual(sorted(await archive.records()));
  });

  it('goes on behind a kill at any object, and stores each row once', async () => {
    const objects = 60;
    const rowsEach = 40;
    // Each object by a processor's batch: what matters here is that they are many.
    const template = async (): Promise<string> => {
      await harness.publish([envelope([item('event', '{"n":0}')], { eventId: hexId(0) })]);
      await process(archive);
      return (await archive.lines())[0] ?? '';
    };
    const line = await template();
    for (const { key } of await archive.server.list('sluice/SLUICE_EVENTS/'))
      await archive.server.remove(key);
    for (let n = 0; n < objects; n++) {
      const rows = Array.from({ length: rowsEach }, (_, at) => {
        const id = n * rowsEach + at;
        return line
          .replace(hexId(0), hexId(id))
          .replace(/[0-9a-f]{32}"\}$/, `${id.toString(16).padStart(20, '0')}00000000ffff"}`);
      });
      // The same rows once more in another object, as a killed processor leaves them.
      for (const copy of n % 10 === 0 ? [0, 1] : [0])
        await archive.server.put(
          `sluice/SLUICE_EVENTS/2026-01-02/03/${copy}${hexId(n).slice(1)}-${rowsEach}.ndjson.gz`,
          gzipSync(`${rows.join('\n')}\n`),
        );
    }
    const progress = join(folder, name);
    const run = (): ChildProcess =>
      spawn(
        'node',
        [`${DIST}cli.js`, 'backfill', archive.setting, '--to', to.setting, '--progress', progress, '--json'],
        {
          stdio: ['ignore', 'pipe', 'inherit'],
        },
      );
    for (let kills = 0; kills < 3; kills++) {
      const child = run();
      const before = existsSync(progress) ? readFileSync(progress, 'utf8') : '';
      await eventually(() => existsSync(progress) && readFileSync(progress, 'utf8') !== before);
      await pause(kills * 7);
      child.kill('SIGKILL');
      await once(child, 'exit');
    }
    const last = run();
    let out = '';
    last.stdout?.on('data', (data: Buffer) => {
      out += data;
    });
    expect((await once(last, 'close'))[0]).toBe(0);
    expect(JSON.parse(out).objects, 'the last run goes on').toBeLessThan(objects + objects / 10);
    const ids = (await to.records()).map(({ event_id }) => event_id).sort();
    expect(ids).toEqual(Array.from({ length: objects * rowsEach }, (_, id) => hexId(id)));
    const again = figures(await backfill(archive, to, '--progress', progress));
    expect(again).toMatchObject({ objects: 0 });
    const other = await backfill(archive, to, '--progress', progress, '--project', '42');
    expect(other).toMatchObject({ status: 2, err: expect.stringContaining('another backfill') });
  });
});
