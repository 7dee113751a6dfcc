/**
 * What the server said of each id, a byte for each: what `--verify` holds against the sink.
 *
 * The ids of a run share a random beginning and end in the number of the request, so that the ids of two runs or of several
 * generators never meet. A body whose bytes cannot be renewed (deflate, br, zstd) goes without an id; then the answer has it. The
 * server makes the id of a request of OTLP from its bytes.
 */
import type { Connection } from '../connection.ts';

export const NOT_SENT = 0;
/** 200 with usage headers: stored durably, and counted. */
export const ACCEPTED = 1;
/** 200 without them: nothing of it is stored. */
export const EMPTY = 2;
/** 4xx and 503: nothing was queued. */
export const REFUSED = 3;
/** 500, another status, or no answer: it may be stored or not. */
export const UNKNOWN = 4;
export type Told = typeof NOT_SENT | typeof ACCEPTED | typeof EMPTY | typeof REFUSED | typeof UNKNOWN;

const USAGE_LINE = Buffer.from('\r\nX-Service-Usage:');
const USAGE_HEADER = /\r\nx-service-usage:/i;
/** The reasons of a sluice. Any other text of a server is not repeated: it could steer a terminal, and be another one in each answer. */
const EMPTY_HEADER = /\r\nx-service-empty:[ \t]*(no-items|unstored-types|[^\r\n])/i;
const MINTED_ID = /"id":"([0-9a-f]{32})"/;
const FIRST_CAPACITY = 65_536;

/** Reason of a 200 without any header of sluice. */
export const NO_HEADERS = 'no usage headers';

/** Why nothing of a 200 is stored, as its headers say it; undefined: it is stored, and counted. */
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

/** The id that the server made: its answer has it, but for OTLP, where it follows from the request. */
const mintedId = ({ eventIdOf, id }: Connection, answer: Buffer): string | undefined =>
  eventIdOf ? eventIdOf(id) : MINTED_ID.exec(answer.toString('latin1'))?.[1];

export class Ledger {
  /** The ids' first 24 digits. */
  readonly prefix: string;
  readonly #firstId: number;
  /** A 200 without usage headers means stored, too. */
  readonly isAnyServer: boolean;
  /** Names of the kinds, by their place. */
  kinds: readonly string[] = [];
  #told = new Uint8Array(FIRST_CAPACITY);
  #kinds = new Uint16Array(FIRST_CAPACITY);
  /** Ids that the server made, of accepted requests, with the place of their kind. */
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

  /** All that were sent, and those that the server made. */
  *ids(): Iterable<string> {
    for (let number = 0; number < this.size; number++)
      if (this.told(number) !== NOT_SENT) yield this.idOf(number);
    yield* this.minted.keys();
  }

  count(told: Told): number {
    return this.#counts[told] as number;
  }

  /** Numbers of requests go from 0 to below this. */
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

  /** The number of the request that sent this id; undefined when this run did not. */
  numberOf(id: string): number | undefined {
    if (!id.startsWith(this.prefix)) return undefined;
    const number = (Number.parseInt(id.slice(this.prefix.length), 16) - this.#firstId) >>> 0;
    return this.told(number) === NOT_SENT ? undefined : number;
  }
}
