import type { RecordType, SinkCount } from './sink.ts';

/** How many records a batch stored and left out, by type. */
export class RecordCounts {
  readonly #counts = new Map<string, SinkCount>();

  add(type: RecordType, result: SinkCount['result']): void {
    const key = `${type} ${result}`;
    const found = this.#counts.get(key);
    if (found) found.count++;
    else this.#counts.set(key, { type, result, count: 1 });
  }

  list(): readonly SinkCount[] {
    return [...this.#counts.values()];
  }
}
