/** The text of dead letters that commands print. */

import type { FiledDeadLetter } from '../../management/dead-letters/box.ts';
import { isText, itemsOf, textOf } from '../../management/dead-letters/letter-json.ts';
import type { Entry, EntryItem } from '../../stream/frame.ts';
import { harmless, inOneLine, record, table } from '../print.ts';

const REASON_CHARS_MAX = 60;
const PAYLOAD_CHARS_MAX = 2_000;

const cut = (text: string, chars: number): string =>
  text.length > chars ? `${text.slice(0, chars)}…` : text;

export function lettersText(letters: readonly FiledDeadLetter[]): string {
  const rows = letters.map((letter) => [
    letter.id,
    letter.filedAt,
    letter.kind,
    letter.type ?? '',
    letter.projectId ?? '',
    letter.bytesGone ? `${letter.bytes}, gone` : `${letter.bytes}`,
    cut(letter.reason, REASON_CHARS_MAX),
  ]);
  return table(['ID', 'FILED', 'KIND', 'TYPE', 'PROJECT', 'BYTES', 'REASON'], rows, ['BYTES']);
}

/** Returns an item's payload as the client sent it; all bytes of any other dead letter. */
export function rawBytes(letter: FiledDeadLetter, entry: Entry | undefined, bytes: Uint8Array): Uint8Array {
  const [only] = letter.kind === 'item' ? itemsOf(entry) : [];
  return only?.payload ?? bytes;
}

export function letterText(letter: FiledDeadLetter, entry: Entry | undefined, bytes: Uint8Array): string {
  const items = itemsOf(entry);
  const contents = items.length > 0 ? items.map(itemText) : [bytesText(bytes)];
  return [factsText(letter), ...contents].join('\n\n');
}

export function factsText(letter: FiledDeadLetter): string {
  return record([
    ['id', letter.id],
    ['filed', letter.filedAt],
    ['first filed', letter.firstFiledAt],
    ['replayed', letter.attempts && `${letter.attempts} times`],
    ['reason', letter.reason],
    ['kind', letter.kind],
    ['type', letter.type],
    ['project', letter.projectId],
    ['event', letter.eventId],
    ['item', letter.itemIndex],
    ['received', letter.receivedAt === undefined ? undefined : new Date(letter.receivedAt).toISOString()],
    ['from', `${letter.subject}, frame ${letter.frameId}`],
    ['bytes', letter.bytes],
    ['sha256', letter.sha256],
  ]);
}

const itemText = ({ index, header, payload, length }: EntryItem): string =>
  [
    `item ${index}  ${inOneLine(textOf(header))}`,
    payload === undefined ? `(${length} bytes in parts)` : bytesText(payload),
  ].join('\n');

function bytesText(bytes: Uint8Array): string {
  if (isText(bytes)) return cut(harmless(textOf(bytes)), PAYLOAD_CHARS_MAX);
  return cut(
    Buffer.from(bytes)
      .toString('hex')
      .replaceAll(/(.{64})/g, '$1\n'),
    PAYLOAD_CHARS_MAX,
  );
}
