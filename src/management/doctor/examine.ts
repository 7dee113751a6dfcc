/**
 * Examines a deployment for `sluice doctor`: its settings, this machine, Redis and NATS. The
 * command `sluice doctor` examines the sinks itself, because they belong to the processor.
 */
import type { Config } from '../../config.ts';
import type { Log } from '../../lib/log.ts';
import { BUCKETS, type TopologyOptions, wantedStreams } from '../../stream/topology.ts';
import type { Connections } from '../connections.ts';
import type { Check } from './check.ts';
import * as checks from './checks.ts';

/** The deployment, and the settings that say how it should be. */
export type Examined = {
  config: Config;
  /** The source of the settings, in words. */
  origin: string;
  connections: Connections;
  redisUrls: readonly string[];
  topology: TopologyOptions;
  /** Base URL of DSNs. */
  publicUrl: string;
  /** Whether `publicUrl` is a guess, because no setting says where clients reach ingest. */
  isUrlGuessed: boolean;
  log: Log;
};

/** Checks NATS. The streams are asked about one after the other, because there may be hundreds. */
async function natsChecks({ connections, topology }: Examined): Promise<Check[]> {
  const link = await connections.nats().catch(() => undefined);
  const server = await checks.nats(() => connections.nats());
  if (!link) return server;
  const jetStream = await checks.jetStream(link);
  if (jetStream.some(({ fail }) => fail)) return [...server, ...jetStream];
  const found = [server, jetStream, await checks.natsClock(link)];
  for (const wanted of wantedStreams(topology)) {
    found.push(await checks.stream(link, wanted));
    if (wanted.consumer) found.push(await checks.consumer(link, wanted));
  }
  found.push(await checks.leaders(link, wantedStreams(topology)));
  found.push(await checks.droppedLetters(link));
  for (const name of BUCKETS) found.push(await checks.bucket(link, name, topology.replicas));
  return found.flat();
}

export async function examine(examined: Examined): Promise<Check[]> {
  const { config, origin, redisUrls, publicUrl, isUrlGuessed, log } = examined;
  const { redisPasswordFile: passwordFile, tlsCaFile: caFile } = config;
  const clustered = redisUrls.length > 1;
  const ofUrl: Check = {
    what: 'SLUICE_PUBLIC_URL',
    found: publicUrl,
    warn: isUrlGuessed && `not set: DSNs name ${publicUrl}, which is a guess`,
    fix: 'Set it to the address that clients reach, such as https://ingest.example.com.',
  };
  const found = await Promise.all([
    [{ what: 'settings', found: `as ${origin}` }, ofUrl],
    checks.machine(config),
    checks.spool(config),
    ...redisUrls.map((url) => checks.redis({ urls: [url], passwordFile, caFile, log }, { clustered })),
    natsChecks(examined),
  ]);
  return found.flat();
}
