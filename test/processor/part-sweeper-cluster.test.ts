/** Sweeping parts while a part of a cluster is silent. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { CHUNK_SWEEP_DELAY_MS } from '../../src/limits.ts';
import { PartSweeper } from '../../src/processor/part-sweeper.ts';
import { NatsLink } from '../../src/stream/nats.ts';
import { removeParts } from '../../src/stream/parts.ts';
import { setupTopology } from '../../src/stream/setup/setup.ts';
import { freeze, thaw } from '../support/freeze.ts';
import { NatsCluster } from '../support/nats-cluster.ts';
import { eventually, log } from './harness.ts';

const TOPOLOGY = { replicas: 3, shards: 1, maxBytes: 64 * 1024 * 1024 };
let cluster: NatsCluster;
beforeEach(async () => {
  cluster = await NatsCluster.start();
});
afterEach(() => cluster.close());

const connect = (urls: readonly string[]): Promise<NatsLink> =>
  NatsLink.connect({ urls, name: 'test', log, waitForServer: true });

/** Until one leads, and neither leads the other: the silence of the one must not be that of both. */
async function leaderApart(link: NatsLink, stream: string, other: string): Promise<number> {
  const look = async (): Promise<{ leader: number } | undefined> => {
    const [leader, others] = [await cluster.leaderOf(link, stream), await cluster.leaderOf(link, other)];
    if (leader !== undefined && leader !== others) return { leader };
    await link.connection.request(`$JS.API.STREAM.LEADER.STEPDOWN.${other}`, '', { timeout: 2_000 });
    await sleep(500);
    return undefined;
  };
  // While an election runs the broker may say nothing, or that nobody leads.
  return eventually(() => look().catch(() => undefined)).then(({ leader }) => leader);
}

it('keeps parts while the leader of a stream of frames does not answer', async () => {
  const any = await connect(cluster.urls);
  await eventually(
    () =>
      setupTopology(any, TOPOLOGY).then(
        () => true,
        () => false,
      ),
    40_000,
  );
  const silent = await leaderApart(any, 'SLUICE_EVENTS', 'SLUICE_CHUNKS');
  await any.close();
  const link = await connect(cluster.urls.filter((_, node) => node !== silent));
  const parts = async (): Promise<number> =>
    (await (await link.manager()).streams.info('SLUICE_CHUNKS')).state.messages;
  let now = 0;
  const sweeper = new PartSweeper({ link, clock: { now: () => now, monotonic: () => now }, log });
  // While an election runs nobody answers.
  const published = (subject: string, text: string) =>
    eventually(() =>
      link.js.publish(subject, text).catch((error: Error) => {
        if (error.name !== 'JetStreamNotEnabled') throw error;
        return undefined;
      }),
    );
  await published('sluice.chunks', 'a part');
  await published('sluice.events.0', 'a frame that names it');
  await sweeper.sweep();
  now += CHUNK_SWEEP_DELAY_MS;
  await sweeper.sweep();
  expect(await parts()).toBe(1);
  await freeze(cluster.pid(silent));
  try {
    await sweeper.sweep().catch(() => undefined);
    await sleep(1_000);
  } finally {
    thaw(cluster.pid(silent));
  }
  const left = await eventually(
    () =>
      parts().then(
        (messages) => ({ messages }),
        () => undefined,
      ),
    30_000,
  );
  expect(left).toEqual({ messages: 1 });
  await link.close();
});

it('removes parts whichever node is asked, also when some are gone already', async () => {
  const link = await connect(cluster.urls);
  await eventually(
    () =>
      setupTopology(link, TOPOLOGY).then(
        () => true,
        () => false,
      ),
    40_000,
  );
  const { streams } = await link.manager();
  const parts: number[] = [];
  for (const subject of ['sluice.chunks.1', 'sluice.chunks.2', 'sluice.chunks.1'])
    parts.push((await eventually(() => link.js.publish(subject, 'a part').catch(() => undefined))).seq);
  for (const node of cluster.urls) {
    const other = await connect([node]);
    await removeParts(other, parts.slice(0, 2));
    await other.close();
  }
  const { state } = await streams.info('SLUICE_CHUNKS', { subjects_filter: 'sluice.chunks.>' });
  expect([state.messages, state.subjects]).toEqual([1, { 'sluice.chunks.1': 1 }]);
  await link.close();
});
