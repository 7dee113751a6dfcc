/**
 * Picks the few fields that filters look at out of a payload of any size.
 *
 * JSON.parse works in one go and is too slow for large payloads. For 19 MiB of `[[[[…` it takes 5.8
 * s and over a GiB, for an honest payload of that size 350 ms. The picker reads in pieces and keeps
 * only fields that a filter asks for. It takes 1 to 9 ms per MiB, most where strings are shortest.
 * Its result is JSON again, with at most PICKED_BYTES_MAX (1 MiB) for each field, and goes to the
 * same filters.
 *
 * The picker does not validate. From text that is not JSON it makes text that is not JSON either,
 * or returns the fields before the fault.
 *
 *     between ── " ──→ in a string ── " ──→ between        depth 1: strings before `:` are names
 */
import { setImmediate as afterPoll } from 'node:timers/promises';
import type { ByteSource } from '../../lib/files/byte-source.ts';
import {
  PICKED_BYTES_MAX,
  PICKED_DEPTH_MAX,
  PICKED_STRING_BYTES_MAX,
  PICKED_STRUCTURE_BYTES_MAX,
} from '../../limits.ts';

const FIELDS = ['exception', 'user', 'request'];
/**
 * Most fields of one payload that are read, repeated ones included. Without this bound, a payload
 * that repeats one name would cost a copy for each repetition.
 */
const FIELDS_READ_MAX = 100;
const ESCAPE_BEGINS = 5;
const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const ARRAY = 0x5b;
const BACKSLASH = 0x5c;
const ARRAY_END = 0x5d;
const LETTER_U = 0x75;
const OBJECT = 0x7b;
const OBJECT_END = 0x7d;

/** 1 for the bytes that have no special meaning in a string, else 0. */
const PLAIN = new Uint8Array(256).fill(1);
PLAIN[QUOTE] = 0;
PLAIN[BACKSLASH] = 0;

/**
 * Skips bytes of a string, four at a time.
 * @returns the index of the last byte that was skipped, or `from` when none was. All bytes from the
 * one behind `from` up to this index are plain
 */
function skipPlain(chunk: Buffer, from: number): number {
  let at = from;
  for (const last = chunk.length - 5; at <= last; at += 4) {
    const next = PLAIN[chunk[at + 1]!]! & PLAIN[chunk[at + 2]!]!;
    if ((next & PLAIN[chunk[at + 3]!]! & PLAIN[chunk[at + 4]!]!) === 0) break;
  }
  return at;
}

const ESCAPE_BYTES = 6;
const DIGIT_9 = 0x39;
const LETTER_CASE = 0x20;

/**
 * Returns the code of the character that `\uXXXX` stands for; -1 for other escapes and bad digits.
 */
function escapedAt(bytes: Buffer, at: number): number {
  if (bytes[at + 1] !== LETTER_U) return -1;
  let code = 0;
  for (let place = at + 2; place < at + ESCAPE_BYTES; place++) {
    const byte = bytes[place]!;
    const digit = byte <= DIGIT_9 ? byte - 0x30 : (byte | LETTER_CASE) - 0x61 + 10;
    if (digit < 0 || digit > 15 || (byte > DIGIT_9 && digit < 10)) return -1;
    code = code * 16 + digit;
  }
  return code;
}

/**
 * Whether the bytes from `from` to `to` spell the name, perhaps by escapes. A payload may have a
 * name every few bytes, so this function allocates nothing and never throws.
 */
function spells(bytes: Buffer, from: number, to: number, name: string): boolean {
  let at = from;
  for (let place = 0; place < name.length; place++) {
    if (at >= to) return false;
    const isEscape = bytes[at] === BACKSLASH;
    const code = isEscape ? escapedAt(bytes, at) : bytes[at];
    if (code !== name.charCodeAt(place)) return false;
    at += isEscape ? ESCAPE_BYTES : 1;
  }
  return at === to;
}

/**
 * Returns the field whose name the bytes between two quotes spell; undefined when no filter asks
 * for that field.
 */
function fieldOf(bytes: Buffer, from: number, to: number): string | undefined {
  for (const name of FIELDS) if (to - from >= name.length && spells(bytes, from, to, name)) return name;
  return undefined;
}

/** Picks the fields of a payload that is in memory, in one go. */
export function pickFields(payload: Uint8Array): Buffer {
  const picker = new FieldPicker();
  picker.feed(payload);
  return picker.end();
}

export class FieldPicker {
  readonly #picked = new Map<string, Buffer>();
  /** Number of fields that were read and that filters ask for, repeated ones included. */
  #fields = 0;
  #depth = 0;
  /** Whether the next string at depth 1 is the name of a field. */
  #expectsName = false;
  #inString = false;
  /** Digits of an escape that must still come; ESCAPE_BEGINS right behind its backslash. */
  #escapeLeft = 0;
  #stringBytes = 0;
  /** Pieces of the name or the value that is being kept; undefined while nothing is kept. */
  #kept: Buffer[] | undefined;
  /**
   * The field whose value is being read or kept; undefined for a name, and for a value that no
   * filter asks for.
   */
  #field: string | undefined;
  #keptBytes = 0;
  #structureBytes = 0;
  /** Whether the rest of a string that is too long is being left out. */
  #leavesOut = false;
  #chunk: Buffer = Buffer.alloc(0);
  /** Place in the chunk at which the bytes that are to be kept begin. */
  #from = 0;

  /** @param chunk valid only during the call */
  feed(chunk: Uint8Array): void {
    this.#chunk = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    this.#from = 0;
    for (let at = 0; at < chunk.length; ) at = this.#inString ? this.#readString(at) : this.#readBetween(at);
    this.#keepTo(chunk.length);
  }

  /** Returns a JSON object with the fields that were found. */
  end(): Buffer {
    const parts: Buffer[] = [];
    for (const [name, value] of this.#picked) {
      parts.push(Buffer.from(`${parts.length === 0 ? '{' : ','}"${name}":`), value);
    }
    return Buffer.concat([...parts, Buffer.from(parts.length === 0 ? '{}' : '}')]);
  }

  // ---- in a string ----

  /**
   * Reads inside a string.
   * @returns the place in the chunk at which reading goes on
   */
  #readString(start: number): number {
    const chunk = this.#chunk;
    const before = this.#stringBytes - start;
    let escapeLeft = this.#escapeLeft;
    let at = start;
    for (; at < chunk.length; at++) {
      const byte = chunk[at];
      if (escapeLeft === ESCAPE_BEGINS) escapeLeft = byte === LETTER_U ? 4 : 0;
      else if (escapeLeft > 0) escapeLeft--;
      else if (byte === BACKSLASH) escapeLeft = ESCAPE_BEGINS;
      else if (byte === QUOTE) break;
      else if (!this.#kept || this.#leavesOut) at = skipPlain(chunk, at);
      else if (before + at >= PICKED_STRING_BYTES_MAX) this.#leaveOut(at);
    }
    this.#escapeLeft = escapeLeft;
    this.#stringBytes = before + at;
    if (at < chunk.length) this.#endString(at);
    return at + 1;
  }

  /**
   * Keeps the string up to `at`, a place that is not inside an escape, and drops the rest of the
   * string.
   */
  #leaveOut(at: number): void {
    if (this.#leavesOut) return;
    this.#keepTo(at);
    this.#leavesOut = true;
  }

  #endString(at: number): void {
    this.#inString = false;
    if (this.#leavesOut) {
      this.#leavesOut = false;
      this.#from = at;
    }
    if (this.#depth !== 1 || !this.#expectsName) return;
    this.#expectsName = false;
    this.#field = this.#fields < FIELDS_READ_MAX ? this.#readName(at) : undefined;
    if (this.#field !== undefined) this.#fields++;
    this.#kept = undefined;
  }

  /**
   * Ends a name at `at`.
   * @returns the field that the name spells; undefined when no filter asks for such a field
   */
  #readName(at: number): string | undefined {
    // Most names begin in this chunk and are read in place: a copy of each would cost 60 ms per
    // MiB.
    if (this.#kept?.length === 0) return fieldOf(this.#chunk, this.#from, at);
    this.#keepTo(at);
    const raw = Buffer.concat(this.#kept ?? []);
    return fieldOf(raw, 0, raw.length);
  }

  // ---- between strings ----

  /**
   * Reads between strings.
   * @returns where to go on: behind the quote that opens a string, or at the end of the chunk
   */
  #readBetween(start: number): number {
    const chunk = this.#chunk;
    let at = start;
    for (; at < chunk.length; at++) {
      const byte = chunk[at] as number;
      if (byte === QUOTE) {
        this.#startString(at + 1);
        at++;
        break;
      }
      if (byte === COMMA || byte === COLON) {
        if (this.#depth === 1) this.#separate(byte, at);
      } else if (byte === OBJECT || byte === ARRAY) this.#open(byte);
      else if (byte === OBJECT_END || byte === ARRAY_END) this.#close(at);
    }
    if (this.#kept) this.#count(at - start);
    return at;
  }

  #startString(at: number): void {
    this.#inString = true;
    this.#stringBytes = 0;
    if (this.#depth === 1 && this.#expectsName) this.#startKeeping(at);
  }

  #separate(byte: number, at: number): void {
    if (byte === COMMA) {
      this.#endValue(at);
      this.#expectsName = true;
    } else if (this.#field !== undefined && !this.#kept) this.#startKeeping(at + 1);
  }

  #open(byte: number): void {
    if (this.#depth === 0) this.#expectsName = byte === OBJECT;
    this.#depth++;
    if (this.#depth > PICKED_DEPTH_MAX) this.#kept = undefined;
  }

  #close(at: number): void {
    if (this.#depth === 1) this.#endValue(at);
    this.#depth--;
  }

  /**
   * Counts kept bytes between strings. Beyond PICKED_STRUCTURE_BYTES_MAX the field is dropped,
   * because such bytes cost JSON.parse time and memory, unlike the bytes of long strings.
   */
  #count(bytes: number): void {
    this.#structureBytes += bytes;
    if (this.#structureBytes > PICKED_STRUCTURE_BYTES_MAX) this.#kept = undefined;
  }

  // ---- what is kept ----

  #startKeeping(at: number): void {
    this.#kept = [];
    this.#keptBytes = 0;
    this.#structureBytes = 0;
    this.#from = at;
  }

  #keepTo(at: number): void {
    if (this.#kept && !this.#leavesOut && at > this.#from) {
      this.#kept.push(Buffer.from(this.#chunk.subarray(this.#from, at)));
      this.#keptBytes += at - this.#from;
      if (this.#keptBytes > PICKED_BYTES_MAX) this.#kept = undefined;
    }
    this.#from = at;
  }

  /** Ends a value. As in JSON.parse, the last of several fields of one name counts. */
  #endValue(at: number): void {
    this.#keepTo(at);
    if (this.#field !== undefined) {
      this.#picked.delete(this.#field);
      if (this.#kept) this.#picked.set(this.#field, Buffer.concat(this.#kept));
    }
    this.#kept = undefined;
    this.#field = undefined;
  }
}

/** Bytes that are read back from the spool at a time. */
const SPOOL_READ_BYTES = 256 * 1024;
/**
 * Bytes of a payload that the picker reads in one turn of the event loop. They take 0.06 to 0.5 ms
 * (measured), depending on the JSON.
 */
const TURN_BYTES = 64 * 1024;

/**
 * Picks fields out of payloads that are on the disk, a piece at a time, so that other requests wait
 * for one piece at most in each turn of the event loop. A worker reads one payload at a time, so
 * that many large events together hold no more memory than one.
 */
export class SpoolReader {
  #last: Promise<unknown> = Promise.resolve();

  /**
   * Picks the fields of one payload, once the payloads of earlier calls are done.
   * @returns as {@link pickFields}
   */
  read(payload: ByteSource): Promise<Uint8Array> {
    const picked = this.#last.then(() => this.#pick(payload));
    this.#last = picked.catch(() => undefined);
    return picked;
  }

  async #pick(payload: ByteSource): Promise<Uint8Array> {
    const picker = new FieldPicker();
    for (let at = 0; at < payload.length; at += SPOOL_READ_BYTES) {
      const bytes = await payload.read(at, Math.min(SPOOL_READ_BYTES, payload.length - at));
      for (let from = 0; from < bytes.length; from += TURN_BYTES) {
        if (from > 0) await afterPoll();
        picker.feed(bytes.subarray(from, from + TURN_BYTES));
      }
    }
    return picker.end();
  }
}
