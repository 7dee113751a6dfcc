import type { ListNames } from '../../lib/otlp.ts';
import { ByteQueue } from '../envelope/byte-queue.ts';
import { type JsonReceiver, JsonWalk, type NoJson } from '../envelope/json-walk.ts';

/** Depth of a record: it is in three nested lists, each of which is a member of an object. */
const RECORD_DEPTH = 6;
const OPEN_OBJECT = 0x7b;
const OPEN_ARRAY = 0x5b;
const LETTER_N = 0x6e;
const BACKSLASH = 0x5c;
const NOTHING = Buffer.alloc(0);
/**
 * Longest name that is read, in bytes: longer than any list's name with all its letters escaped.
 */
const NAME_BYTES_MAX = 128;

/**
 * Counts the records of an OTLP request in JSON, which comes in chunks of any size, and checks that
 * the lists around the records are lists of objects. A list may be null. Records, and members other
 * than the lists, are skimmed ({@link JsonWalk.skim}).
 */
export class JsonRecords implements JsonReceiver {
  records = 0;
  /**
   * Values that the walk has reported: the request, and all members and elements down to the
   * records. What is inside a skimmed value does not count.
   */
  parts = 0;
  readonly #names: ListNames;
  readonly #walk = new JsonWalk(this, { toldDepth: RECORD_DEPTH, checksUtf8: false });
  #isOtlp = true;
  /** The chunk that is being fed; empty between calls. */
  #chunk: Buffer = NOTHING;
  /**
   * Whether the last name that was read is that of the list that leads to the records at its depth.
   */
  #isList = false;
  /**
   * Where the name that is being read begins in the chunk; `#name` has its bytes of earlier chunks.
   */
  #nameFrom: number | undefined;
  readonly #name = new ByteQueue(NAME_BYTES_MAX + 1);

  constructor(names: ListNames) {
    this.#names = names;
  }

  /** Reads a chunk. @returns why the body is no request, as soon as that is certain */
  feed(chunk: Uint8Array): NoJson | 'no OTLP' | undefined {
    this.#chunk = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    if (this.#nameFrom !== undefined) this.#nameFrom = 0;
    const noJson = this.#walk.feed(chunk);
    if (this.#nameFrom !== undefined) this.#keepName(this.#chunk.subarray(this.#nameFrom));
    this.#chunk = NOTHING;
    return this.#verdict(noJson);
  }

  end(): NoJson | 'no OTLP' | undefined {
    return this.#verdict(this.#walk.end());
  }

  #verdict(noJson: NoJson | undefined): NoJson | 'no OTLP' | undefined {
    return this.#isOtlp ? noJson : 'no OTLP';
  }

  /** A value at an even depth is the request or an element of a list; at an odd depth, a member. */
  valueBegin(depth: number, at: number): void {
    this.parts++;
    const byte = this.#chunk[at];
    const isMember = depth % 2 === 1;
    if (depth === RECORD_DEPTH) this.records++;
    if (depth === RECORD_DEPTH || (isMember && !this.#isList)) this.#walk.skim();
    if (isMember && (!this.#isList || byte === LETTER_N)) return;
    if (byte !== (isMember ? OPEN_ARRAY : OPEN_OBJECT)) this.#isOtlp = false;
  }

  valueEnd(): void {
    // Only beginnings are counted.
  }

  nameBegin(at: number): void {
    this.#nameFrom = at;
  }

  nameEnd(at: number, depth: number): void {
    const from = this.#nameFrom as number;
    const begun = this.#name.length > 0 ? this.#name.take() : NOTHING;
    this.#nameFrom = undefined;
    const name = this.#names[(depth - 1) / 2];
    this.#isList =
      begun.length > 0
        ? isName(Buffer.concat([begun, this.#chunk.subarray(from, at)]), name)
        : isName(this.#chunk, name, from, at);
  }

  /** Keeps the beginning of a name that the chunk border cuts, without the rest of a long name. */
  #keepName(piece: Buffer): void {
    const room = NAME_BYTES_MAX + 1 - this.#name.length;
    this.#name.append(piece.subarray(0, room));
  }
}

/**
 * Whether the JSON string at `from`..`to`, with its quotes, spells `name`. A string that spells the
 * name without escapes is as long as the name and its quotes; one with escapes is longer.
 */
function isName(json: Buffer, name: string | undefined, from = 0, to = json.length): boolean {
  const bytes = to - from - 2;
  if (name === undefined || bytes < name.length || to - from > NAME_BYTES_MAX) return false;
  if (bytes === name.length) return hasText(json, name, from + 1);
  const string = json.subarray(from, to);
  return string.includes(BACKSLASH) && JSON.parse(string.toString()) === name;
}

function hasText(bytes: Buffer, text: string, from: number): boolean {
  for (let at = 0; at < text.length; at++) if (bytes[from + at] !== text.charCodeAt(at)) return false;
  return true;
}
