import type { JetStreamManager, StreamInfo } from '@nats-io/jetstream';

/**
 * What the broker says of each stream whose name is wanted. Asked by name: a cluster's list of streams leaves out, without an error,
 * those whose leader does not answer, and they look like streams that do not exist.
 * @throws when one of them does not answer
 */
export async function streamInfos(
  { streams }: JetStreamManager,
  isWanted: (name: string) => boolean,
): Promise<StreamInfo[]> {
  const names: string[] = [];
  for await (const name of streams.names()) if (isWanted(name)) names.push(name);
  return Promise.all(names.map((name) => streams.info(name)));
}
