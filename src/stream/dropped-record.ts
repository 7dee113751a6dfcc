/**
 * How many dead letters were dropped lately: a record in the counters bucket, for `sluice doctor`.
 */
import { jetstream } from '@nats-io/jetstream';
import { Kvm } from '@nats-io/kv';
import { z } from 'zod';
import type { NatsLink } from './nats.ts';
import { COUNTERS_BUCKET } from './topology.ts';

const KEY = 'dead_letters.dropped';
const TRIES_MAX = 8;
const REQUEST_MS = 1_500;
/** After a quiet time as long as this, counting begins anew. */
const DROPPED_SHOWN_MS = 7 * 24 * 3_600_000;

const schema = z.object({ letters: z.number(), at: z.string(), project: z.string().optional() });
/**
 * `at`: when the last one was dropped, RFC 3339. `project`: whose it was, when it was one of a
 * project that had filled its share.
 */
type Dropped = z.infer<typeof schema>;

const bucket = (link: NatsLink) =>
  new Kvm(jetstream(link.connection, { timeout: REQUEST_MS })).open(COUNTERS_BUCKET);

function parse(text: string): Dropped | undefined {
  try {
    return schema.parse(JSON.parse(text));
  } catch {
    return undefined;
  }
}

const isRecent = ({ at }: Dropped, now: number): boolean => now - Date.parse(at) < DROPPED_SHOWN_MS;

/** @throws when it is not written */
export async function addDropped(link: NatsLink, more: Dropped): Promise<void> {
  const kv = await bucket(link);
  for (let tries = 1; ; tries++) {
    const entry = await kv.get(KEY);
    const before = entry?.operation === 'PUT' ? parse(entry.string()) : undefined;
    const sum = before && isRecent(before, Date.parse(more.at)) ? before.letters : 0;
    try {
      await kv.put(KEY, JSON.stringify({ ...more, letters: sum + more.letters }), {
        previousSeq: entry?.revision ?? 0,
      });
      return;
    } catch (error) {
      if (tries === TRIES_MAX) throw error;
    }
  }
}

/** Undefined: none within a week. @throws when the bucket does not answer */
export async function readDropped(link: NatsLink, now: number): Promise<Dropped | undefined> {
  const entry = await (await bucket(link)).get(KEY);
  const dropped = entry?.operation === 'PUT' ? parse(entry.string()) : undefined;
  return dropped && isRecent(dropped, now) ? dropped : undefined;
}
