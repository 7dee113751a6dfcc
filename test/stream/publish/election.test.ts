/** A stream whose leader steps down or stands still: entries wait (contract part 2, order of decisions). */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { systemClock } from '../../../src/lib/clock.ts';
import { createLog } from '../../../src/lib/log.ts';
import { ANSWER_MS_MAX, BROKER_AWAY_MS_MAX } from '../../../src/limits.ts';
import { CheckpointBucket } from '../../../src/projects/usage/checkpoint-bucket.ts';
import { decodeFrame } from '../../../src/stream/frame.ts';
import { NatsLink } from '../../../src/stream/nats.ts';
import { Publisher } from '../../../src/stream/publish/publisher.ts';
import { setupTopology } from '../../../src/stream/setup/setup.ts';
import { freeze, thaw } from '../../support/freeze.ts';
import { NatsCluster } from '../../support/nats-cluster.ts';
import { until } from '../../support/system.ts';
import { envelopeOf, nameOf, Tally } from '../broker.ts';

const STREAM = 'SLUICE_EVENTS';
const log = createLog('silent');
let cluster: NatsCluster;
let link: NatsLink;
beforeEach(async () => {
  cluster = await NatsCluster.start();
  link = await NatsLink.connect({ urls: cluster.urls, name: 'test', log, waitForServer: true });
  const topology = { replicas: 3, shards: 1, maxBytes: 64 * 1024 * 1024 };
  await until(() =>
    setupTopology(link, topology).then(
      () => true,
      () => false,
    ),
  );
});
afterEach(async () => {
  await link.close();
  await cluster.close();
});

const leader = (): Promise<number | undefined> => cluster.leaderOf(link, STREAM).catch(() => undefined);

async function storedIds(): Promise<string[]> {
  const manager = await link.manager();
  const { state } = await manager.streams.info(STREAM);
  const ids: string[] = [];
  for (let seq = state.first_seq; seq <= state.last_seq; seq++) {
    const message = await manager.streams.getMessage(STREAM, { seq });
    for (const slot of message ? decodeFrame(message.data) : [])
      ids.push(slot.ok ? nameOf(slot.entry) : 'broken');
  }
  return ids;
}

/** How the stream, and the bucket of counters, are without a leader that answers. @returns for how long, ms */
const ABSENCES = {
  'steps down': async (): Promise<number> => {
    const wentAt = performance.now();
    for (const name of [STREAM, 'KV_sluice_counters'])
      await link.connection.request(`$JS.API.STREAM.LEADER.STEPDOWN.${name}`, '', { timeout: 5_000 });
    await until(async () => (await leader()) !== undefined);
    return performance.now() - wentAt;
  },
  'stands still for 1.2 s': async (): Promise<number> => {
    const pid = cluster.pid((await leader()) ?? 0);
    const wentAt = performance.now();
    await freeze(pid);
    await sleep(1_200);
    thaw(pid);
    return performance.now() - wentAt;
  },
};

it.each(Object.entries(ABSENCES))(
  'costs no entry and no checkpoint anything where it %s, and stores none twice',
  async (_, goAway) => {
    const publisher = new Publisher({ link, shards: 1, clock: systemClock, log });
    for (let round = 0, number = 0; ; round++) {
      expect(round).toBeLessThan(10);
      await until(async () => (await leader()) !== undefined);
      const tally = new Tally(publisher);
      const checkpoints = new CheckpointBucket({ link, log });
      const read: Promise<unknown>[] = [];
      const load = setInterval(() => {
        tally.publish(envelopeOf(number++), ANSWER_MS_MAX);
        read.push(checkpoints.read(`${number}`, '2026-07').catch((error: unknown) => error));
      }, 8);
      await sleep(200);
      const awayMs = await goAway();
      await sleep(200);
      clearInterval(load);
      await publisher.drain();
      const figures = await Promise.all(read);
      // A busy machine may be without it for longer.
      if (awayMs > 0.9 * BROKER_AWAY_MS_MAX) continue;
      expect(Object.keys(tally.counts())).toEqual(['stored']);
      expect(figures.filter((one) => one !== undefined)).toEqual([]);
      const ids = await storedIds();
      expect(new Set(ids).size).toBe(ids.length);
      expect(ids).toEqual(expect.arrayContaining(tally.idsOf('stored')));
      return;
    }
  },
);
