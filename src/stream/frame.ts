/**
 * THE SEAM between ingest and processor: what stands in a stream. Encode and decode stand side by side here and nowhere else.
 *
 * A frame is one stream message: MessagePack, `[VERSION, entry, entry, …]`. An entry is one envelope (or one heartbeat ping).
 */

import type { ItemType } from '../lib/item-types.ts';

export type EntryItem = {
  /** Position among all items of the envelope, skipped ones included, from 0. */
  index: number;
  type: ItemType;
  /** The item header line as sent: JSON, UTF-8. */
  header: Uint8Array;
  /** Bytes of the payload. In a large entry they stand in the parts, one payload after the other in item order. */
  length: number;
  /** The payload; undefined in a large entry. */
  payload?: Uint8Array;
};

/** Where the payloads of a large entry stand in the chunks stream. */
export type PartsRef = {
  /** Stream sequence numbers in order. */
  sequences: number[];
  /** Bytes of all parts together. */
  length: number;
  /** SHA-256 over all parts in order. */
  sha256: Uint8Array;
};

export type EnvelopeEntry = {
  kind: 'envelope';
  projectId: string;
  /** 32 lower-case hex. */
  eventId: string;
  /** Unix milliseconds, the worker's clock. */
  receivedAt: number;
  /** The envelope header's sent_at, as sent. */
  sentAt?: string;
  /** The envelope header's sdk, `name/version`. */
  sdk?: string;
  /** UTC month that the usage was counted in, `YYYY-MM` by Redis's clock; absent when it was not counted (development, Redis away). */
  month?: string;
  /** This envelope's position in the month's usage, from 1. */
  position?: number;
  items: EntryItem[];
  parts?: PartsRef;
};

export type HeartbeatEntry = {
  kind: 'heartbeat';
  token: string;
  receivedAt: number;
  body?: Uint8Array;
};

export type Entry = EnvelopeEntry | HeartbeatEntry;
