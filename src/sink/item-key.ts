/** 128-bit keys of what must not be written twice: the first half of a SHA-256. */
import { hash } from 'node:crypto';
import type { EntryItem, EnvelopeEntry } from '../stream/frame.ts';

export const KEY_BYTES = 16;

/**
 * As text, not as a buffer: a buffer has memory of its own outside the heap and takes three times
 * as long.
 */
const keyOf = (text: string): Buffer =>
  Buffer.from(hash('sha256', text, 'binary').slice(0, KEY_BYTES), 'latin1');

export const frameKey = (frameId: string): Buffer => keyOf(`frame\n${frameId}`);

/** The same for every time that a client sends this item of this envelope. */
export const resendKey = (
  { projectId, eventId }: Pick<EnvelopeEntry, 'projectId' | 'eventId'>,
  { index, type }: Pick<EntryItem, 'index' | 'type'>,
): Buffer => keyOf(`item\n${projectId}\n${eventId}\n${index}\n${type}`);
