/**
 * A bucket's content in this process. Pure: a BucketMirror puts entries in, and requests read them.
 */
import { hashOf } from '../lib/hash.ts';

/**
 * An entry of the bucket. `text` is undefined when the key was deleted. `revision` is the bucket's
 * own, from 1.
 */
export type BucketEntry = { key: string; text: string | undefined; revision: number };

/**
 * An entry as the copy holds it. `revision` is the bucket's creation time (Unix ms) plus the
 * bucket's own revision. So it keeps growing when the bucket is deleted and made again, although
 * the new bucket's own revisions begin at 1. `revision` is 0 when the newest reading of the whole
 * bucket lacks the key.
 */
export type CopiedEntry = { key: string; text: string | undefined; revision: number };

/**
 * Number of shards into which a copy is divided, by the hash of the key. With this many, a shard of
 * a copy of a million keys grows in less than a millisecond.
 */
const SHARDS = 2_048;
/** A full shard grows by half. So it is seldom copied, and little of its memory is empty. */
const GROWTH = 1.5;

/** Offsets of a record's fields, in bytes: the four fields, then the key, then the text. */
const REVISION_AT = 0;
const SNAPSHOT_AT = 8;
const TEXT_BYTES_AT = 12;
const KEY_BYTES_AT = 16;
const KEY_AT = 18;
/** Stored in place of the text's length when the key was deleted. */
const DELETED = 0xffff_ffff;

/**
 * The newest entry of each key of a bucket, for a million keys and more.
 *
 * A million JavaScript objects would make each full garbage collection longer, and a Map of them
 * would stop the event loop for a tenth of a second when it grows. So keys and texts are packed
 * into buffers outside the heap, with some 210 bytes for a record of 150.
 *
 * A *snapshot* is one reading of the whole bucket. It is put in entry by entry, so nothing is held
 * twice. Each entry has the number of the last snapshot that had it. At the end of a snapshot,
 * entries that the snapshot lacks are removed.
 */
export class BucketCopy {
  readonly #shards: (Shard | undefined)[] = new Array<Shard | undefined>(SHARDS);
  readonly #onChange: (entry: CopiedEntry) => void;
  #createdMs = 0;
  #snapshot = 0;
  #seen = 0;
  #size = 0;

  /**
   * @param onChange is called for each entry that differs from the previous one of its key; it must
   * not throw
   */
  constructor(onChange: (entry: CopiedEntry) => void = () => undefined) {
    this.#onChange = onChange;
  }

  /** Number of keys, including deleted ones, since the server counts those too. */
  get size(): number {
    return this.#size;
  }

  /** Number of keys that have come since {@link startSnapshot}, including deleted ones. */
  get seen(): number {
    return this.#seen;
  }

  /**
   * Begins a snapshot. The old content stays until the snapshot ends.
   * @param createdMs creation time of the bucket, which differs when the bucket was deleted and
   * made again
   */
  startSnapshot(createdMs: number): void {
    this.#createdMs = createdMs;
    this.#snapshot++;
    this.#seen = 0;
  }

  /**
   * Ends a snapshot: removes the entries that the snapshot lacks. Yields often, so that the caller
   * may pause.
   */
  *endSnapshot(): Generator<void> {
    for (const shard of this.#shards) {
      for (const key of shard?.keysNotOf(this.#snapshot) ?? []) {
        shard?.remove(key, hashOf(key));
        this.#size--;
        this.#onChange({ key, text: undefined, revision: 0 });
      }
      if (shard) yield;
    }
  }

  put({ key, text, revision }: BucketEntry): void {
    const hash = hashOf(key);
    this.#shards[hash % SHARDS] ??= new Shard();
    const shard = this.#shards[hash % SHARDS] as Shard;
    const entry = { key, text, revision: this.#createdMs + revision };
    const slot = shard.slotOf(key, hash);
    if (slot === -1) this.#size++;
    if (slot === -1 || shard.snapshotOf(slot) !== this.#snapshot) this.#seen++;
    if (slot !== -1 && shard.holds(slot, entry)) return shard.mark(slot, this.#snapshot);
    shard.put(entry, { slot, hash, snapshot: this.#snapshot });
    this.#onChange(entry);
  }

  has(key: string): boolean {
    const hash = hashOf(key);
    const shard = this.#shards[hash % SHARDS];
    const slot = shard?.slotOf(key, hash) ?? -1;
    return slot !== -1 && shard?.isDeleted(slot) === false;
  }

  /** The entry of a key; undefined when there is none or the key was deleted. */
  get(key: string): { text: string; revision: number } | undefined {
    const hash = hashOf(key);
    const shard = this.#shards[hash % SHARDS];
    const slot = shard?.slotOf(key, hash) ?? -1;
    const text = slot === -1 ? undefined : shard?.textOf(slot);
    return text === undefined ? undefined : { text, revision: shard?.revisionOf(slot) ?? 0 };
  }
}

/** Where a record is put; `slot` is -1 for a new key. */
type Place = { slot: number; hash: number; snapshot: number };

/**
 * The entries whose keys' hashes are equal modulo SHARDS. Slots below `count` are in use, in no
 * order. Each slot has a hash and the offset of its record.
 */
class Shard {
  #hashes = new Uint32Array(1);
  #offsets = new Uint32Array(1);
  #count = 0;
  #data = Buffer.alloc(0);
  #used = 0;
  #garbage = 0;

  /** The slot of a key; -1 when there is none. */
  slotOf(key: string, hash: number): number {
    let slot = this.#hashes.indexOf(hash);
    while (slot !== -1 && slot < this.#count) {
      if (this.#keyOf(slot) === key) return slot;
      slot = this.#hashes.indexOf(hash, slot + 1);
    }
    return -1;
  }

  revisionOf(slot: number): number {
    return this.#data.readDoubleLE(this.#offset(slot) + REVISION_AT);
  }

  snapshotOf(slot: number): number {
    return this.#data.readUInt32LE(this.#offset(slot) + SNAPSHOT_AT);
  }

  mark(slot: number, snapshot: number): void {
    this.#data.writeUInt32LE(snapshot, this.#offset(slot) + SNAPSHOT_AT);
  }

  isDeleted(slot: number): boolean {
    return this.#data.readUInt32LE(this.#offset(slot) + TEXT_BYTES_AT) === DELETED;
  }

  textOf(slot: number): string | undefined {
    if (this.isDeleted(slot)) return undefined;
    const start = this.#offset(slot) + KEY_AT + this.#keyBytes(slot);
    return this.#data.toString('utf8', start, this.#offset(slot) + this.#bytes(slot));
  }

  /**
   * Whether a slot holds exactly this entry. The text is compared as well: a broker that lost its
   * newest writes in a power cut gives their revisions to other entries.
   */
  holds(slot: number, { text, revision }: CopiedEntry): boolean {
    return this.revisionOf(slot) === revision && this.textOf(slot) === text;
  }

  keysNotOf(snapshot: number): string[] {
    const keys: string[] = [];
    for (let slot = 0; slot < this.#count; slot++)
      if (this.snapshotOf(slot) !== snapshot) keys.push(this.#keyOf(slot));
    return keys;
  }

  put({ key, text, revision }: CopiedEntry, { slot, hash, snapshot }: Place): void {
    const keyBytes = Buffer.byteLength(key);
    const textBytes = text === undefined ? 0 : Buffer.byteLength(text);
    this.#makeRoom(KEY_AT + keyBytes + textBytes);
    if (slot !== -1) this.#garbage += this.#bytes(slot);
    const at = this.#used;
    this.#data.writeDoubleLE(revision, at + REVISION_AT);
    this.#data.writeUInt32LE(snapshot, at + SNAPSHOT_AT);
    this.#data.writeUInt32LE(text === undefined ? DELETED : textBytes, at + TEXT_BYTES_AT);
    this.#data.writeUInt16LE(keyBytes, at + KEY_BYTES_AT);
    this.#data.write(key, at + KEY_AT);
    this.#data.write(text ?? '', at + KEY_AT + keyBytes);
    this.#used += KEY_AT + keyBytes + textBytes;
    const into = slot === -1 ? this.#count++ : slot;
    this.#hashes[into] = hash;
    this.#offsets[into] = at;
  }

  /** Removes a key. The last slot moves to the place of the removed one. */
  remove(key: string, hash: number): void {
    const slot = this.slotOf(key, hash);
    this.#garbage += this.#bytes(slot);
    const last = --this.#count;
    this.#hashes[slot] = this.#hashes[last] as number;
    this.#offsets[slot] = this.#offsets[last] as number;
  }

  #offset(slot: number): number {
    return this.#offsets[slot] as number;
  }

  #keyBytes(slot: number): number {
    return this.#data.readUInt16LE(this.#offset(slot) + KEY_BYTES_AT);
  }

  #keyOf(slot: number): string {
    const start = this.#offset(slot) + KEY_AT;
    return this.#data.toString('utf8', start, start + this.#keyBytes(slot));
  }

  /** Length of the whole record. */
  #bytes(slot: number): number {
    const textBytes = this.#data.readUInt32LE(this.#offset(slot) + TEXT_BYTES_AT);
    return KEY_AT + this.#keyBytes(slot) + (textBytes === DELETED ? 0 : textBytes);
  }

  /** Makes room for one more slot and a record of this many bytes. */
  #makeRoom(bytes: number): void {
    if (this.#count === this.#hashes.length) {
      const slots = Math.ceil((this.#count + 1) * GROWTH);
      this.#hashes = grown(this.#hashes, slots);
      this.#offsets = grown(this.#offsets, slots);
    }
    if (this.#used + bytes > this.#data.length) this.#repack(bytes);
  }

  /**
   * Copies the live records into a new buffer, with `room` bytes more and some spare. Replaced and
   * removed records are left out.
   */
  #repack(room: number): void {
    const before = this.#data;
    const live = this.#used - this.#garbage;
    const data = Buffer.allocUnsafeSlow(Math.ceil((live + room) * GROWTH));
    let used = this.#garbage === 0 ? before.copy(data, 0, 0, this.#used) : 0;
    for (let slot = 0; used < live; slot++) {
      const [from, bytes] = [this.#offset(slot), this.#bytes(slot)];
      before.copy(data, used, from, from + bytes);
      this.#offsets[slot] = used;
      used += bytes;
    }
    this.#data = data;
    this.#used = used;
    this.#garbage = 0;
  }
}

function grown(array: Uint32Array<ArrayBuffer>, length: number): Uint32Array<ArrayBuffer> {
  const larger = new Uint32Array(length);
  larger.set(array);
  return larger;
}
