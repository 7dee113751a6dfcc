/** A dead letter with its bytes, as JSON. */
import { isUtf8 } from 'node:buffer';
import type { Entry, EntryItem } from '../../stream/frame.ts';
import type { DeadLetterDetail } from '../operations.ts';
import { entryOf } from './replay.ts';

export const isText = (bytes: Uint8Array): boolean => isUtf8(bytes) && !bytes.includes(0);
export const textOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString('utf8');
const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');

export const itemsOf = (entry: Entry | undefined): readonly EntryItem[] =>
  entry?.kind === 'envelope' ? entry.items : [];

/**
 * Largest dead letter, in bytes, whose payloads are shown. JSON takes up to six characters for a
 * byte of text, and one string holds at most 2^29 characters.
 */
const SHOWN_BYTES_MAX = 32 * 1024 * 1024;

function itemJson(
  { index, type, header, payload, length }: EntryItem,
  isShown: boolean,
): Record<string, unknown> {
  return {
    item_index: index,
    type,
    item_header: textOf(header),
    ...(isShown && payload ? bytesJson('payload', payload) : { payload_bytes: length }),
  };
}

function bytesJson(name: string, bytes: Uint8Array): Record<string, string> {
  return isText(bytes) ? { [name]: textOf(bytes) } : { [`${name}_base64`]: base64(bytes) };
}

/**
 * Makes the JSON of a dead letter: its facts, the items that can be decoded, and all bytes. Very
 * large dead letters have no payloads in their items. If bytes are missing, `bytes_gone` says why.
 */
export function letterJson({ letter, bytes }: DeadLetterDetail): Record<string, unknown> {
  if (typeof bytes === 'string') return { ...letter, bytes_gone: bytes };
  const isShown = bytes.length <= SHOWN_BYTES_MAX;
  const entry = entryOf(letter, bytes.subarray(0, letter.bodyBytes));
  const items = itemsOf(entry).map((item) => itemJson(item, isShown));
  return { ...letter, ...(items.length > 0 && { items }), bytes_base64: base64(bytes) };
}
