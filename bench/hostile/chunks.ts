import { createLog } from '../../src/lib/log.ts';
import { NatsLink } from '../../src/stream/nats.ts';
import { CHUNKS_STREAM } from '../../src/stream/topology.ts';
import type { HostileWorker } from './worker.ts';

/** Messages in the stream of parts. */
export async function chunkCount(worker: HostileWorker): Promise<number> {
  const link = await NatsLink.connect({ urls: [worker.natsUrl], name: 'hostile', log: createLog('silent') });
  try {
    const manager = await link.manager();
    return (await manager.streams.info(CHUNKS_STREAM)).state.messages;
  } finally {
    await link.close();
  }
}
