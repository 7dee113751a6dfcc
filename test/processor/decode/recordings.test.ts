import { gzipSync } from 'node:zlib';
import { expect, it } from 'vitest';
import { RECORDING_BYTES_MAX } from '../../../src/limits.ts';
import { EnvelopeDecoder, type WholeItem } from '../../../src/processor/decode/decode.ts';

const emptyList = (bytes: number): string => `[${' '.repeat(bytes - 2)}]`;

function recording(index: number, bytes: number, text = emptyList): WholeItem {
  const payload = Buffer.concat([Buffer.from(`{"segment_id":${index}}\n`), gzipSync(text(bytes))]);
  return { type: 'replay_recording', index, header: Buffer.from('{}'), length: payload.length, payload };
}

const reasonsOf = (...sizes: number[]): Promise<(string | undefined)[]> =>
  reasonsOfItems(sizes.map((bytes, index) => recording(index, bytes)));

async function reasonsOfItems(items: WholeItem[]): Promise<(string | undefined)[]> {
  const envelope = {
    kind: 'envelope',
    projectId: '7',
    eventId: '0'.repeat(32),
    receivedAt: 1,
    items,
  } as const;
  const decoder = new EnvelopeDecoder(envelope);
  const reasons: (string | undefined)[] = [];
  for (const item of items) {
    const decoded = await decoder.decode(item);
    reasons.push(decoded.ok ? undefined : decoded.reason);
  }
  return reasons;
}

const MAX = RECORDING_BYTES_MAX;
const moreThan = (bytes: number): string => `recording of more than ${bytes} bytes after decompression`;

it('of one envelope inflate to twice the bound of one, and no further', async () => {
  expect(await reasonsOf(MAX, 1000, MAX + 1, 1000)).toEqual([
    undefined,
    undefined,
    moreThan(MAX - 1000),
    `recordings before it in the envelope took the ${2 * MAX} bytes that all may inflate to`,
  ]);
});

it('count also when they are no JSON', async () => {
  const blanks = (index: number): WholeItem => recording(index, MAX, (bytes) => ' '.repeat(bytes));
  const reasons = await reasonsOfItems([blanks(0), blanks(1), recording(2, 1000)]);
  expect(reasons.map((reason) => reason?.slice(0, 21))).toEqual([
    'recording is not vali',
    'recording is not vali',
    'recordings before it ',
  ]);
});

it('that are damaged take no room of those after them', async () => {
  const damaged = (index: number): WholeItem => {
    const item = recording(index, 1000);
    return { ...item, payload: item.payload.subarray(0, -10), length: item.length - 10 };
  };
  const reasons = await reasonsOfItems([damaged(0), damaged(1), recording(2, 1000)]);
  expect(reasons.map((reason) => reason?.slice(0, 21))).toEqual([
    'recording is not vali',
    'recording is not vali',
    undefined,
  ]);
});

it('beside one that is too large are stored', async () => {
  expect(await reasonsOf(MAX + 1, 1000, 1000)).toEqual([moreThan(MAX), undefined, undefined]);
});
