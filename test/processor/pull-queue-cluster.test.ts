/** How frames are fetched from a cluster of three nats-servers, which deliver a frame once they agree. */
import { expect, it } from 'vitest';
import { PullQueue } from '../../src/processor/pull-queue.ts';
import { NatsLink } from '../../src/stream/nats.ts';
import { setupTopology } from '../../src/stream/setup/setup.ts';
import { CONSUMER, streamSubject } from '../../src/stream/topology.ts';
import { NatsCluster } from '../support/nats-cluster.ts';
import { eventually, log } from './harness.ts';

const MIB = 1024 * 1024;
const STREAM = 'SLUICE_EVENTS';

it('a frame that a pull waits for is fetched, though the broker ends the pull first', async () => {
  const cluster = await NatsCluster.start();
  try {
    const link = await NatsLink.connect({ urls: cluster.urls, name: 'test', log, waitForServer: true });
    const setup = () =>
      setupTopology(link, { replicas: 3, shards: 1, maxBytes: 64 * MIB }, { emptyBuckets: true });
    await eventually(() =>
      setup().then(
        () => true,
        () => false,
      ),
    );
    const manager = await link.manager();
    const openPulls = (): Promise<number | undefined> =>
      manager.consumers.info(STREAM, CONSUMER).then(
        (info) => info.num_waiting,
        () => undefined,
      );
    await eventually(async () => (await openPulls()) === 0);
    const warnings: string[] = [];
    const heard = Object.assign(Object.create(log), {
      warn: (fields: object) => warnings.push(JSON.stringify(fields)),
    });
    const queue = new PullQueue({ link, stream: STREAM, bytesMax: 8 * MIB, log: heard });
    queue.start();
    for (let count = 1; count <= 5; count++) {
      await queue.gather();
      await eventually(async () => (await openPulls()) === 1);
      await link.js.publish(streamSubject('events', 0), Buffer.alloc(100));
      await eventually(() => queue.frames.count === count);
    }
    expect(warnings).toEqual([]);
    await queue.stop();
    queue.frames.close();
    await link.close();
  } finally {
    await cluster.close();
  }
});
