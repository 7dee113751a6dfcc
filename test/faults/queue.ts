/** What stands between ingest and sink, as the broker tells it. */
import { setTimeout as pause } from 'node:timers/promises';
import { readBacklog } from '../../src/stream/backlog.ts';
import type { NatsLink } from '../../src/stream/nats.ts';
import { DEAD_LETTERS_STREAM, DEAD_LETTERS_SUBJECT, projectSegment } from '../../src/stream/topology.ts';
import type { ProjectIds } from './sink-reader.ts';

export const DRAIN_MS_MAX = 90_000;
const LOOK_MS = 100;
const PATIENCE_MS = 60_000;

/** A server that has just been under load, or a cluster that chooses a leader, may take longer than one request waits. */
export async function patiently<T>(ask: () => Promise<T>): Promise<T> {
  for (const end = performance.now() + PATIENCE_MS; ; await pause(250))
    try {
      return await ask();
    } catch (error) {
      if (performance.now() > end) throw error;
    }
}

/** Last sequence of each stream at some moment. */
export type Mark = ReadonlyMap<string, number>;

export class Queue {
  readonly #link: NatsLink;
  readonly #streams: readonly string[];

  constructor(link: NatsLink, streams: readonly string[]) {
    this.#link = link;
    this.#streams = streams;
  }

  /**
   * Resolves when the processors have acknowledged every frame. That the streams are empty then is not asked, nor that nothing is pending: a
   * broker that was killed may keep messages that are acknowledged ({@link leftovers}), and wait for what is gone.
   * @returns seconds that it took; undefined: not within DRAIN_MS_MAX
   */
  async drained(): Promise<number | undefined> {
    const from = performance.now();
    const done = await this.passed(await this.mark(), DRAIN_MS_MAX);
    return done ? (performance.now() - from) / 1000 : undefined;
  }

  /** Frames that wait or are in hand. */
  async pending(): Promise<number> {
    const manager = await this.#link.manager();
    const counts = await Promise.all(
      this.#streams.map(async (stream) => {
        const info = await patiently(() => manager.consumers.info(stream, 'processor'));
        const { num_pending, num_ack_pending } = info;
        return num_pending + num_ack_pending;
      }),
    );
    return counts.reduce((sum, count) => sum + count, 0);
  }

  /** Waits until the broker says where its streams end. */
  async mark(): Promise<Mark> {
    for (;;) {
      const found = await this.#ends().catch(() => undefined);
      if (found) return found;
      await pause(LOOK_MS);
    }
  }

  async #ends(): Promise<Mark> {
    const manager = await this.#link.manager();
    const ends = this.#streams.map(async (stream) => {
      const { state } = await manager.streams.info(stream);
      return [stream, state.last_seq] as const;
    });
    return new Map(await Promise.all(ends));
  }

  /**
   * Waits until everything up to the mark is processed.
   * @returns false when it was not within `msMax`
   */
  async passed(mark: Mark, msMax: number): Promise<boolean> {
    const manager = await this.#link.manager();
    const isPast = async ([stream, sequence]: readonly [string, number]): Promise<boolean> =>
      (await readBacklog(manager, { stream, consumer: 'processor' })).first > sequence;
    for (const end = performance.now() + msMax; performance.now() < end; await pause(LOOK_MS)) {
      const past = await Promise.all([...mark].map(isPast)).catch(() => [false]);
      if (past.every(Boolean)) return true;
    }
    return false;
  }

  /** Of every stream that is not empty, what the broker says of it and of its consumer. */
  leftovers(): Promise<{ messages: number; text: string }[]> {
    return patiently(() => this.#leftovers());
  }

  async #leftovers(): Promise<{ messages: number; text: string }[]> {
    const manager = await this.#link.manager();
    const found = await Promise.all(
      this.#streams.map(async (stream) => {
        const { state, cluster } = await manager.streams.info(stream);
        const { ts: _ts, config: _config, ...consumer } = await manager.consumers.info(stream, 'processor');
        return {
          messages: state.messages,
          text: `${stream} ${JSON.stringify({ state, cluster, consumer })}`,
        };
      }),
    );
    return found.filter(({ messages }) => messages > 0);
  }

  /** Of these projects, and of no project. */
  async deadLetters(projects: ProjectIds): Promise<number> {
    const { streams } = await this.#link.manager();
    let count = 0;
    for (const segment of [...projects, projectSegment(undefined)]) {
      const subjects_filter = `${DEAD_LETTERS_SUBJECT}.${segment}.>`;
      const { state } = await patiently(() => streams.info(DEAD_LETTERS_STREAM, { subjects_filter }));
      count += Object.values(state.subjects ?? {}).reduce((sum, messages) => sum + messages, 0);
    }
    return count;
  }
}
