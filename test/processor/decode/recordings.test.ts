import { deflateSync, gzipSync } from 'node:zlib';
import { expect, it } from 'vitest';
import { INFLATION_BUDGET_BYTES, RECORDING_BYTES_MAX } from '../../../src/limits.ts';
import { EnvelopeDecoder, type WholeItem } from '../../../src/processor/decode/decode.ts';
import { InflationBudgets } from '../../../src/processor/decode/inflation-budgets.ts';
import type { ItemFields } from '../../../src/sink/sink.ts';
import { type Privacy, SCRUBS } from '../../../src/stream/frame.ts';
import { rounds } from '../../support/rounds.ts';

const emptyList = (bytes: number): string => `[${' '.repeat(bytes - 2)}]`;

/** By size: to pack one takes longer than to decode it. */
const packs = new Map<string, Buffer>();
function packed(text: (bytes: number) => string, bytes: number): Buffer {
  const name = `${text.name} ${bytes}`;
  const pack = packs.get(name) ?? gzipSync(text(bytes), { level: 1 });
  packs.set(name, pack);
  return pack;
}

function recording(index: number, bytes: number, text = emptyList): WholeItem {
  const payload = Buffer.concat([Buffer.from(`{"segment_id":${index}}\n`), packed(text, bytes)]);
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

it('of one envelope inflate to twice the bound of one, and no further; those beside one that is too large are stored', async () => {
  expect(await reasonsOf(MAX + 1, 1000, MAX, 1000)).toEqual([
    moreThan(MAX),
    undefined,
    moreThan(MAX - 1000),
    `recordings before it in the envelope took the ${2 * MAX} bytes that all may inflate to`,
  ]);
});

it('count also when they are no JSON', async () => {
  const blanks = (bytes: number): string => ' '.repeat(bytes);
  const reasons = await reasonsOfItems([
    recording(0, MAX, blanks),
    recording(1, MAX, blanks),
    recording(2, 1000),
  ]);
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

/** What becomes of a recording when the budget of its project is used up. */
async function withoutBudget(pack: (text: string) => Uint8Array, privacy?: Privacy) {
  const text = Buffer.from(emptyList(2 * 1024 * 1024)).toString();
  const payload = Buffer.concat([Buffer.from('{"segment_id":3}\n'), pack(text)]);
  const item = { type: 'replay_recording', index: 0, header: Buffer.from('{}'), payload } as const;
  const budgets = new InflationBudgets(() => 0);
  expect(budgets.draft('7', 0)(INFLATION_BUDGET_BYTES)).toBe(true);
  const entry = { kind: 'envelope', projectId: '7', eventId: '0'.repeat(32), receivedAt: 1 } as const;
  const decoder = new EnvelopeDecoder({ ...entry, items: [], ...(privacy && { privacy }) }, { budgets });
  return { payload, decoded: await decoder.decode({ ...item, length: payload.length }) };
}

it.each([
  ['gzip', gzipSync],
  ['deflate', deflateSync],
] as const)(
  'are stored as they came, as %s, when their project has no budget left',
  async (encoding, pack) => {
    const { payload, decoded } = await withoutBudget(pack);
    if (!decoded.ok) throw new Error(decoded.reason);
    const { head, json, fields } = decoded.record;
    expect(fields as ItemFields).toMatchObject({ isBase64: true, encoding });
    const line = JSON.parse(`${head}${Buffer.from(json)}}`);
    expect(line).toMatchObject({ type: 'replay_recording', payload_encoding: encoding });
    expect(line.payload).toBeUndefined();
    expect(Buffer.from(line.payload_base64, 'base64').equals(payload)).toBe(true);
  },
);

it.runIf(rounds(true, false))(
  'count as far as they inflate, also when their project has no budget left',
  async () => {
    const budgets = new InflationBudgets(() => 0);
    const items = Array.from({ length: 110 }, (_, index) => recording(index, 2 * 1024 * 1024));
    const entry = {
      kind: 'envelope',
      projectId: '7',
      eventId: '0'.repeat(32),
      receivedAt: 1,
      items,
    } as const;
    const decoder = new EnvelopeDecoder(entry, { budgets });
    let stored = 0;
    for (const item of items) if ((await decoder.decode(item)).ok) stored++;
    expect(stored).toBeGreaterThan(70);
    expect(await decoder.decode(recording(110, 1000))).toMatchObject({ ok: false });
  },
);

it('that cannot be scrubbed without being inflated are not stored then', async () => {
  const scrubs = await withoutBudget(gzipSync, { scrub: SCRUBS, names: [] });
  expect(scrubs.decoded).toMatchObject({ ok: false, reason: expect.stringContaining('cannot be scrubbed') });
  const fillsIn = await withoutBudget(gzipSync, { scrub: [], names: [], clientAddress: '203.0.113.9' });
  expect(fillsIn.decoded.ok).toBe(true);
});
