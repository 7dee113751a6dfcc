import type { HeldEnvelope, HeldItem } from '../envelope/upload.ts';
import { FieldPicker } from '../filter/pick-fields.ts';
import { assert } from '../lib/assert.ts';

/** Bytes read back from the spool at a time. */
const SPOOL_READ_BYTES = 256 * 1024;

/**
 * Reads what the filters look at out of an envelope's spool: a piece at a time, so that no other
 * request waits longer than for one piece, and one payload at a time per worker, so that many large
 * events together hold no more memory than one.
 *
 * Measured for an event of 19 MiB that names a crawler: 0.8 ms of the event loop per piece where
 * JSON.parse took 350 ms in one go, and 5.8 s, more than the primary waits for a sign of life, when
 * it was all brackets.
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
    for (let at = 0; at < payload.length; at += SPOOL_READ_BYTES)
      picker.feed(await payload.read(at, Math.min(SPOOL_READ_BYTES, payload.length - at)));
    return picker.end();
  }
}
