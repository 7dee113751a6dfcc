import type { Clock } from '../lib/clock.ts';
import type { Log } from '../lib/log.ts';
import { Distribution, SECONDS_BOUNDS } from '../lib/metrics/distribution.ts';
import { OutageLog } from '../lib/outage-log.ts';
import { SINK_STALLED_MS } from '../limits.ts';
import type {
  BegunEntry,
  CommitOptions,
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
type OpenedSink = { readonly health: SinkHealth; readonly sink: StreamSink };
/**
 * A batch of one of the sinks. `isGiven`: whether the batch takes the entry that is being added.
 * `writeMs`: how long the sink has worked on the batch.
 */
type Member = { readonly health: SinkHealth; readonly batch: SinkBatch; isGiven: boolean; writeMs: number };
type SinkState = 'ok' | 'failing';

/**
 * One or several sinks as one sink. A frame is acknowledged when all sinks have it. While one sink
 * is away, the stream waits and tries its frames again; sinks that have stored them recognise them.
 * So each sink keeps its own guarantee, and all sinks together have the weakest of their
 * guarantees.
 */
export class SeveralSinks implements Sink {
  readonly guarantee: SinkGuarantee;
  readonly health: readonly SinkHealth[];
  readonly #sinks: readonly Sink[];

  constructor(sinks: readonly NamedSink[], options: { log: Log; clock: Clock }) {
    this.#sinks = sinks.map(({ sink }) => sink);
    this.health = sinks.map(({ name, sink }) => new SinkHealth(name, sink, options));
    this.guarantee = this.#sinks.every(({ guarantee }) => guarantee === 'exactly once')
      ? 'exactly once'
      : 'repeatable';
  }

  async open(stream: string): Promise<StreamSink> {
    const opened: OpenedSink[] = [];
    for (const health of this.health) opened.push({ health, sink: await health.sink.open(stream) });
    return { begin: (frameIds) => beginAll(opened, stream, frameIds) };
  }

  /** Returns the state of each sink, for `/readyz`; none when there is only one sink. */
  states(): Record<string, SinkState> {
    if (this.health.length === 1) return {};
    return Object.fromEntries(this.health.map(({ name, isFailing }) => [name, isFailing ? 'failing' : 'ok']));
  }

  get isFailing(): boolean {
    return this.health.some(({ isFailing }) => isFailing);
  }

  /** Removes old days from all sinks, even when one of them is away. */
  async removeBefore(moment: number): Promise<void> {
    await all(this.#sinks.map(async (sink) => sink.removeBefore?.(moment)));
  }

  async close(): Promise<void> {
    await Promise.all(this.#sinks.map((sink) => sink.close()));
  }
}

/**
 * Waits for all promises, even when one of them rejects.
 * @throws the first error that is a bug, or else the first outage
 */
async function all<T>(works: readonly Promise<T>[]): Promise<T[]> {
  const results = await Promise.allSettled(works);
  const errors = results.flatMap((result) => (result.status === 'rejected' ? [result.reason] : []));
  if (errors.length > 0) throw errors.find((error) => !(error instanceof UnavailableError)) ?? errors[0];
  return results.map((result) => (result as PromiseFulfilledResult<T>).value);
}

async function beginAll(
  sinks: readonly OpenedSink[],
  stream: string,
  frameIds: readonly string[],
): Promise<SinkBatch> {
  const begun: Member[] = [];
  try {
    await all(
      sinks.map(async ({ health, sink }, at) => {
        const batch = await health.watch(stream, () => sink.begin(frameIds));
        begun[at] = { health, batch, isGiven: false, writeMs: 0 };
      }),
    );
  } catch (error) {
    await Promise.all(Object.values(begun).map(({ batch }) => batch.abandon()));
    throw error;
  }
  return new BatchOfSeveral(begun, stream);
}

class BatchOfSeveral implements SinkBatch {
  readonly #members: readonly Member[];
  readonly #stream: string;

  constructor(members: readonly Member[], stream: string) {
    this.#members = members;
    this.#stream = stream;
  }

  get bytes(): number {
    return Math.max(...this.#members.map(({ batch }) => batch.bytes));
  }

  /** Returns the number of entries that all sinks know. Some sinks may know more. */
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
    let pending: Promise<void>[] | undefined;
    for (const { health, batch } of this.#members) {
      const relieved = batch.relieve();
      if (!relieved) continue;
      pending ??= [];
      pending.push(health.watch(this.#stream, () => relieved));
    }
    return pending && all(pending).then(() => undefined);
  }

  /** Returns the rows that some of the sinks refuse. The other sinks store them. */
  async prepare(): Promise<readonly RefusedRow[]> {
    const refused = this.#members.map((member) =>
      this.#timed(member, async () => (await member.batch.prepare?.()) ?? []),
    );
    return (await all(refused)).flat();
  }

  /**
   * Commits the batch of each sink. Calls `held` once every sink holds its batch or has stored it,
   * and at least one sink holds it.
   */
  async commit({ now, held }: CommitOptions): Promise<readonly SinkCount[]> {
    const commits: Promise<unknown>[] = [];
    let isHeld = false;
    const taken = (batch: SinkBatch): Promise<readonly SinkCount[]> =>
      new Promise((resolve, reject) => {
        const hold = (counts: readonly SinkCount[]): void => {
          isHeld = true;
          resolve(counts);
        };
        const commit = batch.commit({ now, held: hold });
        commits.push(commit);
        commit.then(resolve, reject);
      });
    const works = this.#members.map(async (member) => {
      const counts = await this.#timed(member, () => taken(member.batch));
      member.health.wrote(member.writeMs);
      return counts;
    });
    const counts = mostOf(await all(works));
    if (isHeld) held(counts);
    await Promise.all(commits);
    return counts;
  }

  async #timed<T>(member: Member, work: () => Promise<T>): Promise<T> {
    const began = performance.now();
    const result = await member.health.watch(this.#stream, work);
    member.writeMs += performance.now() - began;
    return result;
  }

  async abandon(): Promise<void> {
    await Promise.all(this.#members.map(({ batch }) => batch.abandon()));
  }
}

/**
 * Returns, for each type of record and each result, the highest count of any sink. A sink that knew
 * some entries before counts fewer.
 */
function mostOf(counts: readonly (readonly SinkCount[])[]): SinkCount[] {
  const most = new Map<string, SinkCount>();
  for (const one of counts.flat()) {
    const key = `${one.type} ${one.result}`;
    if (one.count > (most.get(key)?.count ?? 0)) most.set(key, one);
  }
  return [...most.values()];
}

/**
 * The state of a sink, for metrics, `/readyz` and the log. A sink is failing when the last call for
 * one of its streams failed, or while a call takes longer than SINK_STALLED_MS (a locked table, a
 * disk that hangs). A sink that has an `outage` itself notes its failures and successes there.
 */
export class SinkHealth {
  readonly name: string;
  readonly sink: Sink;
  readonly outage: OutageLog;
  /** How long each committed batch took, s. */
  readonly #commits = new Distribution(SECONDS_BOUNDS);
  #stalled = 0;

  constructor(name: string, sink: Sink, { log, clock }: { log: Log; clock: Clock }) {
    this.name = name;
    this.sink = sink;
    this.outage = sink.outage ?? new OutageLog({ log: log.child({ sink: name }), clock });
  }

  get isFailing(): boolean {
    return this.outage.isAway || this.#stalled > 0;
  }

  get writeSeconds(): Distribution {
    return this.sink.writeSeconds ?? this.#commits;
  }

  /** Adds the time that a batch took. */
  wrote(ms: number): void {
    this.#commits.observe(ms / 1000);
  }

  /** Watches one call to the sink. An outage that `work` throws gets the sink's name. */
  async watch<T>(stream: string, work: () => T | Promise<T>): Promise<T> {
    let isStalled = false;
    const timer = setTimeout(() => {
      isStalled = true;
      this.#stalled++;
      this.outage.failed(stream, `no answer for ${SINK_STALLED_MS / 1000} s`);
    }, SINK_STALLED_MS);
    timer.unref();
    try {
      const result = await work();
      if (isStalled || !this.sink.outage) this.outage.worked(stream);
      return result;
    } catch (error) {
      if (!(error instanceof UnavailableError)) throw error;
      if (!this.sink.outage) this.outage.failed(stream, error.message);
      throw new UnavailableError(`${this.name}: ${error.message}`, { cause: error, isTold: true });
    } finally {
      clearTimeout(timer);
      if (isStalled) this.#stalled--;
    }
  }
}
