/** When a change of the registry has come to every worker: their watches say so, nobody has to wait out the time that the contract allows. */
import type { NatsLink } from '../../src/stream/nats.ts';

/** Whether so many workers have been sent all that the buckets hold. A look at each worker's metrics then waits for its turn to end. */
export async function registryDelivered(link: NatsLink, workers: number): Promise<boolean> {
  const { streams, consumers } = await link.manager();
  for (const bucket of ['sluice_projects', 'sluice_heartbeats']) {
    const stream = `KV_${bucket}`;
    const { state } = await streams.info(stream);
    let upToDate = 0;
    for await (const { delivered } of consumers.list(stream))
      if (delivered.stream_seq >= state.last_seq) upToDate++;
    if (upToDate < workers) return false;
  }
  return true;
}
