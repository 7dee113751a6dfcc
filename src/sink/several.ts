import type {
  BegunEntry,
  RefusedRow,
  Sink,
  SinkBatch,
  SinkCount,
  SinkGuarantee,
  SinkRecord,
  StreamSink,
} from './sink.ts';
import { UnavailableError } from './unavailable.ts';

export type NamedSink = { readonly name: string; readonly sink: Sink };
/** A batch of one of the sinks. `isGiven`: it stores the entry that is being added. */
type Member = { readonly name: string; readonly batch: SinkBatch; isGiven: boolean };
type Failing = Set<string>;
type SinkState = 'ok' | 'failing';

/**
 * Several sinks as one: a frame is acknowledged when all have it. One that is away holds the
 * stream; the others have its records by then, and know them when the frames are tried again. So
 * each sink keeps its own guarantee, and the weakest is that of all.
 */
export class SeveralSinks implements Sink {
  readonly guarantee: SinkGuarantee;
  readonly #sinks: readonly NamedSink[];
  /** Names of sinks whose last attempt failed, by stream. */
  readonly #failing = new Map<string, Failing>();

  constructor(sinks: readonly NamedSink[]) {
    this.#sinks = sinks;
    this.guarantee = sinks.every(({ sink }) => sink.guarantee === 'exactly once')
      ? 'exactly once'
      : 'repeatable';
  }

  async open(stream: string): Promise<StreamSink> {
    const failing: Failing = new Set();
    this.#failing.set(stream, failing);
    const opened: { name: string; sink: StreamSink }[] = [];
    for (const { name, sink } of this.#sinks) opened.push({ name, sink: await sink.open(stream) });
    return {
      begin: (frameIds) => beginAll(opened, { frameIds, failing }),
      flush: async () => {
        await all(opened.map(({ name, sink }) => named(name, failing, () => sink.flush?.())));
      },
    };
  }

  /** Names of the sinks, and whether the last attempt of one of their streams failed. */
  states(): Record<string, SinkState> {
    const failing = [...this.#failing.values()];
    return Object.fromEntries(
      this.#sinks.map(({ name, sink }) => [
        name,
        sink.isFailing || failing.some((names) => names.has(name)) ? 'failing' : 'ok',
      ]),
    );
  }

  get isFailing(): boolean {
    return this.#sinks.some(({ sink }) => sink.isFailing);
  }

  /** One that is away keeps no other from it. */
  async removeBefore(moment: number): Promise<void> {
    await all(this.#sinks.map(async ({ sink }) => sink.removeBefore?.(moment)));
  }

  async close(): Promise<void> {
    await Promise.all(this.#sinks.map(({ sink }) => sink.close()));
  }
}

/**
 * For `/readyz`: which of several sinks holds the streams, and whether any does though the last
 * batch did not fail.
 */
export const failingSinks = (sink: Sink | undefined): Record<string, SinkState> => ({
  ...(sink?.isFailing && { sink: 'failing' }),
  ...(sink instanceof SeveralSinks && sink.states()),
});

/** What a sink throws names it. */
async function named<T>(name: string, failing: Failing, work: () => T | Promise<T>): Promise<T> {
  try {
    const result = await work();
    failing.delete(name);
    return result;
  } catch (error) {
    if (!(error instanceof UnavailableError)) throw error;
    failing.add(name);
    throw new UnavailableError(`${name}: ${error.message}`, { cause: error });
  }
}

/** Waits for all, whatever becomes of one. @throws the first error, bugs before outages */
async function all<T>(works: readonly Promise<T>[]): Promise<T[]> {
  const results = await Promise.allSettled(works);
  const errors = results.flatMap((result) => (result.status === 'rejected' ? [result.reason] : []));
  if (errors.length > 0) throw errors.find((error) => !(error instanceof UnavailableError)) ?? errors[0];
  return results.map((result) => (result as PromiseFulfilledResult<T>).value);
}

async function beginAll(
  sinks: readonly { name: string; sink: StreamSink }[],
  { frameIds, failing }: { frameIds: readonly string[]; failing: Failing },
): Promise<SinkBatch> {
  const begun: Member[] = [];
  try {
    await all(
      sinks.map(async ({ name, sink }) => {
        const batch = await named(name, failing, () => sink.begin(frameIds));
        begun.push({ name, batch, isGiven: false });
      }),
    );
  } catch (error) {
    await Promise.all(begun.map(({ batch }) => batch.abandon()));
    throw error;
  }
  const order = sinks.map(({ name }) => name);
  begun.sort((a, b) => order.indexOf(a.name) - order.indexOf(b.name));
  return new BatchOfSeveral(begun, failing);
}

class BatchOfSeveral implements SinkBatch {
  readonly #members: readonly Member[];
  readonly #failing: Failing;

  constructor(members: readonly Member[], failing: Failing) {
    this.#members = members;
    this.#failing = failing;
  }

  get bytes(): number {
    return Math.max(...this.#members.map(({ batch }) => batch.bytes));
  }

  get durable(): Promise<void> | undefined {
    const later = this.#members.flatMap(({ batch }) => batch.durable ?? []);
    return later.length === 0 ? undefined : Promise.all(later).then(() => undefined);
  }

  /** What each of them refused; the others have it. */
  get refused(): readonly RefusedRow[] {
    return this.#members.flatMap(({ batch }) => batch.refused ?? []);
  }

  /** Known by all: some may be known by one sink and not by another. */
  entriesKnown(frameId: string): number {
    return Math.min(...this.#members.map(({ batch }) => batch.entriesKnown(frameId)));
  }

  beginEntry(entry: BegunEntry): void {
    for (const member of this.#members) {
      member.isGiven = member.batch.entriesKnown(entry.frameId) <= entry.index;
      if (member.isGiven) member.batch.beginEntry(entry);
    }
  }

  add(record: SinkRecord): void {
    for (const { batch, isGiven } of this.#members) if (isGiven) batch.add(record);
  }

  relieve(): Promise<void> | undefined {
    const pending = this.#members.flatMap(({ name, batch }) => {
      const relieved = batch.relieve();
      return relieved ? [named(name, this.#failing, () => relieved)] : [];
    });
    return pending.length === 0 ? undefined : all(pending).then(() => undefined);
  }

  async commit(): Promise<readonly SinkCount[]> {
    const commits = this.#members.map(({ name, batch }) => named(name, this.#failing, () => batch.commit()));
    return mostOf(await all(commits));
  }

  async abandon(): Promise<void> {
    await Promise.all(this.#members.map(({ batch }) => batch.abandon()));
  }
}

/** Of each kind what the sink counted that stored most: others may have known the entries. */
function mostOf(counts: readonly (readonly SinkCount[])[]): SinkCount[] {
  const most = new Map<string, SinkCount>();
  for (const one of counts.flat()) {
    const key = `${one.type} ${one.result}`;
    if (one.count > (most.get(key)?.count ?? 0)) most.set(key, one);
  }
  return [...most.values()];
}
