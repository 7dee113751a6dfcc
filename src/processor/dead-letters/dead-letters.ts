/** Files dead letters. Their form in the stream is described in dead-letter-format.ts. */
import { createHash } from 'node:crypto';
import { type Clock, systemClock } from '../../lib/clock.ts';
import { Debts } from '../../lib/debts.ts';
import type { Log } from '../../lib/log.ts';
import { BROKER_REPLY_MS_MAX, FRAME_BYTES_MAX } from '../../limits.ts';
import { UnavailableError } from '../../sink/unavailable.ts';
import {
  type DeadLetter,
  type DeadLetterFacts,
  letterSubject,
  manifest,
} from '../../stream/dead-letter-format.ts';
import type { NatsLink } from '../../stream/nats.ts';
import { projectSegment } from '../../stream/topology.ts';
import type { ProcessorMetrics } from '../metrics.ts';
import { DeadLetterBounds } from './bounds.ts';
import { DroppedDeadLetters } from './dropped.ts';

/** How long dead letters that the broker does not take may delay good items. */
const PATIENCE_MS = 5_000;
const PAUSE_MS = 10_000;
/** An outage of dead letters is over when none has failed for this time. */
const OUTAGE_MS = 30_000;
/** Time-out of each message while a batch's letters are sent together. */
const TOGETHER_MS = 2_000;
/**
 * So many dead letters with one item each a project may cause at once, and one more every
 * LETTER_ALONE_MS. Further bad items share a letter.
 */
const LETTERS_ALONE_MAX = 100;
const LETTER_ALONE_MS = 100;
/**
 * Log lines for the dead letters of one batch, at most. The remaining letters share one further
 * line.
 */
const LINES_MAX = 20;

/** Report on a dead letter. The report is logged when the letter's batch is committed. */
export type DeadLetterReport = DeadLetterFacts & {
  bytes: number;
  sha256: string;
  bytesGone?: true;
  /** Why the letter could not be filed; undefined when it was filed. */
  lost?: string;
};

/**
 * Publishes dead letters so that they never stop good items. While the broker is away, the
 * processor can only wait. When the broker is there and does not take a dead letter (no stream, no
 * leader, no space), the letter's batch is tried again for PATIENCE_MS, counted from the first
 * failed letter of the outage. After that, a letter that fails is lost: it is counted, and logged
 * with its reason, size and hash. After two lost letters in a row, all letters are lost for
 * PAUSE_MS, and the broker is not asked.
 */
export class DeadLetters {
  readonly #options: { link: NatsLink; log: Log; clock: Clock };
  readonly #bounds: DeadLetterBounds;
  readonly #dropped: DroppedDeadLetters;
  /**
   * Debt of each project, in ms, for dead letters of single items. The time that passes pays it off
   * ({@link Debts}).
   */
  readonly #debts = new Debts();
  /**
   * When the first letter of an outage was tried, and when the last one failed. Both are monotonic
   * ms.
   */
  #failingSince = 0;
  #failedAt = Number.NEGATIVE_INFINITY;
  /** Subjects of the letters that failed in this outage. */
  readonly #failed = new Set<string>();
  /** Whether a letter was given up in this outage and none has been filed since. */
  #isLosing = false;
  #pausedUntil = Number.NEGATIVE_INFINITY;
  #reason = '';
  /** Whether the last dead letter could not be filed. */
  failing = false;

  constructor({ link, log, clock = systemClock }: { link: NatsLink; log: Log; clock?: Clock }) {
    this.#options = { link, log, clock };
    this.#dropped = new DroppedDeadLetters({ link, log, clock });
    const onDropped = (letters: number, project?: string): void => {
      log.warn({ letters, project }, 'processor: the oldest dead letters were removed to make room');
      this.#dropped.note(letters, project);
    };
    this.#bounds = new DeadLetterBounds({ link, clock, onDropped });
    link.onReconnect(() => this.#bounds.forget());
  }

  /**
   * Whether a bad item of the project gets a letter of its own. A project may send ten thousand bad
   * items a second; beyond LETTERS_ALONE_MAX, they share letters, which costs less.
   */
  mayBeAlone(projectId: string): boolean {
    const now = this.#options.clock.monotonic();
    if (this.#debts.of(projectId, now) >= LETTERS_ALONE_MAX * LETTER_ALONE_MS) return false;
    this.#debts.add(projectId, LETTER_ALONE_MS, now);
    return true;
  }

  /** Number of dead letters that were removed to make room, or could not be filed. */
  get dropped(): number {
    return this.#dropped.count;
  }

  /**
   * Publishes dead letters. Resolves when each of them is at the broker, or is given up. All
   * letters are first sent together, and then those that failed are sent again one after the other.
   * While dead letters are failing, all are sent one after the other.
   * @param relieve called after each letter that is sent alone; keeps the sink's open batch alive,
   * because many letters may take long
   * @throws UnavailableError: the letters' batch is to be tried again
   */
  async publish(
    letters: readonly DeadLetter[],
    relieve: () => Promise<void> | undefined = () => undefined,
  ): Promise<DeadLetterReport[]> {
    const whole = letters.map(toWhole);
    const together = this.failing || letters.length === 1 ? [] : await this.#fileTogether(whole);
    const reports: DeadLetterReport[] = [];
    for (const [at, letter] of whole.entries()) {
      const filed = together[at];
      reports.push(filed ?? (await this.#publish(letter)));
      if (!filed) await relieve();
    }
    return reports;
  }

  /**
   * Sends all letters at the same time.
   * @returns a report for each letter, in the same order; undefined for a letter that failed
   */
  async #fileTogether(letters: readonly WholeLetter[]): Promise<(DeadLetterReport | undefined)[]> {
    let hasFailed = false;
    const file = async (letter: WholeLetter): Promise<DeadLetterReport | undefined> => {
      try {
        const report = await this.#file(letter, { mayAsk: () => !hasFailed, timeout: TOGETHER_MS });
        this.#onFiled(letter.subject);
        return report;
      } catch {
        hasFailed = true;
        return undefined;
      }
    };
    return await Promise.all(letters.map(file));
  }

  async #publish(letter: WholeLetter): Promise<DeadLetterReport> {
    const triedAt = this.#options.clock.monotonic();
    if (triedAt < this.#pausedUntil) return { ...letter.report, lost: this.#reason };
    try {
      const report = await this.#file(letter);
      this.#onFiled(letter.subject);
      return report;
    } catch (cause) {
      this.#onFailed(letter.subject, triedAt, cause as Error);
      return { ...letter.report, lost: this.#reason };
    }
  }

  /** Logs a batch's dead letters, and counts those that were lost. Called once for each batch. */
  settle(letters: readonly DeadLetterReport[]): void {
    const lost = letters.filter((one) => one.lost !== undefined);
    if (lost.length > 0) this.#dropped.note(lost.length);
    const filed = letters.filter((one) => one.lost === undefined);
    for (const one of lost.slice(0, LINES_MAX)) this.#options.log.error(one, 'processor: dead letter lost');
    const left = Math.max(0, LINES_MAX - lost.length);
    for (const one of filed.slice(0, left)) this.#options.log.warn(one, 'processor: dead letter');
    const further = letters.length - LINES_MAX;
    if (further <= 0) return;
    const more = { letters: further, lost: Math.max(0, lost.length - LINES_MAX) };
    this.#options.log.warn(more, 'processor: further dead letters');
  }

  /** Writes the number of dropped letters that `sluice doctor` shows. */
  close(): Promise<void> {
    return this.#dropped.close();
  }

  /**
   * Notes that a letter was filed. The outage ends only if this letter had failed in it: the broker
   * may take other letters and go on refusing this one.
   */
  #onFiled(subject: string): void {
    this.failing = false;
    this.#isLosing = false;
    if (this.#failed.has(subject)) this.#failedAt = Number.NEGATIVE_INFINITY; // the outage is over
  }

  /**
   * Notes that a letter failed.
   * @throws UnavailableError while the broker is away, and until PATIENCE_MS after the first failed
   * letter of the outage
   */
  #onFailed(subject: string, triedAt: number, cause: Error): void {
    const now = this.#options.clock.monotonic();
    if (now - this.#failedAt > OUTAGE_MS) {
      this.#failingSince = triedAt;
      this.#isLosing = false;
      this.#failed.clear();
    }
    this.#failedAt = now;
    this.#failed.add(subject);
    this.#reason = cause.message;
    this.failing = true;
    if (!this.#options.link.connected || now - this.#failingSince < PATIENCE_MS)
      throw new UnavailableError(`a dead letter cannot be published: ${cause.message}`, { cause });
    if (this.#isLosing) this.#pausedUntil = now + PAUSE_MS;
    this.#isLosing = true;
    this.#bounds.forget();
  }

  async #file(
    { letter, subject, whole, report }: WholeLetter,
    { mayAsk, timeout = BROKER_REPLY_MS_MAX }: { mayAsk?: () => boolean; timeout?: number } = {},
  ): Promise<DeadLetterReport> {
    const isKept = await this.#bounds.makeRoom(projectSegment(letter.projectId), whole.length, mayAsk);
    const partBytes = Math.min(FRAME_BYTES_MAX, Math.floor(this.#options.link.maxPayload / 2));
    const parts = !isKept || whole.length <= partBytes ? 0 : Math.ceil(whole.length / partBytes);
    for (let part = 0; part < parts; part++) {
      const bytes = whole.subarray(part * partBytes, (part + 1) * partBytes);
      await this.#options.link.js.publish(`${subject}.${part}`, bytes, { timeout });
    }
    const { sha256 } = report;
    const headers = manifest(letter, { length: whole.length, sha256, parts, gone: !isKept });
    const body = parts === 0 && isKept ? whole : undefined;
    await this.#options.link.js.publish(subject, body, { timeout, headers });
    return isKept ? report : { ...report, bytesGone: true };
  }
}

/** A dead letter with the values that are computed from it once. */
type WholeLetter = { letter: DeadLetter; subject: string; whole: Uint8Array; report: DeadLetterReport };

function toWhole(letter: DeadLetter): WholeLetter {
  const whole = letter.rest ? Buffer.concat([letter.body, letter.rest]) : letter.body;
  const { body: _body, rest: _rest, ...facts } = letter;
  const sha256 = createHash('sha256').update(whole).digest('hex');
  return { letter, subject: letterSubject(letter), whole, report: { ...facts, bytes: whole.length, sha256 } };
}

/** Gathered letters are sent together when their number or their bytes reach these bounds. */
const GATHERED_MAX = 64;
const GATHERED_BYTES_MAX = 1024 * 1024;

type BatchLettersOptions = {
  deadLetters: DeadLetters;
  metrics: ProcessorMetrics;
  /** Called after each letter that is sent alone, to keep the sink's open batch alive. */
  relieve?: () => Promise<void> | undefined;
};

/**
 * The dead letters of one batch. Several are sent to the broker together: with a wait after each
 * letter, the broken items of one project would delay the items of all others.
 */
export class BatchLetters {
  readonly #options: BatchLettersOptions;
  #gathered: DeadLetter[] = [];
  #bytes = 0;
  /** Types of the items in the letters, one for each item, in the same order. */
  readonly #items: string[] = [];
  readonly #filed: DeadLetterReport[] = [];

  constructor(options: BatchLettersOptions) {
    this.#options = options;
  }

  /**
   * Adds a letter, and sends the gathered letters when there are enough of them.
   * @param items the types that are counted as dead letters, one for each item
   * @returns a promise when letters are sent now, which rejects as {@link filed} does; undefined
   * when none is sent
   */
  file(
    letter: DeadLetter,
    items: readonly string[] = [letter.type ?? letter.kind],
  ): Promise<void> | undefined {
    this.#gathered.push(letter);
    this.#items.push(...items);
    this.#bytes += letter.body.length + (letter.rest?.length ?? 0);
    const isFull = this.#gathered.length >= GATHERED_MAX || this.#bytes >= GATHERED_BYTES_MAX;
    return isFull ? this.filed() : undefined;
  }

  /**
   * Sends the gathered letters. Resolves when the broker has all of them, or they are given up.
   * @throws UnavailableError: the batch is to be tried again
   */
  async filed(): Promise<void> {
    const gathered = this.#gathered;
    if (gathered.length === 0) return;
    this.#gathered = [];
    this.#bytes = 0;
    const { deadLetters, relieve } = this.#options;
    this.#filed.push(...(await deadLetters.publish(gathered, relieve)));
  }

  /** Counts and logs the letters. Called when their batch is committed. */
  settle(): void {
    const { deadLetters, metrics } = this.#options;
    for (const type of this.#items.splice(0)) metrics.processed(type, 'dead_letter');
    deadLetters.settle(this.#filed.splice(0));
  }
}
