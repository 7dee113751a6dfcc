/** The traces of sampled entries beside the frames that carry them. */
import { afterEach, describe, expect, it } from 'vitest';
import {
  decodeFrame,
  encodeEntry,
  encodeFrame,
  FRAME_TRACES_MAX,
  readTrace,
} from '../../../src/stream/frame.ts';
import { Broker, envelopeOf, MIB, numbersTo } from '../broker.ts';

const traceparentOf = (number: number): string =>
  `00-${number.toString(16).padStart(32, 'a')}-${number.toString(16).padStart(16, 'b')}-01`;

let broker: Broker;
afterEach(() => broker.close());

type Sent = { number: number; isTraced: boolean; bytes?: number };

/** Entries of one turn, and the only message of their frame. */
async function frameOf(sent: readonly Sent[]) {
  broker = await Broker.start();
  const deadline = performance.now() + 30_000;
  const results = sent.map(
    ({ number, isTraced, bytes = 10 }) =>
      new Promise((resolve) => {
        const options = { deadline, ...(isTraced && { traceparent: traceparentOf(number) }) };
        broker.publisher.publish(envelopeOf(number, Buffer.alloc(bytes, 'x')), options, resolve);
      }),
  );
  for (const result of results) expect(await result).toBe('stored');
  const { streams } = await broker.link.manager();
  const message = await streams.getMessage('SLUICE_EVENTS', { seq: 1 });
  if (!message) throw new Error('no frame');
  return { data: message.data, lines: message.header?.values('Sluice-Trace') ?? [] };
}

describe('a frame', () => {
  it('with sampled entries has the bytes of one without, so that every processor reads it', async () => {
    const numbers = [0, 1, 2, 3];
    const { data, lines } = await frameOf(numbers.map((number) => ({ number, isTraced: number % 2 === 1 })));
    const entries = numbers.map((number) => encodeEntry(envelopeOf(number, Buffer.alloc(10, 'x'))));
    expect(Buffer.from(data).equals(Buffer.from(encodeFrame(entries)))).toBe(true);
    expect(lines).toEqual([`1 ${traceparentOf(1)}`, `3 ${traceparentOf(3)}`]);
    expect(lines.map(readTrace)).toEqual(
      [1, 3].map((place) => ({ place, traceparent: traceparentOf(place) })),
    );
  });

  it('without sampled entries has no line of them', async () => {
    expect((await frameOf([{ number: 0, isTraced: false }])).lines).toEqual([]);
  });

  it('of an entry that leaves its payloads as parts has its trace', async () => {
    const { data, lines } = await frameOf([{ number: 7, isTraced: true, bytes: 2 * MIB }]);
    expect(decodeFrame(data)).toMatchObject([{ ok: true, entry: { parts: { length: 2 * MIB } } }]);
    expect(lines).toEqual([`0 ${traceparentOf(7)}`]);
  });

  it('has so many lines that they fit beside it', async () => {
    const { data, lines } = await frameOf(numbersTo(100).map((number) => ({ number, isTraced: true })));
    expect(decodeFrame(data)).toHaveLength(100);
    expect(lines).toHaveLength(FRAME_TRACES_MAX);
  });
});
