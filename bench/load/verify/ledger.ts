/**
 * Keeps one byte for each id: what the server answered. `--verify` compares it with the sink.
 *
 * The ids of a run begin with the same random digits and end in the number of the request. So ids
 * of several runs or generators never meet. A body whose bytes cannot be changed (deflate, br,
 * zstd) is sent without an id; the server makes the id, and its answer has it. The server makes the
 * event id of an OTLP request from the bytes of the request.
 */
import type { Connection } from '../connection.ts';

export const NOT_SENT = 0;
/** 200 with usage headers: the envelope is stored durably and counted. */
export const ACCEPTED = 1;
/** 200 without usage headers: nothing of the envelope is stored. */
export const EMPTY = 2;
/** 4xx and 503: nothing was queued. */
export const REFUSED = 3;
/** 500, another status, or no answer: the envelope may be stored or not. */
export const UNKNOWN = 4;
export type Told = typeof NOT_SENT | typeof ACCEPTED | typeof EMPTY | typeof REFUSED | typeof UNKNOWN;

const USAGE_LINE = Buffer.from('\r\nX-Service-Usage:');
const USAGE_HEADER = /\r\nx-service-usage:/i;
/**
 * Matches the reasons that sluice gives. Any other text is not repeated, because it might control a
 * terminal, and might differ in each answer.
 */
const EMPTY_HEADER = /\r\nx-service-empty:[ \t]*(no-items|unstored-types|[^\r\n])/i;
const MINTED_ID = /"id":"([0-9a-f]{32})"/;
const FIRST_CAPACITY = 65_536;

/** Reason of a 200 without any header of sluice. */
export const NO_HEADERS = 'no usage headers';

/**
 * Returns why nothing is stored of an envelope that was answered 200, as the headers say; undefined
 * when it is stored and counted.
 */
export function unstoredReason(answer: Buffer): string | undefined {
  if (answer.indexOf(USAGE_LINE) >= 0) return undefined;
  const text = answer.toString('latin1');
  if (USAGE_HEADER.test(text)) return undefined;
  const reason = EMPTY_HEADER.exec(text)?.[1];
  if (reason === undefined) return NO_HEADERS;
  return reason.length > 1 ? reason : 'a reason that is not known';
}

function meaningOf(status: number, answer: Buffer, isAnyServer: boolean): Told {
  if (status === 200) return isAnyServer || unstoredReason(answer) === undefined ? ACCEPTED : EMPTY;
  return (status >= 400 && status < 500) || status === 503 ? REFUSED : UNKNOWN;
}

/** Returns the id that the server made. The answer has it; for OTLP it follows from the request. */
const mintedId = ({ eventIdOf, id }: Connection, answer: Buffer): string | undefined =>
  eventIdOf ? eventIdOf(id) : MINTED_ID.exec(answer.toString('latin1'))?.[1];

export class Ledger {
  /** The first 24 digits of all ids of the run. */
  readonly prefix: string;
  readonly #firstId: number;
  /**
   * Whether the server may be another than sluice. Then a 200 without usage headers means stored,
   * too.
   */
  readonly isAnyServer: boolean;
  /** Names of the kinds of envelopes, by their index. */
  kinds: readonly string[] = [];
  #told = new Uint8Array(FIRST_CAPACITY);
  #kinds = new Uint16Array(FIRST_CAPACITY);
  /** Ids that the server made for accepted requests, each with the index of its kind. */
  readonly minted = new Map<string, number>();
  readonly #counts = [0, 0, 0, 0, 0];

  constructor(prefix: string, firstId: number, isAnyServer = false) {
    this.prefix = prefix;
    this.isAnyServer = isAnyServer;
    this.#firstId = firstId;
  }

  answered(connection: Connection, status: number, answer: Buffer): void {
    const told = meaningOf(status, answer, this.isAnyServer);
    if (told === ACCEPTED) {
      const id = connection.isMinted ? mintedId(connection, answer) : undefined;
      if (id !== undefined) this.minted.set(id, connection.kind);
    }
    this.#note(connection, told);
  }

  unanswered(connection: Connection): void {
    this.#note(connection, UNKNOWN);
  }

  #note({ id, isMinted, kind }: Connection, told: Told): void {
    this.#counts[told] = (this.#counts[told] as number) + 1;
    if (isMinted) return;
    const at = (id - this.#firstId) >>> 0;
    if (at >= this.#told.length) {
      const larger = new Uint8Array(Math.max(at + 1, 2 * this.#told.length));
      larger.set(this.#told);
      this.#told = larger;
      const kinds = new Uint16Array(larger.length);
      kinds.set(this.#kinds);
      this.#kinds = kinds;
    }
    this.#told[at] = told;
    this.#kinds[at] = kind;
  }

  /** Yields all ids: those that were sent, and those that the server made. */
  *ids(): Iterable<string> {
    for (let number = 0; number < this.size; number++)
      if (this.told(number) !== NOT_SENT) yield this.idOf(number);
    yield* this.minted.keys();
  }

  count(told: Told): number {
    return this.#counts[told] as number;
  }

  /** Upper bound of the numbers of requests, which begin at 0. */
  get size(): number {
    return this.#told.length;
  }

  /** @param number of the request */
  told(number: number): Told {
    return (this.#told[number] ?? NOT_SENT) as Told;
  }

  /** @param number of the request */
  kindOf(number: number): number {
    return this.#kinds[number] ?? 0;
  }

  idOf(number: number): string {
    return this.prefix + ((this.#firstId + number) >>> 0).toString(16).padStart(8, '0');
  }

  /**
   * Returns the number of the request that sent this id; undefined when no request of this run did.
   */
  numberOf(id: string): number | undefined {
    if (!id.startsWith(this.prefix)) return undefined;
    const number = (Number.parseInt(id.slice(this.prefix.length), 16) - this.#firstId) >>> 0;
    return this.told(number) === NOT_SENT ? undefined : number;
  }
}
