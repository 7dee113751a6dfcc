/** What becomes of private data in items that the sink refuses for their content. */
import { gunzipSync, gzipSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock as clock } from '../../../src/lib/clock.ts';
import type { ItemType } from '../../../src/lib/item-types.ts';
import { DeadLetterBox, type FiledDeadLetter } from '../../../src/management/dead-letters/box.ts';
import { entryOf, Replay } from '../../../src/management/dead-letters/replay.ts';
import type { BegunEntry, RefusedRow, Sink, SinkBatch } from '../../../src/sink/sink.ts';
import { type EnvelopeEntry, SCRUBS } from '../../../src/stream/frame.ts';
import { HEAVY_SUBJECT } from '../../../src/stream/work.ts';
import { ENCODINGS, encoded, logsOf, otlpItem } from '../decode/otlp/requests.ts';
import { envelope, eventually, Harness, hexId, item, log } from '../harness.ts';

/** Refuses every row; of a container of logs the second element. */
const refusing: Sink = {
  guarantee: 'repeatable',
  open: async () => ({ begin: () => refusingBatch() }),
  close: async () => undefined,
};

function refusingBatch(): SinkBatch {
  const refused: RefusedRow[] = [];
  let at: BegunEntry = { frameId: '', index: 0 };
  return {
    bytes: 0,
    entriesKnown: () => 0,
    beginEntry: (entry) => {
      at = entry;
    },
    add: ({ type, fields }) => {
      const place = { frameId: at.frameId, entry: at.index, reason: 'it may not' };
      const element = type === 'log' && { element: 1 };
      if ('index' in fields) refused.push({ ...place, item: fields.index, ...element });
    },
    relieve: () => undefined,
    prepare: async () => refused,
    commit: async () => [],
    abandon: async () => undefined,
  };
}

let harness: Harness;
let box: DeadLetterBox;
beforeEach(async () => {
  harness = await Harness.start();
  box = await DeadLetterBox.open(harness.link);
});
afterEach(() => harness.close());

const privacy = { scrub: SCRUBS, names: ['shoe'], clientAddress: '203.0.113.9' };
const SECRETS = ['bob@example.com', '203.0.113.9', 'size 44', 'hunter2'];

const ROWS: readonly (readonly [ItemType, string | Uint8Array, clean: unknown])[] = [
  [
    'event',
    '{"n":1,"message":"bob@example.com","password":"hunter2","user":{"ip_address":"{{auto}}"}}',
    { n: 1, message: '[Filtered]', password: '[Filtered]', user: { ip_address: null } },
  ],
  [
    'log',
    '{"items":[{"n":1},{"body":"to bob@example.com","shoe":"size 44"}]}',
    { items: [{ body: 'to [Filtered]', shoe: '[Filtered]' }] },
  ],
  [
    'replay_recording',
    Buffer.concat([
      Buffer.from('{"segment_id":3}\n'),
      gzipSync('[{"text":"bob@example.com","shoe":"size 44"}]'),
    ]),
    { segment_id: 3, recording: [{ text: '[Filtered]', shoe: '[Filtered]' }] },
  ],
];

async function refusedLetter(entry: EnvelopeEntry): Promise<FiledDeadLetter> {
  const processor = await harness.process({ sink: refusing });
  await harness.publish([entry]);
  const letter = await eventually(async () => (await box.list())[0]);
  await processor.stop();
  return letter;
}

const payloadText = async (letter: FiledDeadLetter): Promise<string> => {
  const bytes = await box.bytesOf(letter);
  const entry = entryOf(letter, bytes);
  const [only] = entry?.kind === 'envelope' ? entry.items : [];
  const payload = Buffer.from(only?.payload ?? []);
  const line = payload.indexOf('\n') + 1;
  const inflated = line > 0 ? gunzipSync(payload.subarray(line)).toString() : '';
  return `${Buffer.from(bytes).toString('latin1')}${inflated}`;
};

describe('the dead letter of an item that the sink refuses', () => {
  it.each(ROWS)(
    'of a scrubbed project has what its row had, and no more: %s',
    async (type, payload, clean) => {
      const letter = await refusedLetter(envelope([item(type, payload)], { privacy }));
      const text = await payloadText(letter);
      for (const secret of SECRETS) expect(text).not.toContain(secret);
      expect(text).toContain('[Filtered]');
      await harness.process();
      await new Replay({ link: harness.link, box, shards: 1, clock, log }).run(letter);
      expect(await harness.storedOnce(1)).toMatchObject([{ type, payload: clean }]);
    },
  );

  it.each(ENCODINGS)(
    'of a log that came by OTLP in %s is a container with that log alone',
    async (encoding) => {
      const request = logsOf(
        ['first', 'to bob@example.com'].map((stringValue) => ({ body: { stringValue } })),
      );
      const one = otlpItem('otlp_logs', encoded('otlp_logs', request, encoding), encoding);
      const letter = await refusedLetter(envelope([one], { privacy }));
      expect(letter).toMatchObject({ type: 'log', itemIndex: 0, reason: 'the sink refuses it: it may not' });
      await harness.process();
      await harness.replay(letter);
      expect(await harness.storedOnce(1)).toMatchObject([
        { type: 'log', payload: { version: 2, items: [{ body: 'to [Filtered]' }] } },
      ]);
    },
  );

  it('of a large entry is scrubbed, too', async () => {
    const payload = `{"message":"bob@example.com","noise":"${'x'.repeat(600_000)}"}`;
    const { payload: _, ...bare } = item('event', payload);
    const parts = await harness.chunk(Buffer.from(payload));
    const text = await payloadText(await refusedLetter(envelope([bare], { privacy, parts })));
    expect(text).not.toContain('bob@example.com');
    expect(text).toContain('[Filtered]');
  });

  it('of another project has the bytes that came', async () => {
    const letter = await refusedLetter(envelope([item('event', '{ "message": "bob@example.com" }')]));
    expect(await payloadText(letter)).toContain('{ "message": "bob@example.com" }');
  });
});

it('the parts of a large entry are read once, however many of its items are refused', async () => {
  const ITEMS = 20;
  const payload = `{"noise":"${'x'.repeat(60_000)}"}`;
  const { payload: _, ...bare } = item('event', payload);
  const items = Array.from({ length: ITEMS }, (_, index) => ({ ...bare, index }));
  const parts = await harness.chunk(Buffer.from(payload.repeat(ITEMS)));
  let reads = 0;
  harness.link.subscribe('$JS.API.*.GET.SLUICE_CHUNKS.>', () => reads++);
  harness.link.subscribe('$JS.API.STREAM.MSG.GET.SLUICE_CHUNKS', () => reads++);
  harness.link.subscribe('$JS.API.DIRECT.GET.SLUICE_CHUNKS', () => reads++);
  await harness.process({ sink: refusing });
  await harness.publish([envelope(items, { parts })]);
  await eventually(async () => (await box.list()).length === ITEMS);
  // Once to decode them, once for the letters.
  expect(reads).toBe(2 * parts.sequences.length);
});

it('a project of which many rows are refused is named while the processor is late, and no other one', async () => {
  const named: string[] = [];
  harness.link.subscribe(HEAVY_SUBJECT, ({ data }) => named.push(Buffer.from(data).toString()));
  const late = { ...clock, now: () => clock.now() + 60_000 };
  await harness.process({ sink: refusing, clock: late });
  const of = (projectId: string, n: number) =>
    envelope([item('event', '{}')], { eventId: hexId(n), projectId });
  await harness.publish([of('light', 1), ...Array.from({ length: 300 }, (_, n) => of('heavy', n + 2))]);
  await harness.publish([of('light', 1_000)]);
  await harness.drained();
  await expect.poll(() => new Set(named)).toEqual(new Set(['heavy']));
});
