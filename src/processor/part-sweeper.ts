import type { JetStreamManager, StreamState } from '@nats-io/jetstream';
import type { Clock } from '../lib/clock.ts';
import type { Log } from '../lib/log.ts';
import { CHUNK_SWEEP_DELAY_MS, CHUNK_SWEEP_EVERY_MS } from '../limits.ts';
import { readBacklog } from '../stream/backlog.ts';
import type { NatsLink } from '../stream/nats.ts';
import { streamNames } from '../stream/stream-watch.ts';
import { CHUNKS_STREAM, CONSUMER, isFrameStreamName } from '../stream/topology.ts';

/**
 * The first and last sequence of a stream (of a frame stream: of its unprocessed frames). In an
 * empty stream the first is one beyond the last.
 */
export type StreamEnds = { first: number; last: number };

type Watermark = {
  /** Last sequence of the chunks stream at `notedAt`. */
  chunksUpTo: number;
  /** Monotonic ms. */
  notedAt: number;
  /** Last sequence of each frame stream, CHUNK_SWEEP_DELAY_MS later. */
  framesUpTo?: ReadonlyMap<string, number>;
};

/**
 * Which parts of large entries no frame needs any more. Pure: it takes the streams' figures and
 * answers how far to purge. Parts that a frame names are gone long before (frame-writer.ts). These
 * are left: their frame was never published, or their processor was killed at the wrong moment.
 *
 * A frame that names a part is stored at most five minutes after the part (the worker answers 200
 * only then). So ten minutes after the chunks stream ended at A, every frame that could name a part
 * up to A is in its stream, at or before the stream's last sequence L. Once the unprocessed frames
 * begin beyond L in every frame stream, parts up to A can go. No clock is compared with another,
 * and there is no index of parts.
 */
export class SweepPlan {
  /** Oldest first. */
  #watermarks: Watermark[] = [];

  /**
   * @param now monotonic ms
   * @returns the sequence up to which the chunks stream may be purged, or undefined
   */
  next(now: number, chunks: StreamEnds, frames: ReadonlyMap<string, StreamEnds>): number | undefined {
    // A broker that lost the end of the stream, or has a new one, gives its numbers again.
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

/** A stream that is gone has no frames left. */
const isPast = (framesUpTo: ReadonlyMap<string, number>, frames: ReadonlyMap<string, StreamEnds>): boolean =>
  [...framesUpTo].every(([name, last]) => (frames.get(name)?.first ?? Infinity) > last);

/** A stream that never held anything says that it begins and ends at 0. */
const endsOf = ({ messages, first_seq, last_seq }: StreamState): StreamEnds => ({
  first: messages === 0 ? last_seq + 1 : first_seq,
  last: last_seq,
});

/** Undefined: there is no chunks stream. */
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

/** Looks once a minute, in any number of processors at once: to purge twice does no harm. */
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
   * One look. @throws when the broker, or the leader of one of the streams, does not answer: then
   * nothing is swept
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
