/** One compressed block of Zstandard (RFC 8878 section 3.1.1.3): literals, and sequences that mix them with copies of earlier output. */
import { BackwardBits, check, littleEndian } from './bits.ts';
import { type FseTable, fseTable, readFseTable, rleTable } from './fse.ts';
import { Literals } from './literals.ts';

/** The output of a frame as far back as a copy may reach. */
export interface History {
  /** Room for one block stands behind `end`. */
  readonly bytes: Uint8Array;
  end: number;
}

const OFFSET_LOG_MAX = 24;
const LITERAL_EXTRA = [1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
const MATCH_EXTRA = [1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

type Codes = { extra: Uint8Array; bases: Uint32Array };

/** A code below `plain` is its own length; each later one begins where the one before ends. */
function lengthCodes(plain: number, first: number, extra: readonly number[]): Codes {
  const bits = Uint8Array.of(...new Array<number>(plain).fill(0), ...extra);
  const bases = new Uint32Array(bits.length);
  let base = first;
  bits.forEach((count, code) => {
    bases[code] = base;
    base += 1 << count;
  });
  return { extra: bits, bases };
}

const LITERAL_CODES = lengthCodes(16, 0, LITERAL_EXTRA);
const MATCH_CODES = lengthCodes(32, 3, MATCH_EXTRA);

type Kind = { logMax: number; symbolMax: number; standard: FseTable };

const LITERAL_LENGTHS: Kind = {
  logMax: 9,
  symbolMax: 35,
  standard: fseTable(
    [
      4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1,
      -1, -1,
    ],
    6,
  ),
};
const OFFSETS: Kind = {
  logMax: 8,
  symbolMax: 31,
  standard: fseTable(
    [1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1],
    5,
  ),
};
const MATCH_LENGTHS: Kind = {
  logMax: 9,
  symbolMax: 52,
  standard: fseTable(
    [1, 4, 3, 2, 2, 2, 2, 2, 2, ...new Array<number>(37).fill(1), -1, -1, -1, -1, -1, -1, -1],
    6,
  ),
};

type Tables = { literals: FseTable; offsets: FseTable; matches: FseTable };

/** Below this a loop is faster than a call of `set` or `copyWithin`. */
const LOOP_BYTES_MAX = 24;

/** Decodes the blocks of one frame: tables and offsets are carried from block to block. */
export class ZstdBlocks {
  readonly #blockMax: number;
  readonly #literals: Literals;
  #tables: Partial<Tables> = {};
  /** The last three offsets, newest first (section 3.1.1.5). */
  readonly #offsets = [1, 4, 8];

  /** @param blockMax bytes that a block of this frame may give */
  constructor(blockMax: number) {
    this.#blockMax = blockMax;
    this.#literals = new Literals(blockMax);
  }

  /** Appends what the block gives to `history`. @throws ZstdCorrupt */
  decode(block: Uint8Array, history: History): void {
    const sequences = this.#literals.read(block);
    this.#readSequences(block, sequences, history);
  }

  #readSequences(block: Uint8Array, begin: number, history: History): void {
    check(begin < block.length, 'sequences are missing');
    let at = begin;
    let count = block[at++] as number;
    if (count === 255) {
      count = littleEndian(block, at, 2) + 0x7f00;
      at += 2;
    } else if (count > 127) count = ((count - 128) << 8) + littleEndian(block, at++, 1);
    if (count === 0) {
      check(at === block.length, 'bytes follow a block without sequences');
      this.#copyLiterals(history, 0, this.#literals.length);
      return;
    }
    const modes = littleEndian(block, at++, 1);
    check((modes & 3) === 0, 'reserved bits are set');
    const literals = this.#readTable(block, at, {
      mode: modes >> 6,
      kind: LITERAL_LENGTHS,
      last: this.#tables.literals,
    });
    const offsets = this.#readTable(block, literals.end, {
      mode: (modes >> 4) & 3,
      kind: OFFSETS,
      last: this.#tables.offsets,
    });
    const matches = this.#readTable(block, offsets.end, {
      mode: (modes >> 2) & 3,
      kind: MATCH_LENGTHS,
      last: this.#tables.matches,
    });
    const tables = { literals: literals.value, offsets: offsets.value, matches: matches.value };
    this.#tables = tables;
    this.#execute(tables, { bits: new BackwardBits(block, matches.end, block.length), count, history });
  }

  #readTable(
    block: Uint8Array,
    at: number,
    { mode, kind, last }: { mode: number; kind: Kind; last: FseTable | undefined },
  ): { value: FseTable; end: number } {
    if (mode === 0) return { value: kind.standard, end: at };
    if (mode === 2) return readFseTable(block, [at, block.length], kind);
    if (mode === 1) {
      const symbol = littleEndian(block, at, 1);
      check(symbol <= kind.symbolMax, 'a symbol is out of range');
      return { value: rleTable(symbol), end: at + 1 };
    }
    check(last !== undefined, 'no table to repeat');
    return { value: last, end: at };
  }

  #execute(
    { literals, offsets, matches }: Tables,
    { bits, count, history }: { bits: BackwardBits; count: number; history: History },
  ): void {
    const endMax = history.end + this.#blockMax;
    let literalState = bits.read(literals.log);
    let offsetState = bits.read(offsets.log);
    let matchState = bits.read(matches.log);
    let taken = 0;
    for (let left = count; left > 0; left--) {
      const offsetCode = offsets.symbols[offsetState] as number;
      check(offsetCode <= OFFSET_LOG_MAX, 'a copy reaches too far back');
      const rawOffset = (1 << offsetCode) + bits.read(offsetCode);
      const matchCode = matches.symbols[matchState] as number;
      const matchLength =
        (MATCH_CODES.bases[matchCode] as number) + bits.read(MATCH_CODES.extra[matchCode] as number);
      const literalCode = literals.symbols[literalState] as number;
      const literalLength =
        (LITERAL_CODES.bases[literalCode] as number) + bits.read(LITERAL_CODES.extra[literalCode] as number);
      if (left > 1) {
        literalState =
          (literals.bases[literalState] as number) + bits.read(literals.bits[literalState] as number);
        matchState = (matches.bases[matchState] as number) + bits.read(matches.bits[matchState] as number);
        offsetState = (offsets.bases[offsetState] as number) + bits.read(offsets.bits[offsetState] as number);
      }
      // Each turn checks what it used and what it gives: a few bytes could otherwise ask for seconds of copying.
      check(bits.left >= 0, 'sequences are cut short');
      check(taken + literalLength <= this.#literals.length, 'sequences take more literals than there are');
      check(history.end + literalLength + matchLength <= endMax, 'a block gives too many bytes');
      this.#copyLiterals(history, taken, taken + literalLength);
      taken += literalLength;
      copyMatch(history, this.#offset(rawOffset, literalLength), matchLength);
    }
    check(bits.left === 0, 'sequences do not fill their stream');
    check(history.end + this.#literals.length - taken <= endMax, 'a block gives too many bytes');
    this.#copyLiterals(history, taken, this.#literals.length);
  }

  #offset(raw: number, literalLength: number): number {
    const recent = this.#offsets as [number, number, number];
    const which = raw > 3 ? 3 : raw - 1 + (literalLength === 0 ? 1 : 0);
    if (which === 0) return recent[0];
    const offset = raw > 3 ? raw - 3 : which === 3 ? recent[0] - 1 : (recent[which] as number);
    if (which !== 1) recent[2] = recent[1];
    recent[1] = recent[0];
    recent[0] = offset;
    return offset;
  }

  #copyLiterals(history: History, from: number, to: number): void {
    const { bytes, end } = history;
    const literals = this.#literals.bytes;
    if (to - from > LOOP_BYTES_MAX) bytes.set(literals.subarray(from, to), end);
    else for (let i = from, at = end; i < to; i++, at++) bytes[at] = literals[i] as number;
    history.end = end + to - from;
  }
}

/** Source and target may overlap: then what was just copied is copied again. */
function copyMatch(history: History, offset: number, length: number): void {
  const { bytes, end } = history;
  check(offset > 0 && offset <= end, 'a copy begins before the frame');
  if (offset >= length && length > LOOP_BYTES_MAX) bytes.copyWithin(end, end - offset, end - offset + length);
  else for (let at = end; at < end + length; at++) bytes[at] = bytes[at - offset] as number;
  history.end = end + length;
}
