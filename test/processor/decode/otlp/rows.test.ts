/** What an OTLP request becomes: the elements of containers, in both encodings the same. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Slices } from '../../../../src/lib/slices.ts';
import { decodeMessage } from '../../../../src/processor/decode/otlp/messages.ts';
import { partsOf } from '../../../../src/processor/decode/otlp/request.ts';
import { fromProtobuf, messageBytes, type OtlpJson, toProtobuf } from '../../../support/otlp-reference.ts';
import { rounds } from '../../../support/rounds.ts';
import {
  attributesOf,
  ENCODINGS,
  encoded,
  logs,
  logsOf,
  otlpItem,
  parts,
  SPAN,
  traces,
  tracesOf,
} from './requests.ts';

const RUNS = rounds(20_000, 40);

const elementsOf = async (
  type: 'otlp_traces' | 'otlp_logs',
  request: OtlpJson,
  encoding: 'json' | 'protobuf',
) =>
  (await parts(type, encoded(type, request, encoding), encoding)).flatMap(
    ({ text, fault }) => fault ?? (JSON.parse(text) as { items: unknown[] }).items,
  );

describe.each(ENCODINGS)('in %s', (encoding) => {
  it('a span has every field of OTLP', async () => {
    const attributes = [
      { key: 'text', value: { stringValue: 'a "ü"' } },
      { key: 'yes', value: { boolValue: true } },
      { key: 'large', value: { intValue: '9007199254740993' } },
      { key: 'least', value: { intValue: '-9223372036854775808' } },
      { key: 'whole', value: { doubleValue: 3 } },
      { key: 'nan', value: { doubleValue: 'NaN' } },
      { key: 'bytes', value: { bytesValue: '/wB7/g==' } },
      { key: 'none', value: {} },
      { key: 'list', value: { arrayValue: { values: [{ intValue: '1' }, { stringValue: 'b' }, {}] } } },
      { key: 'map', value: { kvlistValue: { values: [{ key: 'k', value: { doubleValue: -0.5 } }] } } },
      { key: 'scope.name', value: { stringValue: 'own' } },
    ];
    const span = {
      ...SPAN,
      parentSpanId: 'EEE19B7EC3C1B175',
      traceState: 'a=1',
      flags: 0x301,
      kind: 2,
      attributes,
      droppedAttributesCount: 1,
      droppedEventsCount: 2,
      droppedLinksCount: 3,
      events: [
        {
          timeUnixNano: '1',
          name: 'exception',
          attributes: attributesOf({ 'exception.type': 'E' }),
          droppedAttributesCount: 4,
        },
      ],
      links: [
        {
          traceId: '5b8efff798038103d269b633813fc60d',
          spanId: 'eee19b7ec3c1b176',
          traceState: 'b=2',
          flags: 1,
          attributes: attributesOf({ a: 'b' }),
          droppedAttributesCount: 5,
        },
      ],
      status: { code: 2, message: 'no' },
    };
    const resource = { attributes: attributesOf({ 'service.name': 'shop' }), droppedAttributesCount: 6 };
    const scope = { name: 'tracer', version: '1.0', attributes: attributesOf({ x: 'y' }) };
    const request = tracesOf([span], { resource, scope });
    const [container] = await parts('otlp_traces', encoded('otlp_traces', request, encoding), encoding);
    expect(container).toMatchObject({ index: 0, type: 'span' });
    expect(container?.text).toBe(
      `{"version":2,"items":[{"trace_id":"5b8efff798038103d269b633813fc60c","span_id":"eee19b7ec3c1b174",\
"parent_span_id":"eee19b7ec3c1b175","name":"GET /users","status":"error","is_segment":true,"kind":"server",\
"start_timestamp":1764000000.123456789,"end_timestamp":1764000001.000000001,"trace_state":"a=1","flags":769,"is_remote":true,\
"dropped_attributes_count":1,"dropped_events_count":2,"dropped_links_count":3,\
"events":[{"timestamp":0.000000001,"name":"exception","dropped_attributes_count":4,\
"attributes":{"exception.type":{"value":"E","type":"string"}}}],\
"links":[{"trace_id":"5b8efff798038103d269b633813fc60d","span_id":"eee19b7ec3c1b176","sampled":true,"trace_state":"b=2","flags":1,\
"dropped_attributes_count":5,"attributes":{"a":{"value":"b","type":"string"}}}],\
"attributes":{"text":{"value":"a \\"ü\\"","type":"string"},"yes":{"value":true,"type":"boolean"},\
"large":{"value":9007199254740993,"type":"integer"},"least":{"value":-9223372036854775808,"type":"integer"},\
"whole":{"value":3.0,"type":"double"},"nan":{"value":"NaN","type":"double"},"bytes":{"value":"/wB7/g==","type":"bytes"},\
"none":{"value":null,"type":"null"},"list":{"value":[1,"b",null],"type":"array"},"map":{"value":{"k":-0.5},"type":"kvlist"},\
"scope.name":{"value":"own","type":"string"},"sentry.status.message":{"value":"no","type":"string"},\
"resource.service.name":{"value":"shop","type":"string"},"resource.dropped_attributes_count":{"value":6,"type":"integer"},\
"scope.x":{"value":"y","type":"string"},"scope.version":{"value":"1.0","type":"string"}}}]}`,
    );
  });

  it.each([
    [{}, { status: 'ok' }, undefined],
    [{ status: { code: 0, message: 'x' } }, { status: 'ok' }, { 'sentry.status.message': 'x' }],
    [{ status: { code: 1 } }, { status: 'ok' }, { 'otel.status_code': 'OK' }],
    [{ status: { code: 2 } }, { status: 'error' }, undefined],
    [{ status: { code: 7 } }, { status: 'error' }, { 'otel.status_code': '7' }],
    [{ kind: 0 }, { kind: undefined }, undefined],
    [{ kind: 5 }, { kind: 'consumer' }, undefined],
    [{ kind: 9 }, { kind: 9 }, undefined],
    [{ parentSpanId: '' }, { is_segment: true, parent_span_id: undefined }, undefined],
    [{ parentSpanId: '0000000000000000' }, { is_segment: true, parent_span_id: undefined }, undefined],
    [{ parentSpanId: 'eee19b7ec3c1b175' }, { is_segment: false, is_remote: undefined }, undefined],
    [{ parentSpanId: 'eee19b7ec3c1b175', flags: 0x100 }, { is_segment: false, is_remote: false }, undefined],
    [{ startTimeUnixNano: '0' }, { start_timestamp: undefined }, undefined],
    [{ endTimeUnixNano: '18446744073709551615' }, { end_timestamp: 18446744073.709553 }, undefined],
  ])('a span with %j', async (more, expected, attributes) => {
    const [found] = (await elementsOf(
      'otlp_traces',
      tracesOf([{ ...SPAN, ...more }]),
      encoding,
    )) as OtlpJson[];
    expect(Object.fromEntries(Object.keys(expected).map((name) => [name, found?.[name]]))).toEqual(expected);
    const own = Object.entries(attributes ?? {}).map(([name, value]) => [name, { value, type: 'string' }]);
    expect(found?.attributes).toEqual(Object.fromEntries(own));
  });

  it('a log has every field of OTLP', async () => {
    const log = {
      timeUnixNano: '1764000000123456789',
      observedTimeUnixNano: '1764000000123456790',
      severityNumber: 18,
      severityText: 'Error',
      body: { stringValue: 'a "b"' },
      attributes: attributesOf({ x: 'y' }),
      droppedAttributesCount: 1,
      flags: 1,
      traceId: '5b8efff798038103d269b633813fc60c',
      spanId: 'eee19b7ec3c1b174',
      eventName: 'paid',
    };
    const scope = { attributes: attributesOf({ x: 'z' }) };
    const [container] = await parts(
      'otlp_logs',
      encoded('otlp_logs', logsOf([log], { scope }), encoding),
      encoding,
    );
    expect(container).toMatchObject({ index: 0, type: 'log' });
    expect(container?.text).toBe(
      `{"version":2,"items":[{"timestamp":1764000000.123456789,"trace_id":"5b8efff798038103d269b633813fc60c",\
"span_id":"eee19b7ec3c1b174","level":"error","severity_number":18,"severity_text":"Error","body":"a \\"b\\"",\
"observed_timestamp":1764000000.123456790,"event_name":"paid","flags":1,"dropped_attributes_count":1,\
"attributes":{"x":{"value":"y","type":"string"},"scope.x":{"value":"z","type":"string"}}}]}`,
    );
  });

  it.each([
    [{}, { level: 'info' }],
    [{ severityNumber: 1 }, { level: 'trace', severity_number: 1 }],
    [{ severityNumber: 8 }, { level: 'debug', severity_number: 8 }],
    [{ severityNumber: 13 }, { level: 'warn', severity_number: 13 }],
    [{ severityNumber: 24 }, { level: 'fatal', severity_number: 24 }],
    [
      { severityNumber: 25, severityText: 'WARNING' },
      { level: 'warn', severity_number: 25, severity_text: 'WARNING' },
    ],
    [{ severityText: 'Error' }, { level: 'error', severity_text: 'Error' }],
    [{ severityText: 'odd' }, { level: 'info', severity_text: 'odd' }],
    [{ observedTimeUnixNano: '1500000000' }, { level: 'info', timestamp: 1.5, observed_timestamp: 1.5 }],
    [{ body: {} }, { level: 'info' }],
    [{ body: { boolValue: false } }, { level: 'info', body: 'false', body_type: 'boolean' }],
    [
      { body: { intValue: '9007199254740993' } },
      { level: 'info', body: '9007199254740993', body_type: 'integer' },
    ],
    [{ body: { doubleValue: 1e300 } }, { level: 'info', body: '1e+300', body_type: 'double' }],
    [{ body: { bytesValue: '/w==' } }, { level: 'info', body: '"/w=="', body_type: 'bytes' }],
    [
      { body: { arrayValue: { values: [{ stringValue: 'a' }] } } },
      { level: 'info', body: '["a"]', body_type: 'array' },
    ],
    [
      { body: { kvlistValue: { values: [{ key: 'a', value: { intValue: '1' } }] } } },
      { level: 'info', body: '{"a":1}', body_type: 'kvlist' },
    ],
  ])('a log with %j', async (log, expected) => {
    expect(await elementsOf('otlp_logs', logsOf([log]), encoding)).toEqual([{ ...expected, attributes: {} }]);
  });

  it('a text with bytes that are no UTF-8 has U+FFFD in their place', async () => {
    const payload = encoded('otlp_logs', logsOf([{ body: { stringValue: 'a??b' } }]), encoding);
    payload.set([0xff, 0xc3], payload.indexOf('??'));
    const [found] = await parts('otlp_logs', payload, encoding);
    expect(found?.text).toContain('"body":"a\ufffd\ufffdb"');
  });

  it.each([
    [{ traceId: 'aabb' }, 'traceId is no id of 16 bytes'],
    [{ traceId: '' }, 'it has no traceId'],
    [{ traceId: '0'.repeat(32) }, 'it has no traceId'],
    [{ spanId: undefined }, 'it has no spanId'],
    [{ parentSpanId: 'aa' }, 'parentSpanId is no id of 8 bytes'],
    [{ links: [{ traceId: 'aa' }] }, 'traceId of a link is no id of 16 bytes'],
    [{ events: Array(20_001).fill({}) }, 'it has too many values'],
    [{ name: 'x'.repeat(4 * 1024 * 1024) }, 'it has more than 4194304 bytes'],
  ])('a span that cannot be stored is named, and all others are stored: %#', async (more, reason) => {
    const names = (found: unknown[]): unknown[] => found.map((one) => (one as OtlpJson).name);
    const request = tracesOf([SPAN, { ...SPAN, ...more }, { ...SPAN, name: 'third' }]);
    const payload = encoded('otlp_traces', request, encoding);
    const [container, letter, ...rest] = await parts('otlp_traces', payload, encoding);
    expect(names((JSON.parse(container?.text ?? '') as { items: unknown[] }).items)).toEqual([
      'GET /users',
      'third',
    ]);
    expect([letter?.type, letter?.fault, rest]).toEqual([
      'otlp_traces',
      `OTLP: 1 of 3 spans cannot be stored; the first: ${reason}`,
      [],
    ]);
    const [again] = await parts('otlp_traces', letter?.payload as Uint8Array, encoding);
    expect(again?.fault).toBe(`OTLP: 1 of 1 spans cannot be stored; the first: ${reason}`);
  });
});

describe('JSON', () => {
  const spanOf = async (text: string): Promise<unknown> => {
    const payload = Buffer.from(`{"resourceSpans":[{"scopeSpans":[{"spans":[${text}]}]}]}`);
    const [found] = await parts('otlp_traces', payload, 'json');
    return (
      found?.fault?.split('first: ')[1] ?? (JSON.parse(found?.text ?? '') as { items: unknown[] }).items[0]
    );
  };
  const IDS = '"traceId":"5B8EFFF798038103D269B633813FC60C","spanId":"EEE19B7EC3C1B174"';
  const NESTED = `${'{"arrayValue":{"values":['.repeat(102)}${']}}'.repeat(102)}`;
  const PLAIN = {
    trace_id: '5b8efff798038103d269b633813fc60c',
    span_id: 'eee19b7ec3c1b174',
    name: '',
    status: 'ok',
    is_segment: true,
    attributes: {},
  };

  it.each([
    ['unknown members', '"x":{"y":[1,{}]},"resource":1', {}],
    [
      'null for anything',
      '"name":null,"attributes":null,"status":null,"kind":null,"startTimeUnixNano":null',
      {},
    ],
    [
      'enums by name',
      '"kind":"SPAN_KIND_CLIENT","status":{"code":"STATUS_CODE_ERROR"}',
      { kind: 'client', status: 'error' },
    ],
    ['a name that repeats', '"name":"a","name":"b"', { name: 'b' }],
    ['a name with escapes', '"n\\u0061me":"b"', { name: 'b' }],
  ])('may have %s', async (_what, members, expected) => {
    expect(await spanOf(`{${IDS},${members}}`)).toEqual({ ...PLAIN, ...expected });
  });

  it('keeps all digits of integers of 64 bits, as texts and as numbers', async () => {
    const attributes =
      '"attributes":[{"key":"n: 1234567890123456789","value":{"intValue": -9007199254740993 }}]';
    const payload = Buffer.from(
      `{"resourceSpans":[{"scopeSpans":[{"spans":[{${IDS},"startTimeUnixNano":1764000000123456789,${attributes}}]}]}]}`,
    );
    const [found] = await parts('otlp_traces', payload, 'json');
    expect(found?.text).toContain('"start_timestamp":1764000000.123456789');
    expect(found?.text).toContain('"n: 1234567890123456789":{"value":-9007199254740993,"type":"integer"}');
  });

  it.each([
    ['7', 'it is no object'],
    [`{${IDS},"name":7}`, 'name is no text'],
    [`{${IDS},"kind":"SERVER"}`, 'kind has an unknown name'],
    [`{${IDS},"kind":1.5}`, 'kind is no integer'],
    [`{${IDS},"flags":-1}`, 'flags is out of range'],
    [`{${IDS},"startTimeUnixNano":"x"}`, 'startTimeUnixNano is no integer'],
    [`{${IDS},"startTimeUnixNano":"18446744073709551616"}`, 'startTimeUnixNano is out of range'],
    [`{${IDS},"attributes":{}}`, 'attributes is no list'],
    [
      `{${IDS},"attributes":[{"key":"a","value":{"intValue":"9223372036854775808"}}]}`,
      'intValue is out of range',
    ],
    [`{${IDS},"attributes":[{"key":"a","value":{"doubleValue":"x"}}]}`, 'doubleValue is no number'],
    [`{${IDS},"attributes":[{"key":"a","value":{"boolValue":"true"}}]}`, 'boolValue is no boolean'],
    [`{${IDS},"attributes":[{"key":"a","value":{"bytesValue":"?"}}]}`, 'bytesValue is no base64'],
    [`{${IDS},"attributes":[{"key":"a","value":${NESTED}}]}`, 'its values are nested too deep'],
    ['{"traceId":"W47/95gDgQPSabYzgT/GDA==","spanId":"7uGbfsPBsXQ="}', 'traceId is no id of 16 bytes'],
  ])('is named as a fault: %#', async (text, reason) => {
    expect(await spanOf(text)).toBe(reason);
  });

  it.each(['{"name":nul}', '{"a":[1,]}', '{"a" "b"}', '{"n":"\\x"}', '{"a":{"b":1]}', 'x', '{"a":"\u0001"}'])(
    'that is broken in one record costs that record alone: %s',
    async (broken) => {
      const payload = Buffer.from(
        `{"resourceSpans":[{"scopeSpans":[{"spans":[{${IDS},"name":"a\\\\"},${broken},{${IDS},"name":"\\"]"}]}]}]}`,
      );
      const [container, letter] = await parts('otlp_traces', payload, 'json');
      expect(JSON.parse(container?.text ?? '')).toMatchObject({ items: [{ name: 'a\\' }, { name: '"]' }] });
      expect(letter?.fault).toBe('OTLP: 1 of 3 spans cannot be stored; the first: it is no JSON');
      expect(letter?.text).toBe(`{"resourceSpans":[{"scopeSpans":[{"spans":[${broken}]}]}]}`);
    },
  );

  it.each([
    ['', 'OTLP: the request has no such structure'],
    ['{"resourceSpans":', 'OTLP: the request has no such structure'],
    ['{"x":', 'OTLP: the request is no JSON'],
    ['{"x":{"y":1}', 'OTLP: the request is no JSON'],
    ['{"x":1}}', 'OTLP: the request is no JSON'],
    ['{"x" 1}', 'OTLP: the request is no JSON'],
    ['{x:1}', 'OTLP: the request is no JSON'],
    ['{"x":"y}', 'OTLP: the request is no JSON'],
    ['{"resourceSpans":[{"scopeSpans":[{"spans":[{},]}]}]}', 'OTLP: the request is no JSON'],
    ['{"resourceSpans":[{"scopeSpans":[{"spans":[{}', 'OTLP: the request is no JSON'],
    ['[]', 'OTLP: the request has no such structure'],
    ['{"resourceSpans":{}}', 'OTLP: the request has no such structure'],
    ['{"resourceSpans":[{"scopeSpans":[1]}]}', 'OTLP: the request has no such structure'],
  ])('%s is a fault of the whole request', async (text, fault) => {
    expect(await parts('otlp_traces', Buffer.from(text), 'json')).toMatchObject([
      { type: 'otlp_traces', text, fault },
    ]);
  });
});

describe.each([
  ['otlp_traces', traces],
  ['otlp_logs', logs],
] as const)('random %s', (type, requests) => {
  it('become the same items in both encodings', async () => {
    await fc.assert(
      fc.asyncProperty(requests, async (request) => {
        const [json, protobuf] = await Promise.all(
          ENCODINGS.map((encoding) => parts(type, encoded(type, request, encoding), encoding)),
        );
        expect(protobuf).toEqual(json);
        for (const { text, fault } of json ?? []) {
          expect(fault).toBeUndefined();
          JSON.parse(text);
        }
      }),
      { numRuns: RUNS },
    );
  });
});

describe('metrics', () => {
  const point = { timeUnixNano: '5', startTimeUnixNano: '4', attributes: attributesOf({ a: 'b' }), flags: 1 };
  const exemplar = {
    timeUnixNano: '6',
    asInt: '-7',
    spanId: 'eee19b7ec3c1b174',
    traceId: '5b8efff798038103d269b633813fc60c',
  };
  const ofExponential = {
    ...point,
    count: '9',
    sum: -0.5,
    scale: -3,
    zeroCount: '2',
    positive: { offset: -4, bucketCounts: ['1', '18446744073709551615'] },
    zeroThreshold: 0.25,
  };
  const metrics = [
    {
      name: 'g',
      unit: 's',
      description: 'd',
      gauge: { dataPoints: [{ ...point, asInt: '-9007199254740993', exemplars: [exemplar] }] },
    },
    {
      name: 's',
      sum: { aggregationTemporality: 2, isMonotonic: true, dataPoints: [{ ...point, asDouble: 'NaN' }] },
    },
    {
      name: 'h',
      histogram: {
        aggregationTemporality: 1,
        dataPoints: [
          { ...point, count: '3', sum: 0, bucketCounts: ['1', '2'], explicitBounds: [0.5], min: 1, max: 2 },
        ],
      },
    },
    { name: 'e', exponentialHistogram: { aggregationTemporality: 1, dataPoints: [ofExponential] } },
    {
      name: 'q',
      summary: {
        dataPoints: [{ ...point, count: '1', sum: 2, quantileValues: [{ quantile: 0.5, value: 7 }] }],
      },
      metadata: attributesOf({ m: 'n' }),
    },
  ];
  const request = {
    resourceMetrics: [
      {
        resource: { attributes: attributesOf({ 'service.name': 'a' }) },
        schemaUrl: 'https://r',
        scopeMetrics: [
          { scope: { name: 's' }, metrics, schemaUrl: 'https://s' },
          { scope: {}, metrics: metrics.slice(0, 1) },
        ],
      },
      { resource: {}, scopeMetrics: [{ scope: {}, metrics: metrics.slice(1, 2) }] },
    ],
  };

  it('become one item in the form of OTLP/JSON', async () => {
    const [found, ...rest] = await parts('otlp_metrics', toProtobuf('otlp_metrics', request), 'protobuf');
    expect([found?.type, found?.index, rest]).toEqual(['otlp_metrics', 0, []]);
    expect(JSON.parse(found?.text ?? '')).toEqual(request);
  });

  it('can be read again in the form in which they are stored, so a letter of them can be replayed', async () => {
    const item = otlpItem('otlp_metrics', toProtobuf('otlp_metrics', request), 'protobuf');
    const again: unknown[] = [];
    for await (const { item: stored } of partsOf(item, new Slices()))
      for await (const { item: replayed, fault } of partsOf(stored, new Slices()))
        again.push(fault ?? JSON.parse(Buffer.from(replayed.payload).toString()));
    expect(again).toEqual([request]);
  });

  it('stay as they came when they came as JSON', async () => {
    const payload = Buffer.from(JSON.stringify(request, null, 2));
    expect((await parts('otlp_metrics', payload, 'json'))[0]?.text).toBe(payload.toString());
  });
});

it('each message is decoded as the reference decodes it, its fields in any order and number', () => {
  fc.assert(
    fc.property(traces, (request) => {
      for (const span of spansOf(request)) {
        const bytes = messageBytes('Span', span as OtlpJson);
        const twice = Buffer.concat([bytes, bytes]);
        expect(decodeMessage('Span', bytes)).toEqual(fromProtobuf('Span', bytes));
        expect(decodeMessage('Span', twice)).toEqual(fromProtobuf('Span', twice));
      }
    }),
    { numRuns: RUNS },
  );
});

const spansOf = (request: OtlpJson): unknown[] =>
  (request.resourceSpans as { scopeSpans: { spans: unknown[] }[] }[]).flatMap(({ scopeSpans }) =>
    scopeSpans.flatMap(({ spans }) => spans),
  );
