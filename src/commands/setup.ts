import { Command } from 'commander';
import { isSet } from '../config.ts';
import { STREAM_BYTES_DEV } from '../limits.ts';
import { CLUSTER_RISK_FIX, clusterRisk } from '../stream/setup/cluster-risk.ts';
import { balanceLeaders } from '../stream/setup/leaders.ts';
import { setupTopology } from '../stream/setup/setup.ts';
import { type TopologyOptions, wantedStreams } from '../stream/topology.ts';
import { printJson, printLine } from './print.ts';
import { type Session, withSession } from './session.ts';

/** Returns the streams and buckets that these settings ask for. */
export function topologyOf({ config, dev }: Session): TopologyOptions {
  return {
    replicas: config.streamReplicas,
    shards: config.streamShards,
    // The streams of a `sluice dev` are meant to be small, so setup must not enlarge them.
    maxBytes: dev && !isSet('SLUICE_STREAM_MAX_BYTES') ? STREAM_BYTES_DEV : config.streamMaxBytes,
  };
}

async function run(flags: { json?: boolean; emptyBuckets?: boolean; balance?: boolean }): Promise<void> {
  await withSession(async (session) => {
    const link = await session.connections.nats();
    const changes = await setupTopology(link, topologyOf(session), flags);
    if (flags.balance) changes.push(...(await balanceLeaders(link, wantedStreams(topologyOf(session)))));
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
