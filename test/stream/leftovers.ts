import type { JetStreamManager } from '@nats-io/jetstream';

/** Makes a frame stream anew, empty, as one that keeps what was acknowledged: what a broker that was killed may do with a work queue. */
export async function keepAcknowledged(manager: JetStreamManager, stream: string): Promise<void> {
  const { config } = await manager.streams.info(stream);
  const consumer = await manager.consumers.info(stream, 'processor');
  await manager.streams.delete(stream);
  await manager.streams.add({ ...config, retention: 'limits' });
  await manager.consumers.add(stream, consumer.config);
}
