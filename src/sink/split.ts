/** Which containers of logs or spans become a row for each of their elements. */
import { type Container, splitContainer } from './containers.ts';
import type { ItemFields, SinkRecord } from './sink.ts';

/**
 * A record as it will be sent: in `bytes`, and as a row for each element of its container if it is
 * split.
 */
export type SentRecord = SinkRecord & { bytes: number; split?: Container };

/**
 * What the rows of one container may repeat of their item. A header of 16 KiB beside 40,000 logs of
 * a byte would make 600 MB of a request of 80 KB. Beyond this the container stays whole.
 */
const REPEATED_BYTES_MAX = 1024 * 1024;
/** Of an element's row beside its texts: ten lengths and at most four numbers. */
const ELEMENT_ROW_BYTES = 10 * 4 + 4 * 8;
/**
 * Containers further back in their envelope stay whole: a hundred of them, each just split, would
 * make 100,000 rows of a request of 600 bytes. An SDK sends one or two in an envelope.
 */
const SPLIT_INDEX_MAX = 9;

const CONTAINER_TYPES = ['log', 'span'] as const;
export type ContainerType = (typeof CONTAINER_TYPES)[number];
export const isContainer = (type: string): type is ContainerType =>
  (CONTAINER_TYPES as readonly string[]).includes(type);

/** What the rows of a container take; undefined when they would repeat too much. */
function bytesOfRows({ envelope, header }: ItemFields, { elements, rest }: Container): number | undefined {
  const texts = [envelope.projectId, envelope.eventId, envelope.sdk ?? '', header];
  const own = ELEMENT_ROW_BYTES + (rest?.length ?? 0);
  const repeated = texts.reduce((sum, text) => sum + Buffer.byteLength(text), own);
  if ((elements.length - 1) * repeated > REPEATED_BYTES_MAX) return undefined;
  return elements.reduce((sum, element) => sum + element.length, elements.length * repeated);
}

/**
 * Decides by the record alone how it is stored: a frame that comes again, beside any others, makes
 * the same rows.
 */
export function toSend(record: SinkRecord): SentRecord {
  const { type, fields, head, json } = record;
  const whole = { ...record, bytes: head.length + json.length };
  if ('token' in fields || !isContainer(type) || fields.index > SPLIT_INDEX_MAX) return whole;
  const split = splitContainer(json);
  const bytes = split && bytesOfRows(fields, split);
  return split && bytes ? { ...record, split, bytes } : whole;
}
