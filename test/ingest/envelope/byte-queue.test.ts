import { describe, expect, test } from 'vitest';
import { ByteQueue } from '../../../src/ingest/envelope/byte-queue.ts';
import { bytesOf, singleBytes } from './bodies.ts';

describe('a byte queue', () => {
  test('joins pieces and gives them away in one', () => {
    const queue = new ByteQueue(100);
    for (const byte of singleBytes(bytesOf('abc'))) queue.append(byte);
    queue.append(bytesOf('def'));
    expect(queue.length).toBe(6);
    expect(queue.take().toString()).toBe('abcdef');
    expect(queue.length).toBe(0);
    expect(queue.capacity).toBe(0);
  });

  test('copies what it is given, and what it gave away stays as it was', () => {
    const queue = new ByteQueue(100);
    const piece = bytesOf('abc');
    queue.append(piece);
    piece.fill(0);
    const taken = queue.take();
    queue.append(bytesOf('xyz'));
    expect(taken.toString()).toBe('abc');
  });

  test('grows to its bound and no further', () => {
    const queue = new ByteQueue(1000);
    for (let i = 0; i < 1000; i++) queue.append(Buffer.of(i & 255));
    expect(queue.capacity).toBe(1000);
    expect(() => queue.append(Buffer.of(0))).toThrow('past its bound');
    expect(queue.take().equals(Buffer.from(Array.from({ length: 1000 }, (_, i) => i & 255)))).toBe(true);
  });
});
