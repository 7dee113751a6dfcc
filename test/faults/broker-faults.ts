/** The broker, a cluster's leader, and the streams. */

import type { JetStreamManager } from '@nats-io/jetstream';
import { until } from '../support/system.ts';
import { type Fault, frozen, nothing, type Scene } from './fault.ts';

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

/** Two of three: nobody leads any stream. */
export const QUORUM_LOST: Fault = {
  name: 'cluster: kill -9 of two servers, started 6 s later',
  holdMs: 6_000,
  needs: 'cluster',
  strike: async (scene) => {
    const { cluster } = scene.stand.backing;
    const first = await leader(scene);
    const nodes = [first, (first + 1) % 3];
    await Promise.all(nodes.map((node) => cluster?.kill(node)));
    return async () => {
      await Promise.all(nodes.map((node) => cluster?.restart(node)));
    };
  },
};

const RESTORED_MS_MAX = 45_000;

/** Somebody deletes something; it must be there again by itself, and the processors must have said so. */
const deleted = (
  name: string,
  remove: (manager: JetStreamManager) => Promise<unknown>,
  look: (manager: JetStreamManager) => Promise<unknown>,
): Fault => ({
  name,
  holdMs: 0,
  strike: async ({ stand }) => {
    const manager = await stand.link.manager();
    const log = (): string => stand.processors.map((one) => one.log).join('');
    const said = log().split(MADE_AGAIN).length;
    // A cluster that has just lost its leader answers later.
    await until(() => remove(manager).then(Boolean, () => false));
    const isThere = (): Promise<boolean> =>
      look(manager).then(
        () => true,
        () => false,
      );
    await until(isThere, RESTORED_MS_MAX);
    await until(() => log().split(MADE_AGAIN).length > said);
    return nothing;
  },
});
const MADE_AGAIN = 'processor: made again what somebody deleted';

export const CONSUMER_DELETED = deleted(
  "a stream's consumer deleted",
  ({ consumers }) => consumers.delete(EVENTS, 'processor'),
  ({ consumers }) => consumers.info(EVENTS, 'processor'),
);

/** The clients send nothing that goes there, so nothing can be lost with it. */
const EMPTY = 'SLUICE_HEARTBEATS';
export const STREAM_DELETED = deleted(
  'an empty stream deleted',
  ({ streams }) => streams.delete(EMPTY),
  ({ consumers }) => consumers.info(EMPTY, 'processor'),
);
