import fc from 'fast-check';
import { expect, it } from 'vitest';
import { FRAME_BYTES_MAX } from '../../src/limits.ts';
import { FrameBlocks, type KeptFrame } from '../../src/processor/frames-in-hand.ts';

type InHand = { kept: KeptFrame; fill: number; length: number };

/** Some bytes stand for all. */
function isUntouched({ kept: { bytes }, fill, length }: InHand): boolean {
  for (let at = 0; at < length; at += 997) if (bytes[at] !== fill) return false;
  return bytes.length === length && (length === 0 || bytes[length - 1] === fill);
}

it('no frame in hand is touched, in whatever order frames are released', () => {
  const lengths = fc.oneof(
    fc.constant(0),
    fc.constant(FRAME_BYTES_MAX),
    fc.integer({ min: 1, max: FRAME_BYTES_MAX + 10 }),
  );
  const steps = fc.array(fc.record({ length: lengths, released: fc.array(fc.nat(), { maxLength: 3 }) }), {
    maxLength: 40,
    size: 'max',
  });
  fc.assert(
    fc.property(steps, (all) => {
      const memory = new FrameBlocks();
      const inHand: InHand[] = [];
      for (const [n, { length, released }] of all.entries()) {
        const fill = (n % 255) + 1;
        inHand.push({ kept: memory.keep(new Uint8Array(length).fill(fill)), fill, length });
        for (const pick of released) {
          const [gone] = inHand.splice(pick % Math.max(1, inHand.length), 1);
          if (gone) memory.release(gone.kept);
        }
        expect(inHand.every(isUntouched)).toBe(true);
      }
    }),
    { numRuns: 60 },
  );
});

it('what was sent is a copy', () => {
  const sent = Uint8Array.of(1, 2, 3);
  const { bytes } = new FrameBlocks().keep(sent);
  sent.fill(0);
  expect([...bytes]).toEqual([1, 2, 3]);
});

it('the memory is that of the most frames in hand, however many pass', () => {
  const memory = new FrameBlocks();
  const buffers = new Set<ArrayBufferLike>();
  const frame = new Uint8Array(100_000);
  let inHand: KeptFrame[] = [];
  for (let round = 0; round < 50; round++) {
    for (let n = 0; n < 60; n++) inHand.push(memory.keep(frame));
    for (const { bytes } of inHand) buffers.add(bytes.buffer);
    // The later half waits for the next round, as frames do that were fetched ahead.
    for (const kept of inHand.slice(0, -30)) memory.release(kept);
    inHand = inHand.slice(-30);
  }
  const bytes = [...buffers].reduce((sum, { byteLength }) => sum + byteLength, 0);
  expect(bytes).toBeLessThan(1.5 * 90 * frame.length);
});
