import type { Clock } from '../../lib/clock.ts';
import type { Log } from '../../lib/log.ts';
import { addDropped } from '../../stream/dropped-record.ts';
import type { NatsLink } from '../../stream/nats.ts';

/** A record is written at most once in this time. */
const WRITE_MS = 1_000;

/**
 * Counts dead letters that are gone, and writes the sum of all processors where `sluice doctor`
 * finds it. Statistics: a process that is killed loses what it counted in the last second.
 */
export class DroppedDeadLetters {
  readonly #parts: { link: NatsLink; log: Log; clock: Clock };
  #unwritten = 0;
  #project: string | undefined;
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> = Promise.resolve();
  #isClosed = false;
  /** By this process. */
  count = 0;

  constructor(parts: { link: NatsLink; log: Log; clock: Clock }) {
    this.#parts = parts;
  }

  note(letters: number, project?: string): void {
    this.count += letters;
    this.#unwritten += letters;
    this.#project = project;
    this.#writeSoon();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    if (this.#timer) this.#write();
    await this.#writing;
  }

  #writeSoon(): void {
    if (!this.#isClosed) this.#timer ??= setTimeout(() => this.#write(), WRITE_MS).unref();
  }

  #write(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const { link, log, clock } = this.#parts;
    const letters = this.#unwritten;
    this.#unwritten = 0;
    const at = new Date(clock.now()).toISOString();
    this.#writing = addDropped(link, { letters, at, ...(this.#project && { project: this.#project }) }).catch(
      (error) => {
        this.#unwritten += letters;
        this.#writeSoon();
        log.debug({ err: error }, 'processor: the number of dropped dead letters is not written');
      },
    );
  }
}
