import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { ZstdCorrupt } from '../../../src/envelope/zstd/bits.ts';
import { ZstdBlocks } from '../../../src/envelope/zstd/block.ts';
import { ZstdFrames } from '../../../src/envelope/zstd/frame.ts';
import { ZSTD_BLOCKS_MAX } from '../../../src/limits.ts';
import { bytesOf, seeded } from '../bodies.ts';
import { BLOCK, zstdBlock, zstdBlocks, zstdFrame } from '../zstd-bytes.ts';

function decode(input: Uint8Array): Buffer {
  const frames = new ZstdFrames();
  const output: Buffer[] = [];
  let at = 0;
  for (let step = frames.step(input); step; step = frames.step(input.subarray(at))) {
    at += step.used;
    output.push(Buffer.from(step.output));
  }
  if (at < input.length || !frames.isComplete) throw new ZstdCorrupt('cut short');
  return Buffer.concat(output);
}

const fixture = (name: string): Buffer => readFileSync(new URL(`../fixtures/${name}.zst`, import.meta.url));
const sha = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

/**
 * Files that the reference implementation wrote (zstd 1.5) with the options that their names tell, and the SHA-256 of what went in.
 * Together they hold every kind of literals, of tables and of blocks, a window that is moved, a checksum, and several frames.
 */
const FIXTURES: [name: string, length: number, sha256: string][] = [
  ['fast-5', 84666, '98c8a985db91d7877e1a553e33c3cec11669e83dc137595adbb08da255334a90'],
  ['level-1-no-check', 84666, '98c8a985db91d7877e1a553e33c3cec11669e83dc137595adbb08da255334a90'],
  ['level-19', 84666, '98c8a985db91d7877e1a553e33c3cec11669e83dc137595adbb08da255334a90'],
  ['level-3-window-moves', 3731936, '2376ab2917d92c4823a23404a9bf2f1c2180e13b3bc1bd19ff71f0c8922420b9'],
  ['level-9-text-noise-and-runs', 263000, 'e5544e7c9384db78ba971316d579cba4d47bfe3664d2fe0ac11fd503a7d40864'],
  ['two-frames', 5008, '43276a34a823d47ff26a6348adfc519e8175a966d381eb31ea82f21a112593fc'],
  ['nothing', 0, 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'],
];

describe('a zstd file of the reference implementation', () => {
  test.each(FIXTURES)('%s gives its %i bytes', (name, length, sha256) => {
    const output = decode(fixture(name));
    expect(output.length).toBe(length);
    expect(sha(output)).toBe(sha256);
  });

  test.each(FIXTURES)('%s with flipped bytes gives something or is corrupt', (name) => {
    const whole = fixture(name);
    const random = seeded(99);
    for (let i = 0; i < 60; i++) {
      const mutant = Buffer.from(whole);
      for (let flips = 1 + Math.floor(random() * 3); flips > 0; flips--) {
        const reach = random() < 0.5 ? 64 : mutant.length;
        mutant[Math.floor(random() * Math.min(reach, mutant.length))] = Math.floor(random() * 256);
      }
      try {
        decode(mutant);
      } catch (error) {
        expect(error, `mutant ${i}`).toBeInstanceOf(ZstdCorrupt);
      }
    }
  });
});

describe('a zstd frame', () => {
  const raw = (text: string, isLast = true): Buffer =>
    zstdBlock(BLOCK.raw, text.length, bytesOf(text), isLast);

  test('has raw blocks and runs of one byte', () => {
    const frame = zstdFrame([
      raw('ab', false),
      zstdBlock(BLOCK.rle, 5, bytesOf('c'), false),
      raw('', false),
      raw('d'),
    ]);
    expect(decode(frame).toString()).toBe('abcccccd');
  });

  test('may stand among others and among frames that are to be skipped', () => {
    const skip = (content: string): Buffer => {
      const head = Buffer.alloc(8);
      head.writeUInt32LE(0x184d2a5f);
      head.writeUInt32LE(content.length, 4);
      return Buffer.concat([head, bytesOf(content)]);
    };
    const body = Buffer.concat([
      skip('xyz'),
      zstdFrame([raw('a')]),
      skip(''),
      zstdFrame([raw('b')]),
      skip('end'),
    ]);
    expect(decode(body).toString()).toBe('ab');
  });

  test.each([
    ['one byte', 0x20, [3]],
    ['two bytes', 0x40, [0x38, 3, 0]],
    ['four bytes', 0x80, [0x38, 3, 0, 0, 0]],
    ['eight bytes', 0xc0, [0x38, 3, 0, 0, 0, 0, 0, 0, 0]],
  ])('that states its size in %s must give that many', (_title, flags, head) => {
    const text = flags === 0x40 ? 'x'.repeat(256 + 3) : 'abc';
    expect(decode(zstdFrame([raw(text)], { flags, head })).toString()).toBe(text);
    for (const wrong of [text.slice(1), `${text}y`])
      expect(() => decode(zstdFrame([raw(wrong)], { flags, head }))).toThrow(ZstdCorrupt);
  });

  test('that carries a checksum must match it', () => {
    const whole = fixture('level-19');
    const last = whole.length - 1;
    for (const at of [last, last - 3]) {
      const mutant = Buffer.from(whole);
      mutant[at] = (mutant[at] as number) ^ 1;
      expect(() => decode(mutant)).toThrow('the checksum differs');
    }
    const frame = Buffer.concat([zstdFrame([raw('abc')], { flags: 4 }), Buffer.from('990a7e4f', 'hex')]);
    expect(() => decode(frame)).toThrow('the checksum differs');
  });

  test('may have a window of 8 MiB and no larger', () => {
    expect(decode(zstdFrame([raw('a')], { head: [13 << 3] })).toString()).toBe('a');
    expect(() => decode(zstdFrame([raw('a')], { head: [(13 << 3) + 1] }))).toThrow('window is too large');
    const hugeSingle = { flags: 0xe0, head: [0, 0, 0, 0, 1, 0, 0, 0] };
    expect(() => decode(zstdFrame([raw('a')], hugeSingle))).toThrow('window is too large');
  });

  test.each([
    ['another magic number', Buffer.from('28b52ffe00380100006161', 'hex')],
    ['a dictionary', zstdFrame([raw('a')], { flags: 1, head: [0x38, 7] })],
    ['a reserved bit', zstdFrame([raw('a')], { flags: 8 })],
    ['a reserved block type', zstdFrame([zstdBlock(BLOCK.reserved, 1, bytesOf('a'))])],
    ['a block over 128 KiB', zstdFrame([zstdBlock(BLOCK.rle, 128 * 1024 + 1, bytesOf('a'))])],
    ['a block over its window', zstdFrame([zstdBlock(BLOCK.rle, 1025, bytesOf('a'))], { head: [0] })],
    ['a compressed block of nothing', zstdFrame([zstdBlock(BLOCK.compressed, 0, Buffer.alloc(0))])],
    ['literals beyond the block', zstdFrame([zstdBlock(BLOCK.compressed, 3, Buffer.of(0xf8, 0, 0))])],
    [
      'a repeated table where there is none',
      zstdFrame([zstdBlock(BLOCK.compressed, 5, Buffer.of(0x08, 97, 1, 0xfc, 1))]),
    ],
    [
      'treeless literals where there is no tree',
      zstdFrame([zstdBlock(BLOCK.compressed, 5, Buffer.of(0x13, 0x40, 0, 1, 0))]),
    ],
  ])('with %s is corrupt', (_title, frame) => {
    expect(() => decode(frame)).toThrow(ZstdCorrupt);
  });

  test('whose few bytes ask for gigabytes of copying is corrupt at its first sequence', () => {
    // 98,047 sequences of 65,539 bytes each, all tables of one symbol, and a bit stream that is used up at once.
    const block = Buffer.of(0x08, 0x61, 0xff, 0xff, 0xff, 0x54, 0, 0, 52, 0x01);
    expect(() => decode(zstdFrame([zstdBlock(BLOCK.compressed, block.length, block)]))).toThrow(
      'sequences are cut short',
    );
  });

  test('whose sequences cost no bits ends at the size of a block', () => {
    // The same with matches of 34 bytes: no further bits are needed, but a block gives at most 128 KiB.
    const block = Buffer.of(0x08, 0x61, 0xff, 0xff, 0xff, 0x54, 0, 0, 31, 0x01);
    const blocks = [raw('12345678', false), zstdBlock(BLOCK.compressed, block.length, block)];
    expect(() => decode(zstdFrame(blocks))).toThrow('a block gives too many bytes');
  });

  test('stops at the sequence that gives too much, not after all of them', () => {
    const history = { bytes: new Uint8Array(1024), end: 8 };
    const block = Buffer.of(0x08, 0x61, 0xff, 0xff, 0xff, 0x54, 0, 0, 31, 0x01);
    expect(() => new ZstdBlocks(512).decode(block, history)).toThrow('a block gives too many bytes');
    expect(history.end).toBeLessThanOrEqual(8 + 512);
  });

  test('gives no more literals than its window has bytes', () => {
    const literals = (size: number): Buffer => {
      const word = size * 16 + 5;
      return zstdBlock(BLOCK.compressed, 4, Buffer.of(word & 255, word >> 8, 97, 0));
    };
    expect(decode(zstdFrame([literals(1024)], { head: [0] })).toString()).toBe('a'.repeat(1024));
    expect(() => decode(zstdFrame([literals(1025)], { head: [0] }))).toThrow('too many literals');
  });

  test('has a bounded number of blocks, and a body a bounded number of frames', () => {
    const blocks = (count: number): Buffer[] =>
      Array.from({ length: count }, (_, i) => raw('', i === count - 1));
    expect(decode(zstdFrame(blocks(ZSTD_BLOCKS_MAX - 1))).length).toBe(0);
    expect(() => decode(zstdFrame(blocks(ZSTD_BLOCKS_MAX)))).toThrow('too many blocks');
    const frames = Array.from({ length: ZSTD_BLOCKS_MAX }, () => zstdFrame([raw('')]));
    expect(() => decode(Buffer.concat(frames))).toThrow('too many blocks');
  });

  test('written by the tests is read by the decoder', () => {
    const body = Buffer.concat([Buffer.alloc(300_000, 5), bytesOf('end')]);
    expect(decode(zstdBlocks(body)).equals(body)).toBe(true);
    expect(decode(zstdBlocks(Buffer.alloc(0))).length).toBe(0);
  });
});
