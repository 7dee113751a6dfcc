/** What a project wants to have removed is in no table and no file of any sink. */
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ITEM_TYPES } from '../../src/lib/item-types.ts';
import { SCRUBS } from '../../src/stream/frame.ts';
import { STREAM_OF_TYPE } from '../../src/stream/topology.ts';
import {
  attributesOf,
  ENCODINGS,
  encoded,
  logsOf,
  otlpItem,
  SPAN,
  tracesOf,
} from '../processor/decode/otlp/requests.ts';
import { envelope, Harness, hexId, item, type RunningProcessor } from '../processor/harness.ts';
import { SINKS, type SinkUnderTest } from './sinks.ts';

const PRIVATE = ['bob@x.io', '4242424242424242', '198.51.100.77', '2001:db8::77', 'hunter2', '19700101'];
const GIVEN = {
  items: [
    {
      body: PRIVATE.slice(0, 4).join(' and '),
      attributes: { password: { value: 'hunter2', type: 'string' } },
    },
    { kept: 'yes', n: 1.5 },
  ],
  user: { ip_address: '198.51.100.77', birth_date: '19700101' },
};
const F = '[Filtered]';
const CLEAN = {
  items: [
    { body: `${F} and ${F} and ${F} and ${F}`, attributes: { password: { value: F, type: 'string' } } },
    GIVEN.items[1],
  ],
  user: { ip_address: null, birth_date: F },
};

describe.each(SINKS)('%s', (_, start) => {
  let harness: Harness;
  let sink: SinkUnderTest;
  let processor: RunningProcessor;
  beforeAll(async () => {
    [harness, sink] = await Promise.all([Harness.start(), start()]);
    processor = await harness.run({ SLUICE_SINK: sink.setting });
  });
  afterAll(async () => {
    await processor?.stop();
    await harness?.close();
    await sink?.close();
  });

  it('stores nothing of it, of any type, and everything else', async () => {
    const parsed = (base64: string): unknown => JSON.parse(Buffer.from(base64, 'base64').toString());
    const types = ITEM_TYPES.filter((type) => type !== 'otlp_traces' && type !== 'otlp_logs');
    const payloadOf = (type: string): string | Uint8Array => {
      const text = JSON.stringify(type === 'replay_recording' ? [GIVEN] : GIVEN);
      if (type !== 'replay_recording') return text;
      return Buffer.concat([Buffer.from('{"segment_id":0}\n'), gzipSync(text)]);
    };
    for (const [at, type] of types.entries())
      for (const [offset, privacy] of [undefined, { scrub: SCRUBS, names: ['birth_date'] }].entries()) {
        const header = `{"type":"${type}","content_type":"application/json"}`;
        const entry = envelope([item(type, payloadOf(type), { header })], {
          eventId: hexId(2 * at + offset),
          privacy,
        });
        await harness.publish([entry], { stream: STREAM_OF_TYPE[type] });
      }
    await harness.drained();
    const records = (await sink.records()).map((record) => {
      const { payload_base64: base64 } = record as { payload_base64?: string };
      // Files are stored in base64.
      return base64 === undefined ? record : { ...record, payload: parsed(base64) };
    });
    const halves = [0, 1].map((odd) =>
      records.filter(({ event_id }) => Number.parseInt(event_id, 16) % 2 === odd),
    );
    const [asSent = [], scrubbed = []] = halves;
    // A container is a record for each of its two entries.
    expect(halves.map(({ length }) => length)).toEqual([types.length + 2, types.length + 2]);
    const surviving = (from: unknown): string[] =>
      PRIVATE.filter((text) => JSON.stringify(from).includes(text));
    expect(surviving(asSent)).toEqual(PRIVATE);
    expect(surviving(scrubbed)).toEqual([]);
    for (const { type, payload } of scrubbed)
      if (type === 'log' || type === 'span') expect(CLEAN.items).toContainEqual(payload);
      else if (type === 'replay_recording') expect(payload).toEqual({ segment_id: 0, recording: [CLEAN] });
      else expect(payload).toEqual(CLEAN);
    const { state } = await harness.manager.streams.info('SLUICE_DEAD_LETTERS');
    expect(state.messages).toBe(0);
  });

  it('stores nothing of it that comes by OTLP, in either encoding', async () => {
    const [email, card, address, other] = PRIVATE as [string, string, string, string];
    const attributes = attributesOf({ password: 'hunter2', 'user.ip_address': address, note: `to ${email}` });
    const resource = { attributes: attributesOf({ 'process.env.API_KEY': 'hunter2', 'host.ip': other }) };
    const inner = { kvlistValue: { values: attributesOf({ birth_date: '19700101', kept: 'yes' }) } };
    const traces = tracesOf([{ ...SPAN, attributes, events: [{ name: email, attributes }] }], { resource });
    const logs = logsOf([{ body: { stringValue: card }, attributes: [{ key: 'a', value: inner }] }], {
      resource,
    });
    const privacy = { scrub: SCRUBS, names: ['birth_date'] };
    let id = 1_000;
    for (const encoding of ENCODINGS)
      for (const [type, request] of [
        ['otlp_traces', traces],
        ['otlp_logs', logs],
      ] as const) {
        const one = otlpItem(type, encoded(type, request, encoding), encoding);
        await harness.publish([envelope([one], { eventId: hexId(id++), privacy })], {
          stream: STREAM_OF_TYPE[type],
        });
      }
    await harness.drained();
    const records = (await sink.records()).filter(({ event_id }) => Number.parseInt(event_id, 16) >= 1_000);
    expect(records.map(({ type }) => type).sort()).toEqual(['log', 'log', 'span', 'span']);
    expect(PRIVATE.filter((text) => JSON.stringify(records).includes(text))).toEqual([]);
    const F_ATTRIBUTE = { value: F, type: 'string' };
    for (const { type, payload } of records)
      expect(payload).toMatchObject(
        type === 'span'
          ? {
              events: [{ name: F, attributes: { password: F_ATTRIBUTE } }],
              attributes: { password: F_ATTRIBUTE, note: { value: `to ${F}` } },
            }
          : {
              body: F,
              attributes: {
                a: { value: { birth_date: F, kept: 'yes' } },
                'resource.process.env.API_KEY': F_ATTRIBUTE,
              },
            },
      );
  });
});
