/**
 * Keeps the number of dead letters that were dropped lately, in a record of the counters bucket for
 * `sluice doctor`.
 */
import { z } from 'zod';
import { type Clock, DAY_MS } from '../../lib/clock.ts';
import type { Log } from '../../lib/log.ts';
import { changeRecord, readRecord } from '../../projects/usage/records.ts';
import type { NatsLink } from '../../stream/nats.ts';

const KEY = 'dead_letters.dropped';
/** After this time without a dropped letter, the count begins again at 0. */
const SHOWN_MS = 7 * DAY_MS;
/** Shortest time between two writes of the record. */
const WRITE_MS = 1_000;

const schema = z.object({ letters: z.number(), at: z.string(), project: z.string().optional() });
/**
 * `at`: when the last letter was dropped, RFC 3339. `project`: the project whose share was full, if
 * that was why.
 */
type Dropped = z.infer<typeof schema>;

/**
 * Parses the record. Returns undefined when there is no readable record, or when the last letter
 * was dropped a week or more before `now`.
 */
function recent(text: string | undefined, now: number): Dropped | undefined {
  try {
    const dropped = schema.parse(JSON.parse(text ?? ''));
    return now - Date.parse(dropped.at) < SHOWN_MS ? dropped : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Adds dropped letters to the record.
 * @throws when the record cannot be written
 */
export const addDropped = (link: NatsLink, more: Dropped): Promise<void> =>
  changeRecord(link, KEY, (text) => {
    const letters = (recent(text, Date.parse(more.at))?.letters ?? 0) + more.letters;
    return JSON.stringify({ ...more, letters });
  });

/**
 * Reads the record. Returns undefined when there is no readable record, or when the last letter was
 * dropped a week or more before `now`.
 * @throws when the bucket does not answer
 */
export const readDropped = async (link: NatsLink, now: number): Promise<Dropped | undefined> =>
  recent(await readRecord(link, KEY), now);

/**
 * Counts dropped dead letters, and writes the sum of all processors where `sluice doctor` finds it.
 * The number is a statistic: a killed process loses what it counted in the last second.
 */
export class DroppedDeadLetters {
  readonly #parts: { link: NatsLink; log: Log; clock: Clock };
  #unwritten = 0;
  #project: string | undefined;
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> = Promise.resolve();
  #isClosed = false;
  /** Dead letters that this process has dropped. */
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
