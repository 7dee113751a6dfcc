import type { Log } from '../../lib/log.ts';
import type { EnvelopeEntry } from '../../stream/frame.ts';
import type { NatsLink } from '../../stream/nats.ts';
import { removeParts } from '../../stream/parts.ts';
import type { Delivery } from '../delivery.ts';
import type { Assembled } from './assemble.ts';

/**
 * The parts of frames in hand that were read and are what their frame says: they are removed when
 * the frame is acknowledged.
 */
export class JoinedParts {
  readonly #link: NatsLink;
  readonly #log: Log;
  readonly #sequences = new WeakMap<Delivery, Set<number>>();

  constructor({ link, log }: { link: NatsLink; log: Log }) {
    this.#link = link;
    this.#log = log;
  }

  /** Parts with other bytes may be those of another entry: they stay. */
  note(delivery: Delivery, { parts }: EnvelopeEntry, { ok }: Assembled): void {
    if (!ok || !parts) return;
    const joined = this.#sequences.get(delivery) ?? new Set();
    for (const sequence of parts.sequences) joined.add(sequence);
    this.#sequences.set(delivery, joined);
  }

  /** No frame names these parts any more. What cannot be removed now is left to the sweep. */
  async remove(deliveries: readonly Delivery[]): Promise<void> {
    const parts = deliveries.flatMap((delivery) => [...(this.#sequences.get(delivery) ?? [])]);
    if (parts.length === 0) return;
    try {
      await removeParts(this.#link, parts);
    } catch (error) {
      this.#log.warn({ err: error, parts: parts.length }, 'processor: parts wait for the sweep');
    }
  }
}
