import { EnvelopeDecoder, type WholeItem } from '../../src/processor/decode/decode.ts';
import type { EnvelopeEntry, Privacy } from '../../src/stream/frame.ts';
import { SCRUBS } from '../../src/stream/frame.ts';
import { eventEntry } from '../entries.ts';
import { logPayload, transactionPayload } from '../payloads.ts';
import { seededRandom } from '../random.ts';
import { type MicroTask, micro } from './task.ts';

const WISHES: readonly (readonly [string, Privacy | undefined])[] = [
  ['stored as sent', undefined],
  ['keys and e-mail', { scrub: ['keys', 'emails'], names: [] }],
  ['all scrubs', { scrub: SCRUBS, names: [] }],
];

/** What the processor does with one item up to the sink, with and without removing what is private. */
export function scrubTasks(): MicroTask[] {
  const random = seededRandom(4);
  const event = eventEntry(random);
  const holding = (type: 'transaction' | 'log', text: string): EnvelopeEntry => {
    const payload = Buffer.from(text);
    const item = {
      index: 0,
      type,
      header: Buffer.from(`{"type":"${type}"}`),
      length: payload.length,
      payload,
    };
    return { ...event, items: [item] };
  };
  const entries: readonly (readonly [string, EnvelopeEntry])[] = [
    ['event of 1.9 KB', event],
    ['transaction of 4 KB', holding('transaction', transactionPayload(random))],
    ['100 logs of 250 bytes', holding('log', logPayload(random, 100))],
  ];
  return entries.flatMap(([what, entry]) =>
    WISHES.map(([wish, privacy]) => {
      const wanted = { ...entry, privacy };
      return micro(`${what}, ${wish}`, () => new EnvelopeDecoder(wanted).decode(entry.items[0] as WholeItem));
    }),
  );
}
