import { OUTPUT_GARBAGE_BYTES_MAX } from '../../../limits.ts';

/**
 * What the inflaters of a worker have given. zlib makes a new buffer for each piece, which is
 * garbage once it was copied, and V8 frees it when it collects the young space. On Node 20 it does
 * that often enough. On Node 24 it comes to mark the worker's whole heap first, for 10 to 20 ms,
 * once for each bomb. So the worker asks for young collections, which take one or two.
 */
export class OutputGarbage {
  #bytes = 0;

  add(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes < OUTPUT_GARBAGE_BYTES_MAX) return;
    this.#bytes = 0;
    // A worker has it by a flag (ingest/worker-pool.ts).
    globalThis.gc?.({ type: 'minor' });
  }
}
