/**
 * A test event that goes through ingest's port like a client's event: it uses a token of the limit
 * and a position of the quota, and the sinks store it.
 *
 * An accepted event is in a frame that was written to a stream of events while the request was
 * under way. The processor removes a frame from its stream when the sinks have stored the frame or
 * when its dead letters are filed. So the frames of that time are searched until none has the
 * event.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { JetStreamManager } from '@nats-io/jetstream';
import { systemClock as clock } from '../lib/clock.ts';
import { firstKey } from '../projects/keys.ts';
import type { Project } from '../projects/project.ts';
import { decodeFrame, FrameError } from '../stream/frame.ts';
import type { NatsLink } from '../stream/nats.ts';
import { DEAD_LETTERS_STREAM, streamName } from '../stream/topology.ts';
import { DeadLetterBox } from './dead-letters/box.ts';
import { OperationError, reasonOf } from './operation-error.ts';

/** Longest wait for ingest's answer. */
const ANSWERED_MS_MAX = 5_000;
/** Pause between two checks whether the event has left its stream. */
const LOOK_MS = 100;

/**
 * A test event and what became of it. `reason` says why the event was refused, filtered or not
 * stored. `letter` is the id of its dead letter.
 */
export type TestEvent = {
  eventId: string;
  /** Status of ingest's answer. */
  status: number;
  became: 'refused' | 'filtered' | 'waiting' | 'stored' | 'dead letter';
  reason?: string;
  letter?: string;
};

type TestEventParts = { link: NatsLink; ingestUrl: string; shards: number };
/** Sequence numbers of a stream, from `from` to `to`, both included. */
type Range = { stream: string; from: number; to: number };

/**
 * Sends a test event with the first valid key, and waits at most `waitMs` until it is stored.
 * @throws OperationError when no key is valid or ingest does not answer
 */
export async function sendTestEvent(
  { link, ingestUrl, shards }: TestEventParts,
  project: Project,
  waitMs: number,
): Promise<TestEvent> {
  const manager = await link.manager();
  const lastOf = async (stream: string): Promise<number> =>
    (await manager.streams.info(stream)).state.last_seq;
  const key = firstKey(project, clock.now())?.key;
  if (key === undefined)
    throw new OperationError('conflict', `No key of project ${project.id} is valid: enable or add one.`);
  const names = Array.from({ length: shards }, (_, shard) => streamName('events', shard, shards));
  const ranges: Range[] = [];
  for (const stream of names) ranges.push({ stream, from: (await lastOf(stream)) + 1, to: 0 });
  const since = await lastOf(DEAD_LETTERS_STREAM);
  const eventId = randomUUID().replaceAll('-', '');
  const answer = await send(`${ingestUrl}/api/${project.alias ?? project.id}/envelope/`, { key, eventId });
  if (answer.became !== 'waiting') return { eventId, ...answer };
  for (const range of ranges) range.to = await lastOf(range.stream);
  for (const end = clock.monotonic() + waitMs; await isQueued(manager, ranges, eventId); await sleep(LOOK_MS))
    if (clock.monotonic() >= end) return { eventId, ...answer };
  const letters = await (await DeadLetterBox.open(link)).list({ project: project.id, after: since });
  const letter = letters.find((one) => one.eventId === eventId);
  if (!letter) return { eventId, ...answer, became: 'stored' };
  return { eventId, ...answer, became: 'dead letter', letter: letter.id, reason: letter.reason };
}

/** Sends the event. `waiting`: ingest has accepted the event, the processor is to store it. */
async function send(
  url: string,
  { key, eventId }: { key: string; eventId: string },
): Promise<Omit<TestEvent, 'eventId'>> {
  const at = new Date(clock.now()).toISOString();
  const event = {
    event_id: eventId,
    timestamp: at,
    platform: 'other',
    level: 'info',
    message: 'Test event of sluice',
  };
  const body = [{ event_id: eventId, sent_at: at }, { type: 'event' }, event].map((line) =>
    JSON.stringify(line),
  );
  const headers = {
    'Content-Type': 'application/x-sentry-envelope',
    'User-Agent': 'sluice',
    'X-Sentry-Auth': `Sentry sentry_version=7, sentry_client=sluice/test-event, sentry_key=${key}`,
  };
  const signal = AbortSignal.timeout(ANSWERED_MS_MAX);
  const init = { method: 'POST', headers, body: body.join('\n'), redirect: 'error', signal } as const;
  const answer = await fetch(url, init).catch((error: unknown) => {
    throw new OperationError(
      'unavailable',
      `Ingest does not answer at ${new URL(url).origin}: ${reasonOf(error)}.`,
    );
  });
  const { status } = answer;
  const { error = '' } = (await answer.json().catch(() => ({}))) as { error?: string };
  const filter = answer.headers.get('x-service-filtered');
  if (filter !== null) return { status, became: 'filtered', reason: filter };
  if (answer.ok) return { status, became: 'waiting' };
  return { status, became: 'refused', reason: answer.headers.get('x-sentry-error') ?? error };
}

/** Whether a frame with the event is in a stream. `ranges` shrink past frames without it. */
async function isQueued(
  manager: JetStreamManager,
  ranges: readonly Range[],
  eventId: string,
): Promise<boolean> {
  for (const range of ranges)
    while (range.from <= range.to) {
      // The client library's type lacks `next_by_subj`.
      const next = { seq: range.from, next_by_subj: '>' };
      const frame = await manager.streams.getMessage(range.stream, next);
      if (!frame || frame.seq > range.to) break;
      range.from = frame.seq;
      if (hasEvent(frame.data, eventId)) return true;
      range.from++;
    }
  return false;
}

function hasEvent(frame: Uint8Array, eventId: string): boolean {
  try {
    return decodeFrame(frame).some(
      (slot) => slot.ok && slot.entry.kind === 'envelope' && slot.entry.eventId === eventId,
    );
  } catch (error) {
    if (error instanceof FrameError) return false;
    throw error;
  }
}
