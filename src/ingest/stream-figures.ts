import type { StreamInfo } from '@nats-io/jetstream';
import type { Clock } from '../lib/clock.ts';
import { gauge, type MetricsSnapshot, type Sample } from '../lib/metrics/metrics.ts';
import type { NatsLink } from '../stream/nats.ts';
import { AUDIT_STREAM, CHUNKS_STREAM, DEAD_LETTERS_STREAM, isFrameStreamName } from '../stream/topology.ts';

const OTHER_STREAMS: readonly string[] = [CHUNKS_STREAM, DEAD_LETTERS_STREAM, AUDIT_STREAM];
const isOurs = ({ config: { name } }: StreamInfo): boolean =>
  isFrameStreamName(name) || OTHER_STREAMS.includes(name);

type StreamFiguresOptions = {
  /** Rejects while NATS is away. */
  nats: () => Promise<NatsLink>;
  clock: Clock;
};

/**
 * How full the streams are, as the broker says at a scrape. Ingest asks, so that it is known also
 * while no processor runs. One request brings all streams; in a cluster it leaves out those whose
 * leader does not answer.
 */
export class StreamFigures {
  readonly #nats: () => Promise<NatsLink>;
  readonly #clock: Clock;
  /** Scrapes share it: a broker that hangs is asked once. */
  #asking: Promise<StreamInfo[]> | undefined;

  constructor({ nats, clock }: StreamFiguresOptions) {
    this.#nats = nats;
    this.#clock = clock;
  }

  /** Empty when the broker does not answer within `waitMs`. */
  async snapshot(waitMs: number): Promise<MetricsSnapshot> {
    this.#asking ??= this.#ask().finally(() => {
      this.#asking = undefined;
    });
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<undefined>((resolve) => {
      timer = setTimeout(() => resolve(undefined), waitMs);
    });
    const infos = await Promise.race([this.#asking.catch(() => undefined), late]);
    clearTimeout(timer);
    return infos ? this.#expose(infos) : [];
  }

  async #ask(): Promise<StreamInfo[]> {
    const link = await this.#nats();
    const { streams } = await link.manager();
    const infos: StreamInfo[] = [];
    for await (const info of streams.list()) if (isOurs(info)) infos.push(info);
    return infos;
  }

  #expose(infos: readonly StreamInfo[]): MetricsSnapshot {
    const samples = (figure: (info: StreamInfo) => number): Sample[] =>
      infos.map((info) => [{ stream: info.config.name }, figure(info)]);
    const now = this.#clock.now();
    const age = ({ state }: StreamInfo): number =>
      state.messages === 0 ? 0 : Math.max(0, now - Date.parse(state.first_ts)) / 1000;
    return [
      gauge(
        'sluice_stream_bytes',
        'Bytes that a stream holds',
        samples(({ state }) => state.bytes),
      ),
      gauge(
        'sluice_stream_max_bytes',
        'Bytes that a stream may hold; -1: no bound',
        samples(({ config }) => config.max_bytes),
      ),
      gauge(
        'sluice_stream_oldest_message_age_seconds',
        'Age of the oldest message in a stream, 0 when it is empty',
        samples(age),
      ),
    ];
  }
}
