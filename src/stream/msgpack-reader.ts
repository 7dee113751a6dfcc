/**
 * Reads nearly all MessagePack of MessagePackWriter: nil, whole numbers, ASCII text of up to 64 KB,
 * byte strings, and arrays of up to 64 K members. The library reads everything else, damage
 * included, and names the fault.
 */

const NIL = 0xc0;
const BYTES_32 = 0xc6;
const UINT_32 = 0xce;
const UINT_64 = 0xcf;
const TEXT_16 = 0xda;
const ARRAY_16 = 0xdc;

/**
 * An entry, its items, one of them, and what that has. Recursion ends here, whatever was forged.
 */
const DEPTH_MAX = 3;

export class MessagePackReader {
  /** All of the memory that the text last read is a view of: frames come in the same few blocks. */
  #memory: Buffer = Buffer.alloc(0);
  #at = 0;
  #end = 0;
  /** Something else was met. */
  #isOther = false;

  /** The value, its byte strings as views; undefined when it is for the library. */
  read(encoded: Uint8Array): unknown {
    const { buffer, byteOffset, length } = encoded;
    if (this.#memory.buffer !== buffer) this.#memory = Buffer.from(buffer);
    this.#at = byteOffset;
    this.#end = byteOffset + length;
    this.#isOther = false;
    const value = this.#value(0);
    return this.#isOther || this.#at !== this.#end ? undefined : value;
  }

  #value(depth: number): unknown {
    if (this.#at >= this.#end || depth > DEPTH_MAX) return this.#other();
    const tag = this.#memory[this.#at++] as number;
    if (tag < 0x80) return tag;
    if (tag < 0x90) return this.#other(); // a map
    if (tag < 0xa0) return this.#array(tag & 0x0f, depth);
    if (tag < 0xc0) return this.#text(tag & 0x1f);
    switch (tag) {
      case NIL:
        return null;
      case BYTES_32:
        return this.#bytes(this.#uint(4));
      case UINT_32:
        return this.#uint(4);
      case UINT_64:
        return this.#uint(4) * 2 ** 32 + this.#uint(4);
      case TEXT_16:
        return this.#text(this.#uint(2));
      case ARRAY_16:
        return this.#array(this.#uint(2), depth);
      default:
        return this.#other();
    }
  }

  #other(): undefined {
    this.#isOther = true;
    this.#at = this.#end;
    return undefined;
  }

  /** Big endian; 0 when the text ends before it. */
  #uint(bytes: number): number {
    if (this.#at + bytes > this.#end) return this.#other() ?? 0;
    let value = 0;
    for (const end = this.#at + bytes; this.#at < end; this.#at++)
      value = value * 256 + (this.#memory[this.#at] as number);
    return value;
  }

  #array(length: number, depth: number): unknown[] {
    const values: unknown[] = [];
    for (let n = 0; n < length && !this.#isOther; n++) values.push(this.#value(depth + 1));
    return values;
  }

  #text(length: number): string | undefined {
    const from = this.#at;
    const to = from + length;
    if (to > this.#end) return this.#other();
    for (let at = from; at < to; at++) if ((this.#memory[at] as number) > 0x7f) return this.#other();
    this.#at = to;
    return this.#memory.toString('latin1', from, to);
  }

  #bytes(length: number): Uint8Array | undefined {
    const from = this.#at;
    if (from + length > this.#end) return this.#other();
    this.#at = from + length;
    return new Uint8Array(this.#memory.buffer, from, length);
  }
}
