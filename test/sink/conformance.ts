/** What every sink does, by the promise that it declares. */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { deflateSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
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
import {
  envelope,
  eventually,
  frameOf,
  Harness,
  hexId,
  item,
  RECEIVED_AT,
  type RunningProcessor,
  type StoredRecord,
} from '../processor/harness.ts';
import { natsServer } from '../support/servers.ts';
import type { SinkUnderTest, StartSink } from './sinks.ts';

const MINUTE_MS = 60_000;
const MIB = 1024 * 1024;
const QUICKLY = { level: 1 };
const DYING = new URL('./dying-processor.mjs', import.meta.url);

let events = 0;
const newId = (): string => hexId(++events);

export const describeSinks = (sinks: readonly (readonly [name: string, start: StartSink])[]): void =>
  describe.each(sinks)('%s', (_, start) => {
    let harness: Harness;
    let sink: SinkUnderTest;
    let processor: RunningProcessor;
    const settings = () => ({ SLUICE_SINK: sink.setting });
    const run = async (): Promise<void> => {
      processor = await harness.run(settings());
    };
    beforeAll(async () => {
      [harness, sink] = await Promise.all([Harness.start(), start()]);
      await run();
    });
    afterAll(async () => {
      await processor?.stop();
      await harness?.close();
      await sink?.close();
    });

    /** Records of one event, in the order of their places; everything published before is processed. */
    async function recordsOf(eventId: string): Promise<StoredRecord[]> {
      await harness.drained();
      const found = (await sink.records()).filter((record) => record.event_id === eventId);
      return found.sort((a, b) => a.item_index - b.item_index);
    }
    const receivedOf = async (eventId: string): Promise<unknown[]> =>
      (await recordsOf(eventId)).map(({ received_at }) => received_at).sort();
    const deadLetters = (): Promise<number> => harness.messages('SLUICE_DEAD_LETTERS');

    it('stores every field of the contract', async () => {
      const eventId = newId();
      const more = { eventId, sentAt: '2026-01-02T03:04:05.1+02:00', sdk: 'sentry.javascript.node/10.1.0' };
      const header = { index: 1, header: '{"type":"event","length":19}' };
      await harness.publish([envelope([item('event', '{"message":"hello"}', header)], more)]);
      expect(await recordsOf(eventId)).toEqual([
        {
          project_id: '42',
          event_id: eventId,
          item_index: 1,
          type: 'event',
          received_at: '2026-01-02T03:04:05.678Z',
          sent_at: '2026-01-02T01:04:05.100Z',
          sdk: 'sentry.javascript.node/10.1.0',
          item_header: { type: 'event', length: 19 },
          payload: { message: 'hello' },
        },
      ]);
    });

    it('has no sdk where there was none, and no sent_at where that is no moment', async () => {
      const eventId = newId();
      await harness.publish([envelope([item('event', '{}')], { eventId, sentAt: 'yesterday' })]);
      const [record] = await recordsOf(eventId);
      expect(record).not.toHaveProperty('sent_at');
      expect(record).not.toHaveProperty('sdk');
    });

    it('stores heartbeats with and without a body, whatever text or bytes that is', async () => {
      const ping = { kind: 'heartbeat' as const, receivedAt: RECEIVED_AT };
      const body = new Uint8Array(Buffer.from('a "ü" \0 \u{1f600}\n'));
      await harness.publish(
        [
          { ...ping, token: 'tick' },
          { ...ping, token: 'tock', body },
          { ...ping, token: 'tuck', body: Uint8Array.of(0xff, 0, 0x7b, 0xfe) },
          { ...ping, token: 'tyck', body: Uint8Array.of(0xef, 0xbb, 0xbf, 0x61) },
        ],
        { stream: 'heartbeats' },
      );
      await harness.drained();
      const pings = (await sink.records()).filter(({ type }) => type === 'heartbeat');
      const received_at = '2026-01-02T03:04:05.678Z';
      expect(pings.sort((a, b) => (`${a.token}` < `${b.token}` ? -1 : 1))).toEqual([
        { type: 'heartbeat', token: 'tick', received_at },
        { type: 'heartbeat', token: 'tock', received_at, body: 'a "ü" \0 \u{1f600}\n' },
        { type: 'heartbeat', token: 'tuck', received_at, body_base64: '/wB7/g==' },
        { type: 'heartbeat', token: 'tyck', received_at, body: '\ufeffa' },
      ]);
      expect(await harness.metric('sluice_processed_total', '{type="heartbeat",result="dead_letter"}')).toBe(
        0,
      );
    });

    it.each([
      ['NUL', '{"s":"a\\u0000b"}'],
      ['lone surrogates', '{"s":"\\ud800 \\udfff"}'],
      ['unicode in names and values', '{"\u{1f600}ü":"\u2028\u{10ffff}\u0085","\\u00e9":"é\u0301"}'],
      ['digits that no double holds', '{"n":12345678901234567890.1234567890,"e":1e999,"z":-0}'],
      ['repeated names, in their order', '{"b":1,"a":2,"b":3}'],
      ['backslashes, quotes and commas', '{"s":"\\\\ \\" , {NULL} \\\\N","t":"\\t\\b\\/"}'],
      ['nesting of 200,000', `{"a":${'['.repeat(200_000)}${']'.repeat(200_000)}}`],
      ['a scalar', 'null'],
    ])('keeps payloads with %s byte for byte', async (_what, payload) => {
      const eventId = newId();
      await harness.publish([envelope([item('event', payload)], { eventId })]);
      await harness.drained();
      expect(await sink.payloadTexts(eventId)).toEqual([payload]);
    });

    it('keeps item headers and names of SDKs whose strings hold NUL', async () => {
      const eventId = newId();
      const header = '{"type":"event","x":"\\u0000\\ud800"}';
      await harness.publish([envelope([item('event', '{}', { header })], { eventId, sdk: 'a\0b' })]);
      const [record] = await recordsOf(eventId);
      expect(record?.item_header).toEqual(JSON.parse(header));
      expect(record?.sdk).toMatch(/^a.b$/s);
    });

    it('stores moments that are none of our days', async () => {
      const [old, late] = [newId(), newId()];
      await harness.publish([
        envelope([item('event', '{}')], { eventId: old, receivedAt: 0, sentAt: '0000-01-01T00:00:00+14:00' }),
        envelope([item('log', '{"items":[{}]}')], { eventId: late, receivedAt: Date.UTC(9999, 11, 31) }),
      ]);
      expect(await receivedOf(old)).toEqual(['1970-01-01T00:00:00.000Z']);
      expect(await receivedOf(late)).toEqual(['9999-12-31T00:00:00.000Z']);
    });

    it.each(['log', 'span'] as const)('stores each %s of a container, with what is its own', async (type) => {
      const eventId = newId();
      const logs = ['{"body":"a, ]\\"}","n":1.50}', '{"body":"\\u0000"}', '[]'];
      const container = `{ "version" : 2, "items" : [ ${logs.join(' , ')} ] }`;
      await harness.publish([envelope([item(type, container, { index: 3 })], { eventId })], {
        stream: STREAM_OF_TYPE[type],
      });
      const records = await recordsOf(eventId);
      expect(records.map(({ payload }) => payload)).toEqual(logs.map((text) => JSON.parse(text)));
      expect(new Set(records.map(({ item_index, type }) => `${item_index} ${type}`))).toEqual(
        new Set([`3 ${type}`]),
      );
    });

    it('stores a span and a log that came by OTLP as those of a container', async () => {
      const text = (value: string) => ({ value, type: 'string' });
      const attributes = { a: text('b'), 'resource.service.name': text('shop') };
      const ids = { trace_id: SPAN.traceId, span_id: SPAN.spanId };
      const span = { ...ids, name: 'GET /users', status: 'ok', is_segment: true, attributes };
      const log = { ...ids, timestamp: 1.5, level: 'info', body: 'hi', attributes };
      const more = { attributes: attributesOf({ a: 'b' }) };
      const { startTimeUnixNano: _start, endTimeUnixNano: _end, ...otlpSpan } = SPAN;
      const otlpLog = {
        ...ids,
        traceId: SPAN.traceId,
        spanId: SPAN.spanId,
        timeUnixNano: '1500000000',
        body: { stringValue: 'hi' },
      };
      const resource = { attributes: attributesOf({ 'service.name': 'shop' }) };
      const requests = {
        otlp_traces: tracesOf([{ ...otlpSpan, ...more }], { resource }),
        otlp_logs: logsOf([{ ...otlpLog, ...more }], { resource }),
      };
      for (const [type, otlpType, element] of [
        ['span', 'otlp_traces', span],
        ['log', 'otlp_logs', log],
      ] as const) {
        const [own, ...rest] = [newId(), newId(), newId()] as [string, string, string];
        const stream = STREAM_OF_TYPE[type];
        await harness.publish(
          [envelope([item(type, JSON.stringify({ version: 2, items: [element] }))], { eventId: own })],
          { stream },
        );
        const [expected] = await recordsOf(own);
        expect(expected).toMatchObject({ type, payload: element });
        for (const [place, encoding] of ENCODINGS.entries()) {
          const eventId = rest[place] as string;
          const one = otlpItem(otlpType, encoded(otlpType, requests[otlpType], encoding), encoding);
          await harness.publish([envelope([one], { eventId })], { stream });
          const item_header = JSON.parse(Buffer.from(one.header).toString());
          expect(await recordsOf(eventId)).toEqual([{ ...expected, event_id: eventId, item_header }]);
        }
      }
    });

    it('stores what other types hold as it is: JSON as JSON, all else in base64', async () => {
      const eventId = newId();
      const binary = Buffer.from([0, 0xff, 10, 34, 92, 0xc3]);
      const items = [
        item('attachment', binary, { index: 0 }),
        item('attachment', '{"log":[1.50]}', { index: 1 }),
        item('check_in', '{"status":"ok"}', { index: 3 }),
        item('user_report', 'not JSON \u0000', { index: 4 }),
        item('feedback', '', { index: 5 }),
        item('replay_video', '[1]', { index: 6 }),
      ];
      await harness.publish([envelope(items, { eventId })], { stream: 'extras' });
      const records = await recordsOf(eventId);
      const base64 = (text: string | Buffer): string => Buffer.from(text).toString('base64');
      const found = records.map(({ item_index, type, ...record }) => {
        const { payload, payload_base64 } = record as { payload?: unknown; payload_base64?: string };
        return [item_index, type, payload, payload_base64];
      });
      expect(found).toEqual([
        [0, 'attachment', undefined, base64(binary)],
        [1, 'attachment', undefined, base64('{"log":[1.50]}')],
        [3, 'check_in', { status: 'ok' }, undefined],
        [4, 'user_report', undefined, base64('not JSON \u0000')],
        [5, 'feedback', undefined, ''],
        [6, 'replay_video', undefined, base64('[1]')],
      ]);
    });

    it("stores a client's resend of an event or transaction within ten minutes once, and a later one again", async () => {
      const eventId = newId();
      const times = [0, 5, 10 * MINUTE_MS, 10 * MINUTE_MS + 1, 20 * MINUTE_MS, 21 * MINUTE_MS];
      const both = [item('transaction', '{}'), item('event', '{}', { index: 1 })];
      for (const after of times)
        await harness.publish([envelope(both, { eventId, receivedAt: RECEIVED_AT + after })]);
      const moments = ['2026-01-02T03:04:05.678Z', '2026-01-02T03:14:05.679Z', '2026-01-02T03:25:05.678Z'];
      expect(await receivedOf(eventId)).toEqual(moments.flatMap((moment) => [moment, moment]));
    });

    it('tells resends in one frame by the same rule', async () => {
      const eventId = newId();
      const of = (after: number) =>
        envelope([item('event', '{}')], { eventId, receivedAt: RECEIVED_AT + after });
      await harness.publish([of(0), of(9 * MINUTE_MS), of(18 * MINUTE_MS), of(19 * MINUTE_MS)]);
      expect(await receivedOf(eventId)).toEqual(['2026-01-02T03:04:05.678Z', '2026-01-02T03:22:05.678Z']);
    });

    it('takes nothing for a resend that differs in project, place or type', async () => {
      const eventId = newId();
      await harness.publish([
        envelope([item('event', '{}')], { eventId }),
        envelope([item('event', '{}')], { eventId, projectId: '43' }),
        envelope([item('event', '{}', { index: 1 })], { eventId }),
        envelope([item('transaction', '{}')], { eventId }),
      ]);
      expect(await recordsOf(eventId)).toHaveLength(4);
    });

    it('never takes segments of a replay, or logs, for resends', async () => {
      const eventId = newId();
      for (let segment = 0; segment < 3; segment++) {
        const recording = item('replay_recording', `{"segment_id":${segment}}\n[]`, { index: 1 });
        const replay = envelope([item('replay_event', '{}'), recording], { eventId });
        await harness.publish([replay, envelope([item('log', '{"items":[{}]}')], { eventId })], {
          stream: 'replays',
        });
      }
      const types = (await recordsOf(eventId)).map(({ type }) => type).sort();
      expect(types).toEqual(
        ['log', 'replay_event', 'replay_recording'].flatMap((type) => [type, type, type]),
      );
    });

    it('stores a frame once that comes again after the broker was killed and forgot it', async () => {
      const eventId = newId();
      const frame = frameOf(
        ...[0, 1].map((index) => envelope([item('log', '{"items":[{}]}', { index })], { eventId })),
      );
      await harness.publishBytes(frame, { id: `lost ack ${eventId}` }); // whoever sent it never heard of this
      await harness.drained();
      const { port, dir } = harness.nats;
      harness.nats.process.kill('SIGKILL');
      await harness.nats.exited;
      const again = await natsServer({ port, dir });
      Object.assign(harness.nats, again);
      await eventually(() => harness.link.connected);
      const sequence = await eventually(() =>
        harness.publishBytes(frame, { id: `lost ack ${eventId}` }).catch(() => undefined),
      );
      expect((await harness.manager.streams.info('SLUICE_EVENTS')).state.last_seq).toBe(sequence);
      expect(await recordsOf(eventId)).toHaveLength(2);
    });

    it('goes on after a restart where it was, and knows frames and items', async () => {
      const eventId = newId();
      const frame = frameOf(
        envelope([item('event', '{"n":1}')], { eventId }),
        envelope([item('log', '{"items":[{}]}')], { eventId }),
      );
      await harness.publishBytes(frame, { id: `frame ${eventId}` });
      await harness.drained();
      await processor.stop();
      await harness.publishAgain(frame, { id: `frame ${eventId}` });
      await harness.publish([
        envelope([item('event', '{"n":2}')], { eventId, receivedAt: RECEIVED_AT + MINUTE_MS }),
      ]);
      expect(await harness.messages('SLUICE_EVENTS')).toBe(2);
      await run();
      expect(await recordsOf(eventId)).toHaveLength(2);
    });

    it("knows a client's resend after a restart, or says that it forgets", async () => {
      const eventId = newId();
      const sent = (after: number) =>
        envelope([item('event', '{}')], { eventId, receivedAt: RECEIVED_AT + after });
      await harness.publish([sent(0)]);
      await harness.drained();
      await processor.stop();
      await run();
      await harness.publish([sent(MINUTE_MS)]);
      expect(await recordsOf(eventId)).toHaveLength(sink.forgetsResends ? 2 : 1);
    });

    it('counts each accepted envelope once by project and month, resends and dead letters included', async () => {
      const [first, second] = [newId(), newId()];
      const counted = (position: number, more: object) =>
        envelope([item('event', '{}')], { projectId: '77', month: '2026-01', position, ...more });
      const before = await deadLetters();
      await harness.publish([counted(1, { eventId: first }), counted(2, { eventId: second })]);
      await harness.publish([
        counted(3, { eventId: first }),
        counted(4, { eventId: newId(), month: '2026-02' }),
      ]);
      await harness.publish([counted(9, { items: [item('log', '{"items":[{}]}')] })], { stream: 'logs' });
      await harness.publish([counted(5, { items: [item('event', 'no JSON')] })]);
      await harness.drained();
      expect(await sink.tally('77', '2026-01')).toEqual(
        sink.keepsNoTally ? undefined : { count: 5, position: 9 },
      );
      expect(await sink.tally('77', '2026-02')).toEqual(
        sink.keepsNoTally ? undefined : { count: 1, position: 4 },
      );
      expect(await sink.tally('78', '2026-01')).toEqual(
        sink.keepsNoTally ? undefined : { count: 0, position: 0 },
      );
      expect((await deadLetters()) - before).toBe(1);
    });

    it('says what it stored, and what it left out as a resend', async () => {
      const eventId = newId();
      const metric = (result: string) =>
        harness.metric('sluice_processed_total', `{type="transaction",result="${result}"}`);
      const before = [await metric('stored'), await metric('resent')];
      const one = envelope([item('transaction', '{}')], { eventId });
      await harness.publish([one, one]);
      await harness.publish([one]);
      await harness.drained();
      const after = [await metric('stored'), await metric('resent')];
      expect(after.map((value, n) => value - (before[n] ?? 0))).toEqual([1, 2]);
    });

    it.each(['before', 'after'])('survives a processor that is killed %s a commit', async (moment) => {
      await processor.stop();
      const ids = Array.from({ length: 30 }, newId);
      const month = moment === 'before' ? '2026-03' : '2026-04';
      const env = { ...process.env, ...harness.environment(settings()) };
      // Not at the first commit: the second one happens beside something that is stored.
      const child = fork(DYING, [moment, '2'], { env, stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
      const died = once(child, 'exit');
      for (const [n, eventId] of ids.entries()) {
        const items = [item('event', '{}'), item('log', '{"items":[{},{}]}', { index: 1 })];
        await harness.publish([envelope(items, { eventId, month, position: n + 1 })]);
        // The second commit is that of the others, however late the child has come.
        if (n === 0)
          await eventually(async () => (await sink.records()).some(({ event_id }) => event_id === eventId));
      }
      expect((await died)[1]).toBe('SIGKILL');
      await run();
      await harness.drained();
      const records = (await sink.records()).filter(({ event_id }) => ids.includes(event_id));
      expect(records.filter(({ type }) => type === 'event')).toHaveLength(ids.length);
      expect(records.filter(({ type }) => type === 'log')).toHaveLength(2 * ids.length);
      expect(await sink.tally('42', month)).toEqual(
        sink.keepsNoTally ? undefined : { count: ids.length, position: ids.length },
      );
    });

    // At the end: every test reads all that is stored.
    it('stores a large OTLP request row by row, and its resend within ten minutes not again', async () => {
      const eventId = newId();
      const attributes = attributesOf({ more: 'x'.repeat(200) });
      const spans = Array.from({ length: 12_000 }, (_, n) => ({ ...SPAN, name: `${n}`, attributes }));
      const { payload, ...one } = otlpItem(
        'otlp_traces',
        encoded('otlp_traces', tracesOf(spans), 'protobuf'),
        'protobuf',
      );
      const parts = await harness.chunk(payload);
      for (const after of [0, MINUTE_MS]) {
        const entry = envelope([one], {
          eventId,
          receivedAt: RECEIVED_AT + after,
          parts: after === 0 ? parts : await harness.chunk(payload),
        });
        await harness.publish([entry], { stream: 'transactions' });
        await harness.drained();
      }
      const records = await recordsOf(eventId);
      const names = records.map((record) => (record.payload as { name: string }).name);
      expect(names.length).toBe(12_000);
      expect(new Set(names).size).toBe(12_000);
      expect(new Set(records.map(({ item_index }) => item_index)).size).toBeGreaterThan(10);
    });

    it('stores recordings that swell too far as they came, and those before them inflated', async () => {
      const eventId = newId();
      const text = `["${'x'.repeat(40 * 1024 * 1024)}"]`;
      const [gzip, deflate] = [gzipSync, deflateSync].map((pack) => pack(text, QUICKLY)) as [Buffer, Buffer];
      const packed = [gzip, gzip, deflate].map((bytes, segment) =>
        Buffer.concat([Buffer.from(`{"segment_id":${segment}}\n`), bytes]),
      );
      const items = packed.map((payload, index) => item('replay_recording', payload, { index }));
      await harness.publish([envelope(items, { eventId, projectId: '7007' })], { stream: 'replays' });
      const [first, ...rest] = (await recordsOf(eventId)) as StoredRecord[];
      const { payload } = first as unknown as { payload: { segment_id: number; recording: string[] } };
      expect([payload.segment_id, payload.recording[0]?.length]).toEqual([0, text.length - 4]);
      expect(rest.map((record) => record as unknown as Record<string, unknown>)).toMatchObject([
        { payload_encoding: 'gzip', payload_base64: packed[1]?.toString('base64') },
        { payload_encoding: 'deflate', payload_base64: packed[2]?.toString('base64') },
      ]);
      expect(rest.map((record) => record.payload)).toEqual([undefined, undefined]);
    });

    it('stores huge payloads, and many of them in one envelope', async () => {
      const eventId = newId();
      const recording = (size: number) => `[{"data":"${'x'.repeat(size)}"}]`;
      const sizes = [20 * MIB, 5, 9 * MIB, 12 * MIB];
      const items = sizes.map((size, index) => {
        const payload = Buffer.concat([
          Buffer.from(`{"segment_id":${index}}\n`),
          gzipSync(recording(size), QUICKLY),
        ]);
        return item('replay_recording', new Uint8Array(payload), { index });
      });
      await harness.publish([envelope(items, { eventId })], { stream: 'replays' });
      const records = await recordsOf(eventId);
      const found = records.map(
        ({ payload }) => payload as { segment_id: number; recording: { data: string }[] },
      );
      expect(found.map(({ segment_id }) => segment_id)).toEqual([0, 1, 2, 3]);
      expect(found.map(({ recording: [first] }) => first?.data.length)).toEqual(sizes);
    });
  });
