/** The broker, a cluster's leader, and the streams. */
import { until } from '../support/system.ts';
import { type Fault, frozen, type Scene } from './fault.ts';

const EVENTS = 'SLUICE_EVENTS';
const FULL_ANSWERS = 20;
const FULL_MS_MAX = 60_000;

async function leader({ stand }: Scene): Promise<number> {
  let node: number | undefined;
  await until(async () => {
    node = await stand.backing.cluster?.leaderOf(stand.link, EVENTS).catch(() => undefined);
    return node !== undefined;
  });
  return node as number;
}

const brokerFrozen = (name: string, holdMs: number) =>
  ({
    ...frozen(name, holdMs, ({ stand }) => stand.backing.singleBroker.pid),
    needs: 'single broker',
  }) satisfies Fault;
export const BROKER_FROZEN = brokerFrozen('broker: SIGSTOP 8 s', 8_000);
/** Longer than a connection that brings nothing is kept. */
export const BROKER_FROZEN_LONG = brokerFrozen('broker: SIGSTOP 25 s', 25_000);

export const BROKER_KILLED: Fault = {
  name: 'broker: kill -9, started 2 s later',
  holdMs: 2_000,
  needs: 'single broker',
  strike: async ({ stand: { backing } }) => {
    const server = backing.singleBroker;
    process.kill(server.pid, 'SIGKILL');
    await server.exited;
    return () => backing.restartNats();
  },
};

export const STREAM_FULL: Fault = {
  name: 'stream full, processors stopped',
  holdMs: 1_000,
  strike: async ({ stand, flood }) => {
    await Promise.all(stand.processors.map((one) => one.stop()));
    const load = flood(100_000);
    load.start();
    const refused = (): number => load.told.filter(({ status }) => status === 503).length;
    await until(() => refused() >= FULL_ANSWERS, FULL_MS_MAX);
    return async () => {
      await load.stop();
      for (const one of stand.processors) one.again();
    };
  },
};

/** nats-server gives JetStream up when a write fails for want of room, and takes it up again only at its next start. */
export const BROKER_DISK_FULL: Fault = {
  name: "broker's disk full, then freed and the broker started anew",
  holdMs: 3_000,
  needs: 'disks',
  strike: async ({ stand: { backing } }) => {
    backing.disk('nats').fill();
    return async () => {
      backing.disk('nats').free();
      await backing.singleBroker.stop();
      await backing.restartNats();
    };
  },
};

export const LEADER_KILLED: Fault = {
  name: 'cluster leader: kill -9, started 5 s later',
  holdMs: 5_000,
  needs: 'cluster',
  strike: async (scene) => {
    const node = await leader(scene);
    await scene.stand.backing.cluster?.kill(node);
    return async () => {
      await scene.stand.backing.cluster?.restart(node);
    };
  },
};

const leaderFrozen = (name: string, holdMs: number): Fault => ({
  ...frozen(name, holdMs, async (scene) => {
    const node = await leader(scene);
    return scene.stand.backing.cluster?.pid(node) ?? 0;
  }),
  needs: 'cluster',
});
export const LEADER_FROZEN = leaderFrozen('cluster leader: SIGSTOP 8 s', 8_000);
export const LEADER_FROZEN_LONG = leaderFrozen('cluster leader: SIGSTOP 25 s', 25_000);

export const LEADER_ISOLATED: Fault = {
  name: 'cluster leader: cut off from the other two for 10 s, not from clients',
  holdMs: 10_000,
  needs: 'cluster',
  strike: async (scene) => {
    const heal = scene.stand.backing.cluster?.isolate(await leader(scene));
    return async () => heal?.();
  },
};
