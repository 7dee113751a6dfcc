import { NdjsonSink } from '../../src/sink/ndjson/ndjson.ts';
import type { CommitOptions, Sink, SinkBatch, SinkCount, StreamSink } from '../../src/sink/sink.ts';
import { UnavailableError } from '../../src/sink/unavailable.ts';
import { log } from './harness.ts';

/** The ndjson sink on a disk that fails when it is told to. */
export class FailingSink implements Sink {
  readonly guarantee = 'exactly once';
  readonly #sink: Sink;
  failing: 'commit' | 'after commit' | 'bug' | undefined;
  failures = 0;
  /** A batch begins when it has ended. */
  beforeBatch: () => Promise<void> = async () => undefined;

  private constructor(sink: Sink) {
    this.#sink = sink;
  }

  static async wrap(dir: string): Promise<FailingSink> {
    return new FailingSink(await NdjsonSink.lock(dir, { log }));
  }

  async open(stream: string): Promise<StreamSink> {
    const inner = await this.#sink.open(stream);
    const begin = async (frameIds: Parameters<StreamSink['begin']>[0]): Promise<SinkBatch> => {
      await this.beforeBatch();
      return this.#batch(await inner.begin(frameIds));
    };
    return { begin };
  }

  close(): Promise<void> {
    return this.#sink.close();
  }

  #batch(inner: SinkBatch): SinkBatch {
    const commit = async (options: CommitOptions): Promise<readonly SinkCount[]> => {
      const { failing } = this;
      if (failing === 'bug') throw new TypeError('undefined is not a function');
      if (failing === 'after commit') await inner.commit(options);
      if (failing) {
        this.failures++;
        throw new UnavailableError('no space left on device');
      }
      return inner.commit(options);
    };
    return {
      get bytes() {
        return inner.bytes;
      },
      entriesKnown: (frameId) => inner.entriesKnown(frameId),
      add: (row) => inner.add(row),
      relieve: () => inner.relieve(),
      beginEntry: (entry) => inner.beginEntry(entry),
      commit,
      abandon: () => inner.abandon(),
    };
  }
}
