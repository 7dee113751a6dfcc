/**
 * Copies the objects of the s3 sink into another sink, one after the other, sorted by day, stream,
 * hour and name. For the other sink, an object is a frame and each of its rows is an entry. So an
 * interrupted backfill can go on in the middle of an object. Rows that the sink has already are not
 * stored again (SinkRecord.rowKey).
 */
import { setTimeout as pause } from 'node:timers/promises';
import { SINK_BATCH_BYTES_MAX } from '../limits.ts';
import { parseAddress, type S3Setting } from './s3/address.ts';
import { archivedDays, archivedRows, type Span, unpacked } from './s3/archive.ts';
import { Bucket } from './s3/bucket.ts';
import type { RefusedRow, Sink, SinkBatch, StreamSink } from './sink.ts';
import { UnavailableError } from './unavailable.ts';

const TRIES_MAX = 6;
const PAUSE_MS = 1_000;

/**
 * A backfill to run. `after`: the place of the last object that an earlier run finished. Without
 * it, the backfill begins with the first object.
 */
export type Backfill = { from: S3Setting; to: Sink; span: Span; project?: string; after?: string };

/**
 * Progress, reported after each object. `place`: names the object, and sorts as text in the order
 * of reading. `stored`: rows that the sink did not have. `refused`: rows that the sink does not
 * take.
 */
export type BroughtObject = {
  place: string;
  objects: { done: number; ofDay: number };
  rows: number;
  stored: number;
  refused: readonly RefusedRow[];
};

/**
 * Runs a backfill, and yields after each object.
 * @throws UnavailableError; Error that names an object which cannot be read; SinkSettingError
 */
export async function* backfill({
  from,
  to,
  span,
  project,
  after = '',
}: Backfill): AsyncIterable<BroughtObject> {
  const { prefix, ...address } = parseAddress(from);
  const bucket = new Bucket({ ...address, prefix });
  for await (const { stream, date, objects } of archivedDays(bucket, prefix, span)) {
    const sink = await to.open(stream);
    for (const [at, { key, rows }] of objects.entries()) {
      const place = `${date} ${stream} ${key.slice(prefix.length)}`;
      if (place <= after) continue;
      const object: ArchivedObject = { bucket, key, rows, ...(project !== undefined && { project }) };
      const brought = await withPatience(() => bring(sink, object));
      yield { place, objects: { done: at + 1, ofDay: objects.length }, rows, ...brought };
    }
  }
}

type ArchivedObject = { bucket: Bucket; key: string; rows: number; project?: string };

/** Repeats work that fails because a store is away for a moment, TRIES_MAX times at most. */
async function withPatience<T>(work: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof UnavailableError) || tries === TRIES_MAX) throw error;
      await pause(PAUSE_MS * tries);
    }
  }
}

/** Stores the rows of one S3 object, batch by batch, and sums up what was stored and refused. */
class ObjectBatches {
  readonly #sink: StreamSink;
  readonly #frameId: string;
  #batch: SinkBatch | undefined;
  stored = 0;
  readonly refused: RefusedRow[] = [];

  constructor(sink: StreamSink, frameId: string) {
    this.#sink = sink;
    this.#frameId = frameId;
  }

  async open(): Promise<SinkBatch> {
    this.#batch ??= await this.#sink.begin([this.#frameId]);
    return this.#batch;
  }

  async commit(): Promise<void> {
    const batch = await this.open();
    const refused = (await batch.prepare?.()) ?? [];
    const counts = await batch.commit({ now: true, held: () => undefined });
    for (const { result, count } of counts) if (result === 'stored') this.stored += count;
    this.refused.push(...refused);
    this.#batch = undefined;
  }

  async close(): Promise<void> {
    await this.#batch?.abandon();
  }
}

async function bring(
  sink: StreamSink,
  { bucket, key, rows, project }: ArchivedObject,
): Promise<Pick<BroughtObject, 'stored' | 'refused'>> {
  const frameId = `archive ${key}${project === undefined ? '' : ` ${project}`}`;
  const batches = new ObjectBatches(sink, frameId);
  try {
    const known = (await batches.open()).entriesKnown(frameId);
    if (known >= rows) return batches;
    const content = unpacked(key, await bucket.read(key));
    let index = 0;
    for (const record of archivedRows(content)) {
      const batch = await batches.open();
      const entry = { frameId, index: index++ };
      if (entry.index < known) continue;
      batch.beginEntry(entry);
      const isWanted =
        project === undefined ||
        ('envelope' in record.fields && record.fields.envelope.projectId === project);
      if (isWanted) batch.add(record);
      await batch.relieve();
      if (batch.bytes >= SINK_BATCH_BYTES_MAX) await batches.commit();
    }
    await batches.commit();
    return batches;
  } catch (error) {
    if (error instanceof UnavailableError) throw error;
    throw new Error(`${key}: ${(error as Error).message}`, { cause: error });
  } finally {
    await batches.close();
  }
}
