import zlib from 'node:zlib';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Finding, findingOf } from '../../../src/management/doctor/check.ts';
import { clock } from '../../../src/management/doctor/checks.ts';
import { addDropped } from '../../../src/processor/dead-letters/dropped.ts';
import { link as connect } from '../../projects/broker.ts';
import { natsServer, redisServer, type TestServer } from '../../support/servers.ts';
import { type Ran, runCommand } from '../run-command.ts';

let redis: TestServer;
let nats: TestServer;
let client: Redis;
beforeAll(async () => {
  [redis, nats] = await Promise.all([redisServer(), natsServer()]);
  client = new Redis(redis.url);
});
afterAll(async () => {
  client?.disconnect();
  await Promise.all([redis?.close(), nats?.close()]);
});

const MIB = 1024 * 1024;
const sluice = (args: string[], env: Record<string, string> = {}): Promise<Ran> => {
  const urls = { SLUICE_NATS_URL: nats.url, SLUICE_REDIS_URL: redis.url };
  return runCommand(args, { ...urls, SLUICE_STREAM_MAX_BYTES: `${16 * MIB}`, ...env });
};
const examine = async (env?: Record<string, string>): Promise<{ status: number; checks: Finding[] }> => {
  const { status, out } = await sluice(['doctor', '--json'], env);
  return { status, checks: (JSON.parse(out) as { checks: Finding[] }).checks };
};
const failures = ({ checks }: { checks: Finding[] }): string[] =>
  checks.filter(({ state }) => state === 'fail').map(({ what }) => what);

describe('setup and doctor', () => {
  it('miss what setup has not made yet, then find everything in order', async () => {
    const before = await examine();
    expect(before.status).toBe(1);
    expect(failures(before)).toEqual(expect.arrayContaining(['stream SLUICE_EVENTS', 'stream SLUICE_AUDIT']));
    expect(failures(before)).toContain('bucket sluice_projects');
    const first = await sluice(['setup']);
    expect(first).toMatchObject({ status: 0, err: '' });
    expect(first.out).toContain('SLUICE_EVENTS');
    expect((await sluice(['setup'])).out).toBe('Everything is as it should be; nothing changed.\n');
    const after = await examine();
    expect(failures(after)).toEqual([]);
    expect(after.status).toBe(0);
    expect(after.checks.map(({ what }) => what)).toEqual(
      expect.arrayContaining(['settings', 'NATS clock', 'consumer SLUICE_EVENTS/processor', 'JetStream']),
    );
  });

  it('warns of settings with which ingest does not start', async () => {
    const { checks } = await examine({ SLUICE_PORT: '8081' });
    expect(checks.filter(({ what }) => what === 'settings of ingest')).toMatchObject([
      { state: 'warn', found: 'SLUICE_ADMIN_PORT (8081 unless it is set) must differ from SLUICE_PORT' },
    ]);
  });

  it('warns where no setting says which host DSNs name', async () => {
    const ofUrl = async (env?: Record<string, string>): Promise<Finding | undefined> =>
      (await examine(env)).checks.find(({ what }) => what === 'SLUICE_PUBLIC_URL');
    expect(await ofUrl()).toMatchObject({ state: 'warn', found: expect.stringContaining('is a guess') });
    const url = 'https://in.example';
    expect(await ofUrl({ SLUICE_PUBLIC_URL: url })).toMatchObject({ state: 'ok', found: url });
  });

  it('says how to fix a Redis that evicts and keeps no log', async () => {
    await client.config('SET', 'maxmemory-policy', 'allkeys-lru');
    await client.config('SET', 'appendonly', 'no');
    const { status, out } = await sluice(['doctor']);
    await client.config('SET', 'maxmemory-policy', 'noeviction');
    await client.config('SET', 'appendonly', 'yes');
    expect(status).toBe(1);
    expect(out).toMatch(/^fail +Redis \S+ maxmemory-policy +allkeys-lru/m);
    expect(out).toContain('CONFIG SET maxmemory-policy noeviction');
    expect(out).toMatch(/^fail +Redis \S+ AOF +off/m);
  });

  it('shows where a stream differs from the settings', async () => {
    await sluice(['setup']);
    const { checks } = await examine({ SLUICE_STREAM_MAX_BYTES: `${32 * MIB}` });
    expect(checks.find(({ what }) => what === 'stream SLUICE_EVENTS')).toMatchObject({
      state: 'warn',
      found: 'differs: max_bytes 16 MiB → 32 MiB',
    });
  });

  it('fails for a stream that refuses frames, as a setup that was killed leaves it, until setup has run', async () => {
    await sluice(['setup']);
    const link = await connect(nats.url);
    await (await link.manager()).streams.update('SLUICE_EVENTS', { max_msg_size: 1 });
    await link.close();
    const { checks } = await examine();
    expect(checks.find(({ what }) => what === 'stream SLUICE_EVENTS')).toMatchObject({
      state: 'fail',
      found: 'differs: max_msg_size 1 B → unlimited',
      fix: expect.stringContaining('Run sluice setup.'),
    });
    await sluice(['setup']);
    expect(failures(await examine())).toEqual([]);
  });

  it('says how many dead letters were dropped lately, and whose the last ones were', async () => {
    await sluice(['setup']);
    const droppedOf = async () =>
      (await examine()).checks.find(({ what }) => what === 'dropped dead letters');
    expect(await droppedOf()).toMatchObject({ state: 'ok', found: 'none within a week' });
    const link = await connect(nats.url);
    const at = new Date().toISOString();
    await addDropped(link, { letters: 40, at: new Date(Date.now() - 8 * 86_400_000).toISOString() });
    expect(await droppedOf()).toMatchObject({ state: 'ok' });
    await addDropped(link, { letters: 2, at });
    await addDropped(link, { letters: 3, at, project: '42' });
    expect(await droppedOf()).toMatchObject({ state: 'warn', found: `5, the last at ${at}, of project 42` });
    await (await link.manager()).streams.purge('KV_sluice_counters');
    await link.close();
  });

  it('leaves no key behind from reading the clock of NATS', async () => {
    await sluice(['setup']);
    await examine();
    const link = await connect(nats.url);
    const { state } = await (await link.manager()).streams.info('KV_sluice_counters');
    await link.close();
    expect(state.messages).toBe(0);
  });

  it('goes on when both servers are away, and fails', async () => {
    const away = await examine({
      SLUICE_NATS_URL: 'nats://127.0.0.1:1',
      SLUICE_REDIS_URL: 'redis://:pw@127.0.0.1:1',
    });
    expect(away.status).toBe(1);
    expect(failures(away)).toEqual(['Redis redis://…@127.0.0.1:1', 'NATS']);
  });

  it('says whether this Node has zstd', async () => {
    const node = (await examine()).checks.find(({ what }) => what === 'Node');
    const { version } = process;
    if ('createZstdDecompress' in zlib) expect(node).toEqual({ state: 'ok', what: 'Node', found: version });
    else
      expect(node).toEqual({
        state: 'warn',
        what: 'Node',
        found: `${version} has no zstd: bodies with Content-Encoding zstd are answered 400`,
        fix: 'Run Node 22.15 or later, or the image.',
      });
  });

  it('looks at the postgres sink where the settings name one', async () => {
    const sink = await examine({ SLUICE_SINK: 'postgres://me:pw@127.0.0.1:1/none' });
    expect(failures(sink)).toContain('postgres postgres://…@127.0.0.1:1/none');
    const none = await examine({ SLUICE_SINK: 'ndjson:/tmp' });
    expect(none.checks.filter(({ what }) => what.startsWith('postgres'))).toEqual([]);
  });

  it('reports wrong settings as findings', async () => {
    const wrong = await examine({ SLUICE_PORT: '0', SLUICE_ENV: 'staging' });
    expect(wrong.status).toBe(1);
    expect(wrong.checks.map(({ found }) => found)).toEqual([
      'SLUICE_ENV must be production or development',
      'SLUICE_PORT must be an integer from 1 to 65535',
    ]);
  });

  it('refuses a spool folder that is not there', async () => {
    expect(failures(await examine({ SLUICE_SPOOL_DIR: '/nonexistent' }))).toEqual([
      'spool folder /nonexistent',
    ]);
  });
});

describe('a clock', () => {
  it.each([
    [0, 'ok'],
    [-900, 'ok'],
    [1_500, 'warn'],
    [-60_000, 'fail'],
  ] as const)('that is %d ms off is %s', (off, state) => {
    expect(findingOf(clock('clock', off)).state).toBe(state);
  });
});
