/** What setup and doctor say of a cluster of the server that the tests run with. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Finding } from '../../../src/management/doctor/check.ts';
import { clusterRisk } from '../../../src/stream/setup/cluster-risk.ts';
import { eventually } from '../../processor/harness.ts';
import { link as connect } from '../../projects/broker.ts';
import { NatsCluster } from '../../support/nats-cluster.ts';
import { type Ran, runCommand } from '../run-command.ts';

let cluster: NatsCluster;
let version: string;
beforeAll(async () => {
  cluster = await NatsCluster.start();
  const link = await connect(cluster.urls[0] as string);
  version = link.connection.info?.version ?? '';
  await link.close();
});
afterAll(() => cluster?.close());

const sluice = (...args: string[]): Promise<Ran> =>
  runCommand(args, {
    SLUICE_NATS_URL: cluster.urls.join(','),
    SLUICE_REDIS_URL: 'redis://127.0.0.1:1',
    SLUICE_STREAM_REPLICAS: '3',
    SLUICE_STREAM_MAX_BYTES: `${16 * 1024 * 1024}`,
  });

it.each([
  { of: '2.9.10', isSafe: false },
  { of: '2.14.3', isSafe: false },
  { of: '2.15.0', isSafe: true },
  { of: '2.15.2-beta.1', isSafe: true },
  { of: '3.0.0', isSafe: true },
])('a cluster of $of is known to be safe: $isSafe', ({ of, isSafe }) => {
  expect(clusterRisk({ version: of, cluster: 'sluice' }) === undefined).toBe(isSafe);
  expect(clusterRisk({ version: of })).toBeUndefined();
});

it('setup and doctor warn of a version whose cluster may lose what was acknowledged, and of no other', async () => {
  const isSafe = Number(version.split('.')[1]) >= 15;
  const warning = `a cluster of ${version} may lose acknowledged envelopes`;
  const fix = 'Use nats-server 2.15 or newer for a cluster.';

  // A cluster that has just started may not have a leader for its streams yet.
  const setup = await eventually(async () => {
    const ran = await sluice('setup', '--json');
    return ran.status === 0 ? ran : undefined;
  });
  expect(JSON.parse(setup.out)).toHaveProperty('changes');
  if (isSafe) expect(setup.err).toBe('');
  else expect(setup.err).toMatch(new RegExp(`^sluice: warning: ${warning}.*${fix}\n$`));

  const { checks } = JSON.parse((await sluice('doctor', '--json')).out) as { checks: Finding[] };
  expect(checks.find(({ what }) => what === 'NATS cluster')).toEqual(
    isSafe
      ? { state: 'ok', what: 'NATS cluster', found: 'sluice' }
      : { state: 'warn', what: 'NATS cluster', found: expect.stringContaining(warning), fix },
  );
});
