import type { HeldEnvelope, HeldItem } from '../envelope/upload.ts';
import { assert } from '../lib/assert.ts';

/**
 * Reads a payload back from an envelope's spool for the filters, one at a time per worker: however many large events
 * arrive together, at most one of them is in memory whole.
 */
export class SpoolReader {
  #last: Promise<unknown> = Promise.resolve();

  read(envelope: HeldEnvelope, item: HeldItem): Promise<Uint8Array> {
    const { spool } = envelope;
    assert(spool, 'an item without a payload belongs to a spooled envelope');
    let offset = 0;
    for (const other of envelope.items) {
      if (other === item) break;
      offset += other.length;
    }
    const payload = this.#last.then(() => spool.read(offset, item.length));
    this.#last = payload.catch(() => undefined);
    return payload;
  }
}
