import { Command } from 'commander';
import { CLUSTER_RISK_FIX, clusterRisk } from '../stream/setup/cluster-risk.ts';
import { balanceLeaders } from '../stream/setup/leaders.ts';
import { setupTopology } from '../stream/setup/setup.ts';
import { wantedStreams } from '../stream/topology.ts';
import { printJson, printLine } from './print.ts';
import { withSession } from './session.ts';

async function run(flags: { json?: boolean; emptyBuckets?: boolean; balance?: boolean }): Promise<void> {
  await withSession(async ({ connections, topology }) => {
    const link = await connections.nats();
    const changes = await setupTopology(link, topology, flags);
    if (flags.balance) changes.push(...(await balanceLeaders(link, wantedStreams(topology))));
    const { info } = link.connection;
    const risk = info && clusterRisk(info);
    if (risk) process.stderr.write(`sluice: warning: ${risk}. ${CLUSTER_RISK_FIX}\n`);
    if (flags.json) printJson({ changes });
    else if (changes.length === 0) printLine('Everything is as it should be; nothing changed.');
    else for (const change of changes) printLine(change);
  }, 'setup');
}

export function setupCommand(): Command {
  return new Command('setup')
    .description('create or update streams, consumers and buckets; safe to repeat')
    .option('--empty-buckets', 'make an empty bucket in place of one that was deleted: it refuses every key')
    .option('--balance', 'spread the leaders of streams and consumers over the servers of a cluster')
    .option('--json', 'print JSON')
    .action(run);
}
