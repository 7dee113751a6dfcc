import type { JetStreamManager } from '@nats-io/jetstream';
import { raiseUsage } from '../ingest/limit/month-count.ts';
import type { Log } from '../lib/log.ts';
import { counter, type MetricsSnapshot } from '../lib/metrics/metrics.ts';
import { LOSS_LOOK_MS, LOSS_LOOKS_MIN } from '../limits.ts';
import { CheckpointBucket, type NotedLoss } from '../projects/usage/checkpoint-bucket.ts';
import { readBacklog } from '../stream/backlog.ts';
import type { NatsLink } from '../stream/nats.ts';
import { CONSUMER } from '../stream/topology.ts';
import type { Connections } from './connections.ts';

type LostCountsOptions = {
  link: NatsLink;
  /** Opens the connections of one comparison. The processor needs Redis for nothing else. */
  connect: () => Connections;
  /** Reads the sink's tally: the number of accepted envelopes of each project in a month. */
  tallies: (month: string) => Promise<ReadonlyMap<string, number>>;
  /** The frame streams. */
  streams: readonly string[];
  log: Log;
  lookMs?: number;
};

/**
 * Number of projects whose counts are raised at the same time. Redis must answer all of these
 * requests within its time-out.
 */
const BATCH = 100;

/**
 * Restores counts of the month that Redis lost: raises them to the sink's tally. The processor runs
 * this, because only the processor has the sink.
 *
 * A worker leaves a note in the bucket of counters when it finds counts or windows lost, or a count
 * in Redis that is lower than the worker's own. While the note exists, the processor compares again
 * and again. Each comparison, a look, raises every count of the month that is lower than the tally.
 *
 * Raising a count to the tally is right at any moment, for any number of processors: the tally has
 * only requests that were counted, so a lower count has lost some. A look never lowers a count, and
 * never creates one. A project without a count resumes from its checkpoint at its next request, and
 * the worker then leaves a note again.
 *
 * After LOSS_LOOKS_MIN looks, the processor remembers the last sequence of each stream. When all
 * frames up to these sequences are done, the processor looks for the last time and removes the
 * note.
 *
 * A look skips each id under which a project was deleted this month, because the tally also has the
 * deleted project's requests.
 */
export class LostCounts {
  readonly #options: LostCountsOptions;
  readonly #bucket: CheckpointBucket;
  readonly #timer: NodeJS.Timeout;
  #looking: Promise<void> | undefined;
  /** The note of the loss that is being restored. */
  #loss: NotedLoss | undefined;
  #looks = 0;
  /** The last sequence of each stream, remembered after LOSS_LOOKS_MIN looks. */
  #marks: ReadonlyMap<string, number> | undefined;
  #raised = 0;
  /** Failed looks in a row. The first one is logged, and then one of every LOSS_LOOKS_MIN. */
  #failures = 0;

  constructor(options: LostCountsOptions) {
    this.#options = options;
    this.#bucket = new CheckpointBucket(options);
    this.#timer = setInterval(() => {
      this.#looking ??= this.look().finally(() => {
        this.#looking = undefined;
      });
    }, options.lookMs ?? LOSS_LOOK_MS);
    this.#timer.unref();
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#looking;
  }

  expose(): MetricsSnapshot {
    const help = "Counts of a month that Redis had lost, and that were raised to what the sink's tally says";
    return [counter('sluice_counters_raised_total', help, [[{}, this.#raised]])];
  }

  /** Looks once. The promise never rejects: a failure is logged, and the next look tries again. */
  async look(): Promise<void> {
    if (!this.#options.link.connected) return;
    const loss = await this.#bucket.readLoss().catch(() => undefined);
    if (loss === undefined) return;
    if (loss.revision !== this.#loss?.revision) {
      this.#loss = loss;
      this.#looks = 0;
      this.#marks = undefined;
    }
    try {
      await this.#compare(loss);
      this.#failures = 0;
    } catch (err) {
      if (this.#failures++ % LOSS_LOOKS_MIN > 0) return;
      this.#options.log.warn(
        { err },
        'processor: lost counts cannot be compared with the tally, trying again',
      );
    }
  }

  async #compare(loss: NotedLoss): Promise<void> {
    const manager = await this.#options.link.manager();
    const isLast = this.#marks !== undefined && (await isPast(manager, this.#marks));
    await this.#raiseAll(loss.month);
    if (isLast) await this.#bucket.forgetLoss(loss);
    else if (++this.#looks === LOSS_LOOKS_MIN) this.#marks = await lastOf(manager, this.#options.streams);
  }

  async #raiseAll(month: string): Promise<void> {
    // The tally is read before the list of deletions, so that the list has every project that was
    // deleted before the tally was read.
    const tallies = [...(await this.#options.tallies(month))];
    const deleted = await this.#bucket.deletedIds(month);
    const counts = tallies.filter(([projectId]) => !deleted.has(projectId));
    const connections = this.#options.connect();
    try {
      const redis = await connections.redis();
      for (let at = 0; at < counts.length; at += BATCH)
        await Promise.all(
          counts.slice(at, at + BATCH).map(async ([project, count]) => {
            const before = await raiseUsage(redis, { projectId: project, month, count });
            if (before === undefined) return;
            this.#raised++;
            this.#options.log.warn(
              { project, month, before, count },
              "processor: raised the count of a month to what the sink's tally says",
            );
          }),
        );
    } finally {
      await connections.close();
    }
  }
}

async function lastOf(manager: JetStreamManager, streams: readonly string[]): Promise<Map<string, number>> {
  const marks = new Map<string, number>();
  for (const stream of streams) marks.set(stream, (await manager.streams.info(stream)).state.last_seq);
  return marks;
}

async function isPast(manager: JetStreamManager, marks: ReadonlyMap<string, number>): Promise<boolean> {
  for (const [stream, last] of marks)
    if ((await readBacklog(manager, { stream, consumer: CONSUMER })).first <= last) return false;
  return true;
}
