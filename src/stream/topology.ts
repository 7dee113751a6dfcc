/** The streams, consumers and buckets in JetStream, as data. setup/setup.ts creates them. */
import { AckPolicy, DiscardPolicy, RetentionPolicy, StorageType } from '@nats-io/jetstream';
import { nanos } from '@nats-io/transport-node';
import { EXTRA_TYPES, type ExtraType, type ItemType } from '../lib/item-types.ts';
import {
  ACK_WAIT_MS,
  AUDIT_AGE_MS,
  CONSUMER_ACK_PENDING_MAX,
  DEAD_LETTER_AGE_MS,
  DEDUP_WINDOW_MS,
} from '../limits.ts';
import { wholeRecords } from './record-size.ts';
import type { WantedStream } from './setup/setup-run.ts';

/** The streams of frames, by the kind of their items, in the order in which commands list them. */
export const FRAME_STREAMS = ['events', 'transactions', 'logs', 'replays', 'heartbeats', 'extras'] as const;
export type FrameStream = (typeof FRAME_STREAMS)[number];

export const CHUNKS_STREAM = 'SLUICE_CHUNKS';
/**
 * Each project's parts have a subject of their own below this one, so that the broker counts them
 * by project.
 */
export const PARTS_SUBJECT = 'sluice.chunks';
/**
 * The segment of a NATS subject that names a project. `-` stands for no project, or for a project
 * whose id cannot be a segment.
 */
export const projectSegment = (projectId: string | undefined): string =>
  projectId !== undefined && /^[a-z0-9]{1,32}$/.test(projectId) ? projectId : '-';
export const partsSubject = (projectId: string): string => `${PARTS_SUBJECT}.${projectSegment(projectId)}`;
export const DEAD_LETTERS_STREAM = 'SLUICE_DEAD_LETTERS';
/**
 * Each dead letter has a subject of its own below this one and below its project's segment. The
 * stream keeps the last message of each subject.
 */
export const DEAD_LETTERS_SUBJECT = 'sluice.dead_letters';
/** Stream of records, one for each change of a project or heartbeat token (src/projects). */
export const AUDIT_STREAM = 'SLUICE_AUDIT';
export const AUDIT_SUBJECT = 'sluice.audit';
export const CONSUMER = 'processor';
export const PROJECTS_BUCKET = 'sluice_projects';
export const HEARTBEATS_BUCKET = 'sluice_heartbeats';
export const COUNTERS_BUCKET = 'sluice_counters';
export const BUCKETS = [PROJECTS_BUCKET, HEARTBEATS_BUCKET, COUNTERS_BUCKET] as const;

/**
 * The stream of each item type. An envelope goes, whole, to the stream of its first stored item.
 */
export const STREAM_OF_TYPE: Record<ItemType, FrameStream> = {
  event: 'events',
  transaction: 'transactions',
  log: 'logs',
  replay_event: 'replays',
  replay_recording: 'replays',
  span: 'transactions',
  otlp_traces: 'transactions',
  otlp_logs: 'logs',
  ...(Object.fromEntries(EXTRA_TYPES.map((type) => [type, 'extras'])) as Record<ExtraType, 'extras'>),
};

/**
 * Name of a shard's stream: `SLUICE_EVENTS`, or with several shards `SLUICE_EVENTS_0`,
 * `SLUICE_EVENTS_1`, …
 */
export function streamName(stream: FrameStream, shard: number, shards: number): string {
  const name = `SLUICE_${stream.toUpperCase()}`;
  return shards === 1 ? name : `${name}_${shard}`;
}

/** Subject of a shard's stream, such as `sluice.events.0`. */
export const streamSubject = (stream: FrameStream, shard: number): string => `sluice.${stream}.${shard}`;

/**
 * Returns the present subject for a frame that was stored under `subject`, perhaps when there were
 * more shards. A frame of shard n goes to shard n modulo `shards`.
 */
export function subjectAmong(subject: string, shards: number): string {
  const [, name, shard] = /^sluice\.(\w+)\.(\d+)$/.exec(subject) ?? [];
  const stream = FRAME_STREAMS.find((one) => one === name);
  return stream === undefined ? subject : streamSubject(stream, Number(shard) % shards);
}

/** Whether a stream of this name holds frames, for any number of shards. */
export const isFrameStreamName = (name: string): boolean =>
  FRAME_STREAMS.some((stream) => new RegExp(`^SLUICE_${stream.toUpperCase()}(_\\d+)?$`).test(name));

/** Names of all streams in a deployment with this number of shards. */
export const streamNamesOf = (shards: number): string[] => [
  ...FRAME_STREAMS.flatMap((stream) =>
    Array.from({ length: shards }, (_, shard) => streamName(stream, shard, shards)),
  ),
  CHUNKS_STREAM,
  DEAD_LETTERS_STREAM,
  AUDIT_STREAM,
];

export type TopologyOptions = {
  replicas: number;
  shards: number;
  /** Most bytes of each stream. */
  maxBytes: number;
};

/**
 * The streams as setup should make them. `discard: new`: a full stream refuses new messages and
 * keeps the old ones. Only the stream of dead letters discards its oldest messages, so that a full
 * one never blocks good items.
 */
export function wantedStreams({ replicas, shards, maxBytes }: TopologyOptions): WantedStream[] {
  const common = {
    storage: StorageType.File,
    discard: DiscardPolicy.New,
    max_bytes: wholeRecords(maxBytes),
    num_replicas: replicas,
    duplicate_window: nanos(DEDUP_WINDOW_MS),
  };
  const consumer = {
    durable_name: CONSUMER,
    ack_policy: AckPolicy.Explicit,
    ack_wait: nanos(ACK_WAIT_MS),
    max_deliver: -1,
    max_ack_pending: CONSUMER_ACK_PENDING_MAX,
  };
  const frames = FRAME_STREAMS.flatMap((stream) =>
    Array.from({ length: shards }, (_, shard): WantedStream => {
      const config = {
        ...common,
        name: streamName(stream, shard, shards),
        subjects: [streamSubject(stream, shard)],
        retention: RetentionPolicy.Workqueue,
        max_age: 0,
        // No limit. A setup that was killed may have left the stream closed (setup-run.ts).
        max_msg_size: -1,
      };
      return { config, consumer };
    }),
  );
  const chunks = {
    ...common,
    name: CHUNKS_STREAM,
    subjects: [PARTS_SUBJECT, `${PARTS_SUBJECT}.*`],
    retention: RetentionPolicy.Limits,
    max_age: 0,
    allow_direct: true,
  };
  const deadLetters = {
    ...common,
    name: DEAD_LETTERS_STREAM,
    subjects: [`${DEAD_LETTERS_SUBJECT}.>`],
    discard: DiscardPolicy.Old,
    retention: RetentionPolicy.Limits,
    max_age: nanos(DEAD_LETTER_AGE_MS),
    max_msgs_per_subject: 1,
  };
  const audit = {
    ...common,
    name: AUDIT_STREAM,
    subjects: [`${AUDIT_SUBJECT}.>`],
    retention: RetentionPolicy.Limits,
    max_age: nanos(AUDIT_AGE_MS),
  };
  return [...frames, { config: chunks }, { config: deadLetters }, { config: audit }];
}
