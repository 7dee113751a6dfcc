import type { Log } from '../../lib/log.ts';
import { orUnavailable } from '../../sink/unavailable.ts';
import type { EntryItem, EnvelopeEntry, PartsRef } from '../../stream/frame.ts';
import type { NatsLink } from '../../stream/nats.ts';
import { isLost, joinParts, MissingPartError, readParts, removeParts } from '../../stream/parts.ts';
import { CHUNKS_STREAM } from '../../stream/topology.ts';
import type { Delivery } from '../delivery.ts';
import type { WholeItem } from './decode.ts';

export type Assembled =
  | { ok: true; items: WholeItem[] }
  /**
   * `rest`: the parts that were found, one after the other. `isMissing`: some parts were not found.
   */
  | { ok: false; reason: string; rest: Uint8Array; isMissing: boolean };

/**
 * Returns the items of an entry with their payloads. The payloads of a large entry are joined from
 * the chunks stream; the caller makes sure that only one large entry is in memory at a time.
 * @returns `ok: false` with the reason, when a part is gone or the bytes are not those that were
 * sent
 * @throws UnavailableError when the broker does not answer
 */
export function assemble(link: NatsLink, entry: EnvelopeEntry): Assembled | Promise<Assembled> {
  const { parts } = entry;
  if (!parts) return { ok: true, items: entry.items.map(whole) };
  return orUnavailable<Assembled>('parts of a large entry cannot be read', async () => {
    try {
      return { ok: true, items: joinParts(entry, await readParts(link, parts)).items.map(whole) };
    } catch (error) {
      if (!isLost(error)) throw error;
      const isMissing = error instanceof MissingPartError;
      return { ok: false, reason: error.message, rest: await whatIsThere(link, parts), isMissing };
    }
  });
}

const isWhole = (item: EntryItem): item is WholeItem => item.payload !== undefined;
const whole = (item: EntryItem): WholeItem => (isWhole(item) ? item : { ...item, payload: new Uint8Array() });

/** Reads the parts that still exist, but no more bytes than the entry's own length. */
async function whatIsThere(link: NatsLink, { sequences, length }: PartsRef): Promise<Uint8Array> {
  const manager = await link.manager();
  const found: Uint8Array[] = [];
  let bytes = 0;
  for (const seq of sequences) {
    const part = await manager.streams.getMessage(CHUNKS_STREAM, { seq });
    if (!part || bytes + part.data.length > length) continue;
    found.push(part.data);
    bytes += part.data.length;
  }
  return Buffer.concat(found);
}

/**
 * Remembers the parts that were joined for frames in hand, so that they can be removed when the
 * frame is acknowledged.
 */
export class JoinedParts {
  readonly #options: { link: NatsLink; log: Log };
  readonly #sequences = new WeakMap<Delivery, Set<number>>();

  constructor(options: { link: NatsLink; log: Log }) {
    this.#options = options;
  }

  /**
   * Notes the parts of an entry that was joined. Parts with unexpected bytes may belong to another
   * entry and are not noted, so that they stay.
   */
  note(delivery: Delivery, { parts }: EnvelopeEntry, { ok }: Assembled): void {
    if (!ok || !parts) return;
    const joined = this.#sequences.get(delivery) ?? new Set();
    for (const sequence of parts.sequences) joined.add(sequence);
    this.#sequences.set(delivery, joined);
  }

  /**
   * Removes the parts of acknowledged frames: no frame names them any more. Parts that cannot be
   * removed now are left to the sweep (part-sweeper.ts).
   */
  async remove(deliveries: readonly Delivery[]): Promise<void> {
    const parts = deliveries.flatMap((delivery) => [...(this.#sequences.get(delivery) ?? [])]);
    if (parts.length === 0) return;
    try {
      await removeParts(this.#options.link, parts);
    } catch (error) {
      this.#options.log.warn({ err: error, parts: parts.length }, 'processor: parts wait for the sweep');
    }
  }
}
