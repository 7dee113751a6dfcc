import { orLate } from '../lib/late.ts';
import {
  buildInfo,
  counter,
  credentialsExpiry,
  gauge,
  histogram,
  type MetricsSnapshot,
  refusedTokens,
  sumSnapshots,
} from '../lib/metrics/metrics.ts';
import type { SinkHealth } from '../sink/several.ts';
import type { NatsLink } from '../stream/nats.ts';
import { CONSUMER } from '../stream/topology.ts';
import { VERSION } from '../version.ts';

/** Result for an item. `resent`: the item is a client's own resend of a stored item. */
export type ProcessResult = 'stored' | 'resent' | 'dead_letter';

/** Values that are computed at each scrape. */
export type ProcessorGauges = {
  lagSeconds: number;
  /** Frames that wait or are in hand, by stream. Streams that do not answer are left out. */
  pendingMessages: Readonly<Record<string, number>>;
  /** Dead letters that were removed to make room, or could not be filed. */
  droppedDeadLetters: number;
  refusedTokens: number;
  /** When the NATS credentials expire, Unix seconds; undefined if they do not expire. */
  credsExpiry: number | undefined;
  sinks: readonly SinkHealth[];
  /** CPU, memory and the like of the process. */
  ofProcess: MetricsSnapshot;
  /** Metrics of the broker's streams and consumers. */
  broker: MetricsSnapshot;
};

export class ProcessorMetrics {
  /** Number of items, by `type\nresult`. */
  readonly #processed = new Map<string, number>();

  processed(type: string, result: ProcessResult, count = 1): void {
    const key = `${type}\n${result}`;
    this.#processed.set(key, (this.#processed.get(key) ?? 0) + count);
  }

  /** Returns the metrics in Prometheus text format. */
  render(gauges: ProcessorGauges): Promise<string> {
    return this.#collect(gauges).metrics();
  }

  /** Returns the metrics of {@link render} as objects, for the page of the admin port. */
  async snapshot(gauges: ProcessorGauges): Promise<MetricsSnapshot> {
    return (await this.#collect(gauges).getMetricsAsJSON()) as MetricsSnapshot;
  }

  #collect({
    lagSeconds,
    pendingMessages,
    droppedDeadLetters,
    refusedTokens: refused,
    credsExpiry,
    sinks,
    ofProcess,
    broker,
  }: ProcessorGauges): ReturnType<typeof sumSnapshots> {
    const processed = [...this.#processed].map(([key, count]) => {
      const [type = '', result = ''] = key.split('\n');
      return [{ type, result }, count] as const;
    });
    const pending = Object.entries(pendingMessages).map(([stream, count]) => [{ stream }, count] as const);
    return sumSnapshots([
      ofProcess,
      broker,
      [
        buildInfo(VERSION),
        credentialsExpiry(credsExpiry),
        refusedTokens(refused),
        counter(
          'sluice_processed_total',
          'Items by what became of them: stored, resent, dead_letter',
          processed,
        ),
        counter(
          'sluice_dead_letters_dropped_total',
          'Dead letters that were removed to make room for newer ones, or could not be filed',
          [[{}, droppedDeadLetters]],
        ),
        gauge(
          'sluice_processing_lag_seconds',
          'Age of the oldest frame that is in hand, 0 when there is none',
          [[{}, lagSeconds]],
        ),
        gauge('sluice_pending_messages', 'Frames that wait in a stream or are in hand', pending),
        gauge(
          'sluice_sink_failing',
          '1 while a sink does not take what it is given, or takes longer than 5 s for it',
          sinks.map(({ name, isFailing }) => [{ sink: name }, isFailing ? 1 : 0]),
        ),
        histogram(
          'sluice_sink_write_seconds',
          'How long a sink took to store a batch, or s3 its objects',
          sinks.map(({ name, writeSeconds }) => [{ sink: name }, writeSeconds]),
        ),
      ],
    ]);
  }
}

/**
 * How long a scrape waits for each stream. Prometheus gives up after 5 s, and takes the process for
 * dead.
 */
const SCRAPE_MS_MAX = 2_000;

/**
 * Asks each stream for the number of frames that wait in it or are in hand. Streams that do not
 * answer are left out.
 */
export async function pendingMessages(
  link: NatsLink,
  streams: readonly string[],
): Promise<Record<string, number>> {
  const manager = await link.manager();
  const ask = async (stream: string): Promise<readonly [string, number]> => {
    const { num_pending, num_ack_pending } = await manager.consumers.info(stream, CONSUMER);
    return [stream, num_pending + num_ack_pending];
  };
  const answers = await Promise.all(
    streams.map((stream) => orLate(ask(stream), SCRAPE_MS_MAX, undefined).catch(() => undefined)),
  );
  return Object.fromEntries(answers.filter((answer) => answer !== undefined));
}
