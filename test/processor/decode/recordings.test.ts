import { gzipSync } from 'node:zlib';
import { expect, it } from 'vitest';
import { RECORDING_BYTES_MAX } from '../../../src/limits.ts';
import { EnvelopeDecoder, type WholeItem } from '../../../src/processor/decode/decode.ts';

function recording(index: number, bytes: number): WholeItem {
  const payload = Buffer.concat([
    Buffer.from(`{"segment_id":${index}}\n`),
    gzipSync(`[${' '.repeat(bytes - 2)}]`),
  ]);
  return { type: 'replay_recording', index, header: Buffer.from('{}'), length: payload.length, payload };
}

async function reasonsOf(...sizes: number[]): Promise<(string | undefined)[]> {
  const items = sizes.map((bytes, index) => recording(index, bytes));
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
    expect.stringContaining('recording of more than'),
    expect.stringContaining('recording of more than'),
  ]);
});

it('beside one that is too large are stored', async () => {
  expect(await reasonsOf(MAX + 1, 1000, 1000)).toEqual([moreThan(MAX), undefined, undefined]);
});
