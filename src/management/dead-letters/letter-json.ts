/** A dead letter with its bytes, as JSON. Pure. */
import { isUtf8 } from 'node:buffer';
import type { Entry, EntryItem } from '../../stream/frame.ts';
import type { DeadLetterDetail } from '../operations.ts';
import { entryOf } from './replay.ts';

export const isText = (bytes: Uint8Array): boolean => isUtf8(bytes) && !bytes.includes(0);
export const textOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString('utf8');
const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');

export const itemsOf = (entry: Entry | undefined): readonly EntryItem[] =>
  entry?.kind === 'envelope' ? entry.items : [];

const itemJson = ({ index, type, header, payload, length }: EntryItem): Record<string, unknown> => ({
  item_index: index,
  type,
  item_header: textOf(header),
  ...bytesJson('payload', payload),
  ...(payload === undefined && { payload_bytes: length }),
});

function bytesJson(name: string, bytes: Uint8Array | undefined): Record<string, string> {
  if (bytes === undefined) return {};
  return isText(bytes) ? { [name]: textOf(bytes) } : { [`${name}_base64`]: base64(bytes) };
}

/**
 * The facts, the items as far as they can be decoded, and all bytes; `bytes_gone` says why they are
 * not there.
 */
export function letterJson({ letter, bytes }: DeadLetterDetail): Record<string, unknown> {
  if (typeof bytes === 'string') return { ...letter, bytes_gone: bytes };
  const items = itemsOf(entryOf(letter, bytes.subarray(0, letter.bodyBytes))).map(itemJson);
  return { ...letter, ...(items.length > 0 && { items }), bytes_base64: base64(bytes) };
}
