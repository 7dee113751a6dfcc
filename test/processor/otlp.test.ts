/** OTLP requests from the queue to the sink: rows, dead letters and their replay, resends, large ones. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { WholeItem } from '../../src/processor/decode/decode.ts';
import { isHeavy } from '../../src/stream/work.ts';
import { type OtlpJson, toProtobuf } from '../support/otlp-reference.ts';
import {
  attributesOf,
  ENCODINGS,
  type Encoding,
  encoded,
  logsOf,
  otlpItem,
  SPAN,
  tracesOf,
} from './decode/otlp/requests.ts';
import {
  type EnvelopeEntry,
  envelope,
  eventually,
  type FiledDeadLetter,
  Harness,
  hexId,
  RECEIVED_AT,
  type StoredRecord,
} from './harness.ts';

const MINUTE_MS = 60_000;
let harness: Harness;
let events = 0;
const newId = (): string => hexId(++events);
beforeAll(async () => {
  harness = await Harness.start();
  await harness.process();
});
afterAll(() => harness.close());

const named = (name: string): OtlpJson => ({ ...SPAN, name });
const requestItem = (request: OtlpJson, encoding: Encoding = 'protobuf'): WholeItem =>
  otlpItem('otlp_traces', encoded('otlp_traces', request, encoding), encoding);

async function storedOf(eventId: string): Promise<StoredRecord[]> {
  await harness.drained();
  return harness.stored().filter((record) => record.event_id === eventId);
}
const elementsIn = (records: readonly StoredRecord[]): OtlpJson[] =>
  records.flatMap(({ payload }) => (payload as { items: OtlpJson[] }).items);
const namesIn = (records: readonly StoredRecord[]): unknown[] => elementsIn(records).map(({ name }) => name);
const publish = (entry: EnvelopeEntry): Promise<number> =>
  harness.publish([entry], { stream: 'transactions' });

it.each(ENCODINGS)(
  'a bad span in %s is a dead letter, which holds it alone and may be replayed',
  async (encoding) => {
    const eventId = newId();
    const request = tracesOf([named('first'), { ...named('bad'), traceId: 'aa' }, named('third')]);
    await publish(envelope([requestItem(request, encoding)], { eventId }));
    expect(namesIn(await storedOf(eventId))).toEqual(['first', 'third']);
    const box = await harness.letters();
    const letterOf = async (): Promise<FiledDeadLetter> =>
      eventually(async () => (await box.list()).find((one) => one.eventId === eventId));
    const letter = await letterOf();
    const reason = (count: number): string =>
      `OTLP: 1 of ${count} spans cannot be stored; the first: traceId is no id of 16 bytes`;
    expect(letter).toMatchObject({ kind: 'item', type: 'otlp_traces', reason: reason(3) });
    const text = Buffer.from(await box.bytesOf(letter)).toString('latin1');
    expect(['bad', 'first', 'third'].map((name) => text.includes(name))).toEqual([true, false, false]);
    await harness.replay(letter);
    await eventually(async () => (await letterOf()).reason === reason(1));
    expect(await storedOf(eventId)).toHaveLength(1);
  },
);

it('a resend within ten minutes is stored once, all its containers, and a later one again', async () => {
  const eventId = newId();
  const item = requestItem(tracesOf(Array.from({ length: 2_500 }, (_, n) => named(`${n}`))));
  for (const after of [0, 9 * MINUTE_MS, 10 * MINUTE_MS + 1])
    await publish(envelope([item], { eventId, receivedAt: RECEIVED_AT + after }));
  const records = await storedOf(eventId);
  expect(records.map(({ item_index }) => item_index)).toEqual([0, 1, 2, 0, 1, 2]);
  expect(new Set(namesIn(records)).size).toBe(2_500);
});

it('logs and metrics are resends, too', async () => {
  const eventId = newId();
  const logs = otlpItem('otlp_logs', encoded('otlp_logs', logsOf([{ severityNumber: 9 }]), 'json'), 'json');
  const metrics = otlpItem(
    'otlp_metrics',
    toProtobuf('otlp_metrics', { resourceMetrics: [{ scopeMetrics: [{ metrics: [{ name: 'm' }] }] }] }),
    'protobuf',
  );
  for (let time = 0; time < 2; time++) {
    await harness.publish([envelope([logs], { eventId })], { stream: 'logs' });
    await harness.publish([envelope([metrics], { eventId })], { stream: 'extras' });
  }
  const records = (await storedOf(eventId)).sort((a, b) => (a.type < b.type ? -1 : 1));
  expect(records).toMatchObject([
    { type: 'log', payload: { items: [{ level: 'info' }] } },
    {
      type: 'otlp_metrics',
      payload: { resourceMetrics: [{ scopeMetrics: [{ metrics: [{ name: 'm' }] }] }] },
    },
  ]);
});

describe('a large request, whose payload is in parts', () => {
  it.each([
    ['as it came', undefined],
    ['scrubbed', { scrub: ['emails'], names: [] }],
  ] as const)('is stored %s', async (_how, privacy) => {
    const count = 3_000;
    const eventId = newId();
    const attributes = attributesOf({ mail: 'bob@example.org', more: 'x'.repeat(100) });
    const spans = Array.from({ length: count }, (_, n) => ({ ...named(`${n}`), attributes }));
    const { payload, ...item } = requestItem(tracesOf([...spans, { ...SPAN, spanId: '' }]));
    const entry = envelope([item], { eventId, parts: await harness.chunk(payload), privacy });
    expect(isHeavy(entry)).toBe(privacy !== undefined);
    await publish(entry);
    const records = await storedOf(eventId);
    expect(namesIn(records)).toEqual(spans.map((_, n) => `${n}`));
    const mails = new Set(
      elementsIn(records).map((span) => (span.attributes as { mail: { value: string } }).mail.value),
    );
    expect(mails).toEqual(new Set([privacy ? '[Filtered]' : 'bob@example.org']));
    const box = await harness.letters();
    const letter = await eventually(async () => (await box.list()).find((one) => one.eventId === eventId));
    expect(letter.reason).toBe(`OTLP: 1 of ${count + 1} spans cannot be stored; the first: it has no spanId`);
  });
});

it('a replay of a letter is no resend of the containers beside it', async () => {
  const eventId = newId();
  const item = requestItem(tracesOf([named('a'), named('b')]));
  await publish(envelope([item], { eventId }));
  // As the letter of a record that could not be stored at first.
  await publish(envelope([{ ...item, index: 65_536 }], { eventId }));
  expect((await storedOf(eventId)).map(({ item_index }) => item_index)).toEqual([0, 65_536]);
});
