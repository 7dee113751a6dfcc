/**
 * Walks the outer structure of an OTLP request in protobuf, which comes in chunks of any size, and
 * counts its records. Traces, logs and metrics have the same structure, with the same numbers of
 * fields:
 *
 *     request = *( 1: resource )     resource = *( 2: scope )     scope = *( 2: record )
 *
 * Each of the three is a message with its length in front. The walk skips records and all other
 * fields by their lengths. So it remembers only where the open messages end and the number that is
 * being read.
 */

/**
 * Numbers of the fields that lead to the records: in the request, in a resource, in a scope. The
 * walk follows only these.
 */
const FOLLOWED = [1, 2, 2] as const;
/** Index of the field in FOLLOWED that leads from a scope to its records. */
const SCOPE_LEVEL = 2;

/** Wire types, the low three bits of a tag. */
const VARINT = 0;
const FIXED_64 = 1;
const LENGTH = 2;
const FIXED_32 = 5;

const VARINT_BYTES_MAX = 10;
/** For each place in a varint, the factor by which the seven bits of the byte there count. */
const PLACES = Array.from({ length: VARINT_BYTES_MAX + 1 }, (_, place) => 2 ** (7 * place));
/** Largest tag: field numbers have 29 bits. */
const TAG_MAX = 2 ** 32 - 1;
const FIELD_BYTES_MAX = 2 ** 31 - 1;

export class ProtobufWalk {
  records = 0;
  /** Fields that were read, records included. */
  parts = 0;
  #isValid = true;
  /** Bytes of the body that were read. */
  #offset = 0;
  /** Where the open messages end in the body: the resource, and the scope in it. */
  readonly #ends: number[] = [];
  /** Position behind the last byte of the innermost open message. */
  #end = Number.POSITIVE_INFINITY;
  /** Kind of the number that comes next: a tag, a value that is ignored, or a length. */
  #next: 'tag' | 'value' | 'length' = 'tag';
  /** Whether the field that is being read is a resource, a scope or a record (FOLLOWED). */
  #isFollowed = false;
  /** Of the varint that is being read: how many bytes have come, and their value. */
  #numberBytes = 0;
  #number = 0;
  /** Bytes of a field that are still to be skipped. */
  #skipped = 0;

  /** Reads a chunk. @returns why the body is no request, as soon as that is certain */
  feed(chunk: Uint8Array): 'no OTLP' | undefined {
    for (let at = 0; at < chunk.length && this.#isValid; ) {
      const bytes = this.#skipped > 0 ? Math.min(this.#skipped, chunk.length - at) : 1;
      this.#offset += bytes;
      if (this.#skipped > 0) this.#skipped -= bytes;
      else this.#readByte(chunk[at] as number);
      at += bytes;
      if (this.#offset === this.#end && this.#isBetweenFields) this.#closeEnded();
    }
    return this.#isValid ? undefined : 'no OTLP';
  }

  end(): 'no OTLP' | undefined {
    return this.#isValid && this.#isBetweenFields && this.#ends.length === 0 ? undefined : 'no OTLP';
  }

  get #isBetweenFields(): boolean {
    return this.#skipped === 0 && this.#numberBytes === 0 && this.#next === 'tag';
  }

  #open(end: number): void {
    this.#ends.push(end);
    this.#end = end;
  }

  #closeEnded(): void {
    while (this.#offset === this.#end) {
      this.#ends.pop();
      this.#end = this.#ends.at(-1) ?? Number.POSITIVE_INFINITY;
    }
  }

  #readByte(byte: number): void {
    this.#number += (byte & 0x7f) * PLACES[this.#numberBytes++]!;
    if (this.#offset > this.#end || this.#numberBytes > VARINT_BYTES_MAX) this.#isValid = false;
    if (byte >= 0x80) return;
    const number = this.#number;
    this.#number = 0;
    this.#numberBytes = 0;
    const kind = this.#next;
    this.#next = 'tag';
    if (kind === 'tag') this.#readTag(number);
    else if (kind === 'length') this.#readLength(number);
  }

  #readTag(tag: number): void {
    const wireType = tag % 8;
    const field = Math.floor(tag / 8);
    this.parts++;
    this.#isFollowed = field === FOLLOWED[this.#ends.length];
    if (tag > TAG_MAX || field === 0) this.#isValid = false;
    else if (wireType === LENGTH) this.#next = 'length';
    else if (this.#isFollowed) this.#isValid = false;
    else if (wireType === VARINT) this.#next = 'value';
    else if (wireType === FIXED_64) this.#skip(8);
    else if (wireType === FIXED_32) this.#skip(4);
    else this.#isValid = false; // groups, which no version of OTLP has
  }

  #readLength(length: number): void {
    if (this.#isFollowed && this.#ends.length < SCOPE_LEVEL) {
      if (this.#fits(length)) this.#open(this.#offset + length);
      return;
    }
    if (this.#isFollowed) this.records++;
    this.#skip(length);
  }

  #skip(bytes: number): void {
    if (this.#fits(bytes)) this.#skipped = bytes;
  }

  #fits(bytes: number): boolean {
    this.#isValid &&= bytes <= FIELD_BYTES_MAX && this.#offset + bytes <= this.#end;
    return this.#isValid;
  }
}
