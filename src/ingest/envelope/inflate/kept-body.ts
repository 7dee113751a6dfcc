import { INFLATER_QUEUE_BYTES_MAX } from '../../../limits.ts';
import { ByteQueue, ownCopy } from '../byte-queue.ts';

const NOTHING = Buffer.alloc(0);

/**
 * The beginning of a compressed body, as long as it may turn out to be the whole body. Most bodies
 * are one chunk: only others pay for being joined.
 */
export class KeptBody {
  #bytes: Buffer;
  /** The same with the chunks that came after the first one. */
  #joined: ByteQueue | undefined;

  /** @param isWhole see Upload.feed */
  constructor(chunk: Uint8Array, isWhole: boolean) {
    this.#bytes = isWhole ? Buffer.from(chunk) : ownCopy(chunk);
  }

  /** Bytes of memory in use. */
  get capacity(): number {
    return this.#joined?.capacity ?? this.#bytes.length;
  }

  append(chunk: Uint8Array): void {
    if (!this.#joined) {
      this.#joined = new ByteQueue(INFLATER_QUEUE_BYTES_MAX);
      this.#joined.append(this.#bytes);
      this.#bytes = NOTHING;
    }
    this.#joined.append(chunk);
  }

  /** All of it as one piece. */
  join(): Buffer {
    this.#bytes = this.#joined?.take() ?? this.#bytes;
    this.#joined = undefined;
    return this.#bytes;
  }
}
