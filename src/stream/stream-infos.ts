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
 * The broker's information on each wanted stream. Each is asked by name: a cluster's list of
 * streams leaves out, without an error, streams whose leader does not answer, as if they did not
 * exist.
 * @throws when one of them does not answer
 */
export async function streamInfos(
  manager: JetStreamManager,
  isWanted: (name: string) => boolean,
): Promise<StreamInfo[]> {
  const names = await streamNames(manager, isWanted);
  return Promise.all(names.map((name) => manager.streams.info(name)));
}
