import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readUsage, setUsage } from '../../../src/ingest/limit/month-count.ts';
import { LimitRedis } from '../../../src/ingest/limit/redis.ts';
import { OutcomeLedger } from '../../../src/ingest/usage/outcomes.ts';
import { systemClock as clock } from '../../../src/lib/clock.ts';
import { REDIS_REPLY_MS_MAX } from '../../../src/limits.ts';
import { ProjectState } from '../../../src/projects/project-state.ts';
import { type NewProject, ProjectStore } from '../../../src/projects/project-store.ts';
import { CheckpointBucket } from '../../../src/projects/usage/checkpoint-bucket.ts';
import { link as connect, log, makeBuckets, type NatsLink } from '../../projects/broker.ts';
import { natsServer, redisServer, type TestServer } from '../../support/servers.ts';
import { TcpProxy } from '../../support/tcp-proxy.ts';
import { type Ran, runCommand } from '../run-command.ts';

const plain: NewProject = { plan: 'Pro', overage: false, filters: [], allowedOrigins: [] };
let servers: [redis: TestServer, nats: TestServer];
let link: NatsLink;
let redis: LimitRedis;
let month: string;
beforeAll(async () => {
  servers = await Promise.all([redisServer(), natsServer()]);
  link = await connect(servers[1].url);
  await makeBuckets(link);
  redis = new LimitRedis({ urls: [servers[0].url], log, clock });
  await redis.connect();
  month = (await readUsage(redis, 'any')).month;
});
afterAll(async () => {
  await redis?.close();
  await link?.close();
  await Promise.all(servers.map((server) => server.close()));
});

const sluiceWith = (env: Record<string, string>, ...args: string[]): Promise<Ran> =>
  runCommand(args, {
    SLUICE_REDIS_URL: servers[0].url,
    SLUICE_NATS_URL: servers[1].url,
    ...env,
  });
const sluice = (...args: string[]): Promise<Ran> => sluiceWith({}, ...args);
const json = async (...args: string[]): Promise<unknown> => {
  const ran = await sluice(...args, '--json');
  expect(ran).toMatchObject({ status: 0, err: '' });
  return JSON.parse(ran.out);
};

describe('usage', () => {
  it('shows the counter of this month against the quota', async () => {
    await (await ProjectStore.open(link)).create({ ...plain, id: '1', quota: 300 });
    await setUsage(redis, { projectId: '1', month, count: 230, seen: undefined });
    expect(await json('usage', '1')).toEqual({
      id: '1',
      month,
      current: 230,
      quota: 300,
      overage: false,
      percent: 76,
      hours: [],
    });
    expect((await sluice('usage', '1')).out).toContain('230 of 300, 76 %');
  });

  it('has no reconcile by the API: another deployment would be corrected', async () => {
    const ran = await sluice('usage', '--api', 'http://127.0.0.1:1', 'reconcile', '1');
    expect(ran).toMatchObject({ status: 2, out: '', err: expect.stringContaining('no --api') });
  });

  it('waits for a Redis that is far away', async () => {
    const proxy = await TcpProxy.start(Number(new URL(servers[0].url).port));
    // There and back: longer than a worker would wait.
    proxy.weather = { latencyMs: 0.55 * REDIS_REPLY_MS_MAX };
    const far = { SLUICE_REDIS_URL: `redis://127.0.0.1:${proxy.port}` };
    const ran = await sluiceWith(far, 'usage', '1', '--json');
    expect(ran).toMatchObject({ status: 0, err: '' });
    expect(JSON.parse(ran.out)).toMatchObject({ current: 230 });
    await proxy.close();
  });

  it('shows the checkpoint where Redis has no count', async () => {
    await (await ProjectStore.open(link)).create({ ...plain, id: '2', quota: 0 });
    await new CheckpointBucket({ link, log }).replace('2', month, 41);
    expect(await json('usage', '2')).toMatchObject({ current: 41, quota: 0, percent: 100 });
  });

  it('shows what became of the requests, by hour', async () => {
    const record = await (await ProjectStore.open(link)).create({ ...plain, id: '3' });
    const ledger = new OutcomeLedger({ link, log, clock });
    const project = new ProjectState(record, 1, undefined);
    for (let n = 0; n < 3; n++) ledger.note(project, 'accepted');
    ledger.note(project, 'rate_limited');
    await ledger.flush();
    expect(await json('usage', '3')).toEqual({
      id: '3',
      month,
      current: 0,
      overage: false,
      hours: [
        {
          hour: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:00Z$/),
          outcomes: { accepted: 3, rate_limited: 1 },
        },
      ],
    });
    const { out } = await sluice('usage', '3');
    expect(out).toMatch(/^usage +0 of unlimited$/m);
    expect(out).toMatch(/^HOUR \(UTC\) +ACCEPTED +RATE_LIMITED\n\S+ +3 +1$/m);
  });

  it('lists all projects without an id', async () => {
    const all = (await json('usage')) as { id: string; current: number }[];
    expect(all.map(({ id, current }) => [id, current])).toEqual([
      ['1', 230],
      ['2', 41],
      ['3', 0],
    ]);
    expect((await sluice('usage')).out).toMatch(/^1 +\S+ +230 +300 +76 %$/m);
  });

  it('fails for a project that is unknown', async () => {
    expect(await sluice('usage', '404')).toEqual({
      status: 1,
      out: '',
      err: 'sluice: There is no project 404\n',
    });
  });
});
