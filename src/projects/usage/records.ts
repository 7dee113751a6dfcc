/** Reads, changes (by compare-and-set) and removes records of the counters bucket. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { NatsLink } from '../../stream/nats.ts';
import { COUNTERS_BUCKET } from '../../stream/topology.ts';
import { isConflict, openBucket } from '../bucket.ts';

const WRITE_TRIES_MAX = 12;
/**
 * Longest random pause after the first conflict of a write; after the n-th conflict, n times as
 * long.
 */
const CONFLICT_MS = 20;

/**
 * Reads a record; undefined when there is none.
 * @throws when the bucket does not answer
 */
export async function readRecord(link: NatsLink, key: string): Promise<string | undefined> {
  const entry = await (await openBucket(link, COUNTERS_BUCKET)).get(key);
  return entry?.operation === 'PUT' ? entry.string() : undefined;
}

/**
 * Changes a record by compare-and-set.
 * @param change returns the new text, or undefined when there is nothing to write; called again
 * when another process wrote meanwhile
 * @throws when it is not certain that the record is written
 */
export async function changeRecord(
  link: NatsLink,
  key: string,
  change: (text: string | undefined) => string | undefined,
): Promise<void> {
  const kv = await openBucket(link, COUNTERS_BUCKET);
  for (let tries = 1; ; tries++) {
    const entry = await kv.get(key);
    const text = change(entry?.operation === 'PUT' ? entry.string() : undefined);
    if (text === undefined) return;
    try {
      await kv.put(key, text, { previousSeq: entry?.revision ?? 0 });
      return;
    } catch (error) {
      if (!isConflict(error) || tries === WRITE_TRIES_MAX) throw error;
      await sleep(Math.random() * CONFLICT_MS * tries);
    }
  }
}

/**
 * Purges the records of these keys (a pattern with wildcards of NATS) from the bucket's stream, up
 * to the revision `upTo`. Deleting a key would leave a marker for ever.
 * @returns how many were removed
 */
export async function removeRecords(link: NatsLink, keys: string, upTo?: number): Promise<number> {
  const filter = `$KV.${COUNTERS_BUCKET}.${keys}`;
  const { streams } = await link.manager();
  const { purged } = await streams.purge(
    `KV_${COUNTERS_BUCKET}`,
    upTo === undefined ? { filter } : { filter, seq: upTo + 1 },
  );
  return purged;
}

/** Keys that match a pattern with wildcards of NATS. */
export async function recordKeys(link: NatsLink, keys: string): Promise<string[]> {
  const prefix = `$KV.${COUNTERS_BUCKET}.`;
  const manager = await link.manager();
  const { state } = await manager.streams.info(`KV_${COUNTERS_BUCKET}`, {
    subjects_filter: `${prefix}${keys}`,
  });
  return Object.keys(state.subjects ?? {}).map((subject) => subject.slice(prefix.length));
}

/** Writes a record, whatever it held before. */
export async function putRecord(link: NatsLink, key: string, text: string): Promise<void> {
  await (await openBucket(link, COUNTERS_BUCKET)).put(key, text);
}
