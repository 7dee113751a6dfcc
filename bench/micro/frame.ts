import { decodeFrame, encodeEntry, encodeFrame } from '../../src/stream/frame.ts';
import { eventEntry } from '../entries.ts';
import { seededRandom } from '../random.ts';
import { type MicroTask, micro } from './task.ts';

const ENTRIES = 64;

export function frameTasks(): MicroTask[] {
  const random = seededRandom(2);
  const entries = Array.from({ length: ENTRIES }, () => eventEntry(random));
  const encoded = entries.map(encodeEntry);
  const frame = encodeFrame(encoded);
  const [first] = entries;
  if (!first) throw new Error('no entry');
  return [
    micro('encode an entry of 1.9 KB', () => encodeEntry(first)),
    micro(`encode a frame of ${ENTRIES} encoded entries`, () => encodeFrame(encoded)),
    micro(`decode a frame of ${ENTRIES} entries`, () => decodeFrame(frame)),
  ];
}
