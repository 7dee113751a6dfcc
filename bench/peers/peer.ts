import type { RunningServer } from '../../src/commands/dev/servers.ts';
import type { NewProject } from '../../src/projects/project-store.ts';
import type { Target } from '../workload.ts';

/** What the peers are started with: servers of their own, which are stopped after them. */
export type PeerSetting = {
  dir: string;
  redis: RunningServer;
  nats: RunningServer;
  projects: readonly NewProject[];
};

export type RunningPeer = { pid: number; url: string; targets: readonly Target[]; stop(): Promise<void> };

/** Another service that accepts envelopes and answers once JetStream has them. */
export type Peer = {
  name: string;
  /** @throws when it does not start */
  start(setting: PeerSetting): Promise<RunningPeer>;
};
