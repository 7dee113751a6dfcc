import type { JetStreamManager } from '@nats-io/jetstream';
import { createLog } from '../../src/lib/log.ts';
import { NatsLink } from '../../src/stream/nats.ts';
import { CHUNKS_STREAM } from '../../src/stream/topology.ts';
import type { HostileWorker } from './worker.ts';

async function manage<T>(worker: HostileWorker, ask: (manager: JetStreamManager) => Promise<T>): Promise<T> {
  const link = await NatsLink.connect({ urls: [worker.natsUrl], name: 'hostile', log: createLog('silent') });
  try {
    return await ask(await link.manager());
  } finally {
    await link.close();
  }
}

/** Messages in the stream of parts. */
export const chunkCount = (worker: HostileWorker): Promise<number> =>
  manage(worker, async (manager) => (await manager.streams.info(CHUNKS_STREAM)).state.messages);

/** Makes room for more parts than the other streams have, which the broker would reserve for each of them. */
export async function allowChunks(worker: HostileWorker, bytes: number): Promise<void> {
  await manage(worker, (manager) => manager.streams.update(CHUNKS_STREAM, { max_bytes: bytes }));
}
