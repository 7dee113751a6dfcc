import type { JetStreamManager, StreamState } from '@nats-io/jetstream';
import type { Clock } from '../lib/clock.ts';
import type { Log } from '../lib/log.ts';
import { CHUNK_SWEEP_DELAY_MS, CHUNK_SWEEP_EVERY_MS } from '../limits.ts';
import { readBacklog } from '../stream/backlog.ts';
import type { NatsLink } from '../stream/nats.ts';
import { streamNames } from '../stream/stream-watch.ts';
import { CHUNKS_STREAM, CONSUMER, isFrameStreamName } from '../stream/topology.ts';

/**
 * The first and last sequence of a stream. In a frame stream, `first` is the sequence of the first
 * unprocessed frame. When the stream has no message, or no unprocessed frame, `first` is one more
 * than `last`.
 */
export type StreamEnds = { first: number; last: number };

type Watermark = {
  /** Last sequence of the chunks stream at `notedAt`. */
  chunksUpTo: number;
  /** Monotonic ms. */
  notedAt: number;
  /** Last sequence of each frame stream, noted at least CHUNK_SWEEP_DELAY_MS after `notedAt`. */
  framesUpTo?: ReadonlyMap<string, number>;
};

/**
 * Finds the parts of large entries that no frame needs any more. The class is pure. Usually the
 * processor removes a frame's parts itself (frame-writer.ts). Parts are left over when their frame
 * was never published, or when their processor was killed at the wrong moment.
 *
 * A worker answers 200 only if it stored the frame at most five minutes after it began to write the
 * parts that the frame names. Say the chunks stream ended at sequence A ten minutes ago. Then each
 * such frame that names a part up to A is in its stream by now, at most at the last sequence L of
 * this stream. Once the unprocessed frames of each stream begin beyond its L, the parts up to A can
 * go.
 */
export class SweepPlan {
  /** Notes of where the streams ended, oldest first. */
  #watermarks: Watermark[] = [];

  /**
   * Notes where the streams end, and finds how far the chunks stream may be purged.
   * @param now monotonic ms
   * @returns the last sequence that may be purged; undefined when no further part may be purged yet
   */
  next(now: number, chunks: StreamEnds, frames: ReadonlyMap<string, StreamEnds>): number | undefined {
    // Watermarks beyond the end are dropped: a broker that lost the end of the stream, or has a new
    // stream, gives out the same sequences again.
    this.#watermarks = this.#watermarks.filter(({ chunksUpTo }) => chunksUpTo <= chunks.last);
    const newest = this.#watermarks.at(-1);
    if (chunks.last >= chunks.first && newest?.chunksUpTo !== chunks.last)
      this.#watermarks.push({ chunksUpTo: chunks.last, notedAt: now });
    for (const mark of this.#watermarks)
      if (!mark.framesUpTo && now - mark.notedAt >= CHUNK_SWEEP_DELAY_MS)
        mark.framesUpTo = new Map([...frames].map(([name, { last }]) => [name, last]));
    const past = this.#watermarks.findLastIndex(({ framesUpTo }) => framesUpTo && isPast(framesUpTo, frames));
    if (past < 0) return undefined;
    return this.#watermarks.splice(0, past + 1).at(-1)?.chunksUpTo;
  }
}

/**
 * Whether every frame stream's unprocessed frames begin beyond the noted sequence. A deleted stream
 * has no frames left.
 */
const isPast = (framesUpTo: ReadonlyMap<string, number>, frames: ReadonlyMap<string, StreamEnds>): boolean =>
  [...framesUpTo].every(([name, last]) => (frames.get(name)?.first ?? Infinity) > last);

/**
 * Returns the ends of a stream. An empty stream begins behind its last sequence. The server's own
 * first sequence is not used for an empty stream: it is 0 if the stream never held anything.
 */
const endsOf = ({ messages, first_seq, last_seq }: StreamState): StreamEnds => ({
  first: messages === 0 ? last_seq + 1 : first_seq,
  last: last_seq,
});

/**
 * Reads the ends of the chunks stream and all frame streams. Undefined when there is no chunks
 * stream.
 */
async function readEnds(
  manager: JetStreamManager,
): Promise<{ chunks: StreamEnds; frames: Map<string, StreamEnds> } | undefined> {
  const names = await streamNames(manager, (name) => name === CHUNKS_STREAM || isFrameStreamName(name));
  if (!names.includes(CHUNKS_STREAM)) return undefined;
  const { state } = await manager.streams.info(CHUNKS_STREAM);
  const frames = new Map<string, StreamEnds>();
  for (const stream of names.filter(isFrameStreamName))
    frames.set(stream, await readBacklog(manager, { stream, consumer: CONSUMER }));
  return { chunks: endsOf(state), frames };
}

type PartSweeperOptions = { link: NatsLink; clock: Clock; log: Log };

/**
 * Purges, once a minute, the parts that no frame needs from the chunks stream. Several processors
 * may do so at the same time: a second purge of the same parts does no harm.
 */
export class PartSweeper {
  readonly #options: PartSweeperOptions;
  readonly #plan = new SweepPlan();
  #timer: NodeJS.Timeout | undefined;
  #sweeping: Promise<void> = Promise.resolve();

  constructor(options: PartSweeperOptions) {
    this.#options = options;
  }

  start(): void {
    this.#timer = setInterval(() => {
      this.#sweeping = this.sweep().catch((error) =>
        this.#options.log.warn({ err: error }, 'processor: parts could not be swept'),
      );
    }, CHUNK_SWEEP_EVERY_MS);
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#sweeping;
  }

  /**
   * Looks once, and purges the parts that no frame needs.
   * @throws when the broker, or the leader of one of the streams, does not answer; then nothing is
   * purged
   */
  async sweep(): Promise<void> {
    const manager = await this.#options.link.manager();
    const ends = await readEnds(manager);
    if (!ends) return;
    const upTo = this.#plan.next(this.#options.clock.monotonic(), ends.chunks, ends.frames);
    if (upTo === undefined) return;
    const { purged } = await manager.streams.purge(CHUNKS_STREAM, { seq: upTo + 1 });
    if (purged > 0) this.#options.log.info({ upTo, purged }, 'processor: swept parts of large entries');
  }
}
