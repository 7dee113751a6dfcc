import type { JetStreamManager, StreamInfo } from '@nats-io/jetstream';

/** Names of streams that are wanted. A cluster names also those whose leader does not answer. */
export async function streamNames(
  { streams }: JetStreamManager,
  isWanted: (name: string) => boolean,
): Promise<string[]> {
  const names: string[] = [];
  for await (const name of streams.names()) if (isWanted(name)) names.push(name);
  return names;
}

/**
 * What the broker says of each stream whose name is wanted. Asked by name: a cluster's list of streams leaves out, without an error,
 * those whose leader does not answer, and they look like streams that do not exist.
 * @throws when one of them does not answer
 */
export async function streamInfos(
  manager: JetStreamManager,
  isWanted: (name: string) => boolean,
): Promise<StreamInfo[]> {
  const names = await streamNames(manager, isWanted);
  return Promise.all(names.map((name) => manager.streams.info(name)));
}
