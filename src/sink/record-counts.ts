import type { RecordType, SinkCount } from './sink.ts';

/** Counts the records that a batch stored or left out as resent, by type. */
export class RecordCounts {
  readonly #counts = { stored: new Map<RecordType, SinkCount>(), resent: new Map<RecordType, SinkCount>() };

  add(type: RecordType, result: SinkCount['result']): void {
    const counts = this.#counts[result];
    const found = counts.get(type);
    if (found) found.count++;
    else counts.set(type, { type, result, count: 1 });
  }

  list(): readonly SinkCount[] {
    return [...this.#counts.stored.values(), ...this.#counts.resent.values()];
  }
}
