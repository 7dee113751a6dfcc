import { OUTPUT_GARBAGE_BYTES_MAX } from '../../limits.ts';

/**
 * What the inflaters of a worker have given. zlib makes a new buffer for each piece, which is
 * garbage once it was copied, and V8 frees it when it collects the young space. Up to Node 22 it
 * does so for each 32 MiB of such buffers. Node 24 marks the whole heap before, which takes 10 to
 * 20 ms. So the worker asks for a young collection in time, which takes one or two.
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
