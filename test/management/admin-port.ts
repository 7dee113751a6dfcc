/** An admin port in this process, on servers of the test. */
import type { AddressInfo } from 'node:net';
import { managementApi } from '../../src/management/api/api.ts';
import { type AdminStats, type RunningAdmin, startAdminServer } from '../../src/management/api/server.ts';
import { AdminTokens } from '../../src/management/api/tokens.ts';
import { Connections } from '../../src/management/connections.ts';
import { log } from '../projects/broker.ts';

export type { AdminStats };
/** `url`: at 127.0.0.1. */
export type AdminPort = RunningAdmin & { port: number; url: string };

type Options = {
  host?: string;
  names?: string[];
  entries?: string[];
  viewers?: string[];
  file?: string;
  /** Of the management API, which is served where they are given. */
  connections?: Connections | undefined;
  metrics?: () => Promise<string>;
  stats?: () => Promise<AdminStats>;
};

const STATS: AdminStats = { role: 'ingest', readiness: { status: 'ready', checks: {} }, metrics: [] };

export const connectionsTo = (natsUrl: string, redisUrl = 'redis://127.0.0.1:1'): Connections =>
  new Connections({
    redisUrls: [redisUrl],
    natsUrls: [natsUrl],
    natsCredsFile: undefined,
    name: 'test',
    log,
  });

export async function openAdminPort({
  host = '127.0.0.1',
  names = [],
  entries = [],
  viewers = [],
  file,
  connections,
  metrics = async () => 'sluice_workers 1\n',
  stats = async () => STATS,
}: Options): Promise<AdminPort> {
  const served = { publicUrl: 'http://x', heartbeatPath: '/heartbeat', shards: 1, examine: async () => [] };
  const { server, stop } = await startAdminServer({
    host,
    names,
    port: 0,
    pages: { ready: () => ({ ready: true, body: '{}' }), metrics, stats },
    tokens: new AdminTokens({ entries, viewers, file, log }),
    log,
    ...(connections && { api: managementApi({ ...served, connections, log }, log) }),
  });
  const { port } = server.address() as AddressInfo;
  return { server, stop, port, url: `http://127.0.0.1:${port}` };
}
