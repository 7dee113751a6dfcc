import { setImmediate as afterPoll } from 'node:timers/promises';
import { assert } from '../../lib/assert.ts';
import type { HeldEnvelope, HeldItem } from '../envelope/upload.ts';
import { FieldPicker } from '../filter/pick-fields.ts';

/** Bytes read back from the spool at a time. */
const SPOOL_READ_BYTES = 256 * 1024;
/** Bytes picked from in one turn of the event loop: 0.06 to 0.5 ms, by what the JSON is like. */
const TURN_BYTES = 64 * 1024;

/**
 * Reads what the filters look at out of an envelope's spool: a piece at a time, so that no other
 * request waits longer than for one piece, and one payload at a time per worker, so that many large
 * events together hold no more memory than one. A request takes several turns, each of which may
 * meet a piece, so pieces are small.
 *
 * JSON.parse of an event of 19 MiB that names a crawler took 350 ms in one go, and 5.8 s, more than
 * the primary waits for a sign of life, when it was all brackets.
 */
export class SpoolReader {
  #last: Promise<unknown> = Promise.resolve();

  /** @returns a JSON object with the fields of the item's payload that filters look at */
  read(envelope: HeldEnvelope, item: HeldItem): Promise<Uint8Array> {
    const picked = this.#last.then(() => this.#pick(envelope, item));
    this.#last = picked.catch(() => undefined);
    return picked;
  }

  async #pick({ spool, items }: HeldEnvelope, item: HeldItem): Promise<Uint8Array> {
    assert(spool, 'an item without a payload belongs to a spooled envelope');
    const payload = spool.only(items, [item]);
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
