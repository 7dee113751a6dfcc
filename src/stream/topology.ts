/** Names of what stands in JetStream (contract part 6). */
import type { ItemType } from '../lib/item-types.ts';

/** The five typed frame streams, in the order in which commands list them. */
export const FRAME_STREAMS = ['events', 'transactions', 'logs', 'replays', 'heartbeats'] as const;
export type FrameStream = (typeof FRAME_STREAMS)[number];

export const CHUNKS_STREAM = 'SLUICE_CHUNKS';
export const CHUNKS_SUBJECT = 'sluice.chunks';
export const DEAD_LETTERS_STREAM = 'SLUICE_DEAD_LETTERS';
export const DEAD_LETTERS_SUBJECT = 'sluice.dead_letters';
export const CONSUMER = 'processor';
export const PROJECTS_BUCKET = 'sluice_projects';
export const HEARTBEATS_BUCKET = 'sluice_heartbeats';
export const COUNTERS_BUCKET = 'sluice_counters';

/** An envelope goes whole to the stream of its first stored item. */
export const STREAM_OF_TYPE: Record<ItemType, FrameStream> = {
  event: 'events',
  transaction: 'transactions',
  log: 'logs',
  replay_event: 'replays',
  replay_recording: 'replays',
};

/** `SLUICE_EVENTS`, or with several shards `SLUICE_EVENTS_0`, `SLUICE_EVENTS_1`, … */
export function streamName(stream: FrameStream, shard: number, shards: number): string {
  const name = `SLUICE_${stream.toUpperCase()}`;
  return shards === 1 ? name : `${name}_${shard}`;
}

/** `sluice.events.0` */
export const streamSubject = (stream: FrameStream, shard: number): string => `sluice.${stream}.${shard}`;
