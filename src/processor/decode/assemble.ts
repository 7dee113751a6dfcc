import { orUnavailable } from '../../sink/unavailable.ts';
import type { EntryItem, EnvelopeEntry, PartsRef } from '../../stream/frame.ts';
import type { NatsLink } from '../../stream/nats.ts';
import { isLost, joinParts, MissingPartError, readParts } from '../../stream/parts.ts';
import { CHUNKS_STREAM } from '../../stream/topology.ts';
import type { WholeItem } from './decode.ts';

export type Assembled =
  | { ok: true; items: WholeItem[] }
  /** `rest`: the parts that are there, one after the other; `isMissing`: some are not. */
  | { ok: false; reason: string; rest: Uint8Array; isMissing: boolean };

/**
 * The items of an entry with their payloads; those of a large entry are joined from the chunks
 * stream. The caller makes sure that only one large entry is in memory at a time.
 * @returns why not, when a part is gone or the bytes are not those that were sent
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

/** At most as many bytes as the entry says that it has. */
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
