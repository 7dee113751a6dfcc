/**
 * Spreads the leaders of streams and consumers over the servers of a cluster. After servers were
 * restarted, one server may lead all streams. Then several shards no longer share the work.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { ClusterInfo } from '@nats-io/jetstream';
import type { NatsLink } from '../nats.ts';
import { BUCKETS, CONSUMER } from '../topology.ts';
import { orMissing } from './setup-error.ts';
import type { WantedStream } from './setup-run.ts';

/** A stream or consumer that has a leader in a cluster. */
export type Led = {
  name: string;
  /** Subject of the request that asks the leader to step down. */
  stepDown: string;
  leader: string;
  /** Other servers that could lead now. */
  others: readonly string[];
};
export type Move = { led: Led; to: string };

const ROUNDS = 5;
const STEP_DOWN_MS_MAX = 5_000;
/** Pause between two rounds; an election takes less. */
const ROUND_MS = 2_000;
/**
 * First minor version of nats-server 2 that accepts a preferred leader. An older server chooses the
 * leader itself.
 */
const PREFERRED_2_MINOR_MIN = 11;

/** Names of the streams whose leaders are spread: those of the deployment and of its buckets. */
export const streamsOf = (wanted: readonly WantedStream[]): string[] => [
  ...wanted.map(({ config }) => config.name),
  ...BUCKETS.map((bucket) => `KV_${bucket}`),
];

/**
 * Whether one server leads more than half of the streams. `leaders` names the leader of each
 * stream of `streamsOf`.
 */
export const isLopsided = (leaders: readonly string[]): boolean =>
  leaders.some((leader) => leaders.filter((one) => one === leader).length > leaders.length / 2);

/**
 * The moves after which no server leads more than the average, rounded up, unless no other server
 * can take over. Pure.
 */
export function movesFor(all: readonly Led[]): Move[] {
  const counts = new Map<string, number>();
  for (const { leader, others } of all) {
    for (const server of [leader, ...others]) counts.set(server, counts.get(server) ?? 0);
    counts.set(leader, (counts.get(leader) ?? 0) + 1);
  }
  const count = (server: string): number => counts.get(server) ?? 0;
  const share = Math.ceil(all.length / Math.max(1, counts.size));
  const moves: Move[] = [];
  for (const led of all) {
    if (count(led.leader) <= share) continue;
    const [to] = [...led.others].sort((one, other) => count(one) - count(other));
    if (to === undefined || count(to) >= share) continue;
    counts.set(led.leader, count(led.leader) - 1);
    counts.set(to, count(to) + 1);
    moves.push({ led, to });
  }
  return moves;
}

function ledOf(name: string, stepDown: string, cluster: ClusterInfo | undefined): Led[] {
  if (!cluster?.name || !cluster.leader || !cluster.replicas?.length) return [];
  const able = cluster.replicas.filter(({ current, offline }) => current && !offline);
  return [{ name, stepDown, leader: cluster.leader, others: able.map((peer) => peer.name) }];
}

/**
 * Lists the streams of sluice (buckets included) and the consumers, as far as they have a leader in
 * a cluster.
 * @throws when the broker does not answer
 */
async function allLed(link: NatsLink, wanted: readonly WantedStream[]): Promise<[Led[], Led[]]> {
  const { streams, consumers } = await link.manager();
  const api = '$JS.API';
  const [ofStreams, ofConsumers]: [Led[], Led[]] = [[], []];
  for (const name of streamsOf(wanted)) {
    const info = await orMissing(streams.info(name));
    ofStreams.push(...ledOf(name, `${api}.STREAM.LEADER.STEPDOWN.${name}`, info?.cluster));
  }
  for (const { config, consumer } of wanted) {
    if (!consumer) continue;
    const info = await orMissing(consumers.info(config.name, CONSUMER));
    const stepDown = `${api}.CONSUMER.LEADER.STEPDOWN.${config.name}.${CONSUMER}`;
    ofConsumers.push(...ledOf(`${config.name}/${CONSUMER}`, stepDown, info?.cluster));
  }
  return [ofStreams, ofConsumers];
}

/**
 * Asks leaders to step down until they are spread evenly, in at most ROUNDS rounds. Stops when
 * `signal` is aborted.
 * @returns a line for each leader that was asked
 * @throws when the broker refuses a request, or does not answer in the last round (a stream does
 * not answer during an election)
 */
export async function balanceLeaders(
  link: NatsLink,
  wanted: readonly WantedStream[],
  signal = new AbortController().signal,
): Promise<string[]> {
  const said: string[] = [];
  for (let round = 1; ; round++) {
    const moves = await allLed(link, wanted).then(
      (groups) => groups.flatMap(movesFor),
      (error: unknown) => {
        if (round === ROUNDS) throw error;
        return undefined;
      },
    );
    for (const move of moves ?? []) if (!signal.aborted) said.push(await ask(link, move));
    if (moves?.length === 0 || round === ROUNDS) return said;
    await sleep(ROUND_MS, undefined, { signal }).catch(() => undefined);
    if (signal.aborted) return said;
  }
}

/**
 * Asks one leader to step down.
 * @returns a line that says so
 * @throws when the broker refuses
 */
async function ask(link: NatsLink, { led, to }: Move): Promise<string> {
  const [, minor = 0] = (link.connection.info?.version ?? '').split('.').map(Number);
  const request = minor < PREFERRED_2_MINOR_MIN ? '' : JSON.stringify({ placement: { preferred: to } });
  const answer = await link.connection.request(led.stepDown, request, { timeout: STEP_DOWN_MS_MAX });
  const { error } = answer.json() as { error?: { description: string } };
  if (error) throw new Error(`${led.name}: ${error.description}`);
  return `${led.name}: its leader ${led.leader} was asked to step down`;
}
