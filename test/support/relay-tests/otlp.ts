/** OTLP in the form of Relay's tests (docs/relay-tests.md names the files), and what docs/otlp.md says of it. */
import { messageBytes, type OtlpJson } from '../otlp-reference.ts';
import { json } from '../sdk-tests/parts.ts';
import type { RelayRequest, Stored } from './parts.ts';

const [TRACE_ID, SPAN_ID, PARENT_ID] = [
  '89143B0763095BD9C9955E8175D1FB23',
  'E342ABB1214CA181',
  '0C7A7DEA069BF5A6',
];
const IDS = { trace_id: TRACE_ID.toLowerCase(), span_id: SPAN_ID.toLowerCase() };
const SPAN = {
  traceId: TRACE_ID,
  spanId: SPAN_ID,
  startTimeUnixNano: '1697620454980000000',
  endTimeUnixNano: '1697620454980500000',
};
const TIMES = { start_timestamp: 1697620454.98, end_timestamp: 1697620454.9805 };
const LOG = { timeUnixNano: '1544712660300000000', traceId: TRACE_ID, spanId: SPAN_ID };
const LOG_ROW = { timestamp: 1544712660.3, ...IDS };

const text = (value: string): object => ({ value, type: 'string' });
type Outer = { resource?: object; scope?: object };
const tracesOf = (spans: readonly object[], { resource, scope }: Outer = {}): OtlpJson => ({
  resourceSpans: [{ ...(resource && { resource }), scopeSpans: [{ ...(scope && { scope }), spans }] }],
});
const logsOf = (logRecords: readonly object[], { resource, scope }: Outer = {}): OtlpJson => ({
  resourceLogs: [{ ...(resource && { resource }), scopeLogs: [{ ...(scope && { scope }), logRecords }] }],
});

type Rows = readonly object[];
const stored = (type: string, items: Rows): Stored[] =>
  items.length === 0 ? [] : [[type, { version: 2, items }]];
const inJson = (
  path: 'traces' | 'logs',
  request: OtlpJson,
): Pick<RelayRequest, 'path' | 'headers' | 'body'> => ({
  path: `integration/otlp/v1/${path}`,
  headers: { 'content-type': 'application/json' },
  body: json(request),
});
const traces = (from: string, it: string, request: OtlpJson, rows: Rows, more = {}): RelayRequest => ({
  from,
  it,
  ...inJson('traces', request),
  status: 200,
  stored: stored('span', rows),
  ...more,
});
const logs = (from: string, it: string, request: OtlpJson, rows: Rows, more = {}): RelayRequest => ({
  from,
  it,
  ...inJson('logs', request),
  status: 200,
  stored: stored('log', rows),
  ...more,
});
/** A span with no parent, with further fields of the request and of the row. */
const span = (from: string, it: string, fields: object, row: object, more = {}): RelayRequest =>
  traces(
    `otel_to_sentry_v2.rs: ${from}`,
    it,
    tracesOf([{ ...SPAN, name: 'query', ...fields }]),
    [{ ...IDS, name: 'query', status: 'ok', is_segment: true, ...TIMES, attributes: {}, ...row }],
    more,
  );

const DIFFERS = { differs: true };
const LINK = { traceId: TRACE_ID, spanId: PARENT_ID, flags: 1 };
const LINK_ROW = { trace_id: IDS.trace_id, span_id: PARENT_ID.toLowerCase() };
const QUERY = 'SELECT "a"."b" FROM "a" WHERE "a"."b" = %s';

const SPANS: readonly RelayRequest[] = [
  {
    ...traces(
      'spansv2_otel.py: span_ingestion',
      'a span in protobuf, with a link, a resource and a scope',
      {},
      [
        {
          ...IDS,
          parent_span_id: PARENT_ID.toLowerCase(),
          name: 'a span',
          status: 'ok',
          is_segment: true,
          kind: 'server',
          ...TIMES,
          flags: 768,
          is_remote: true,
          links: [{ ...LINK_ROW, sampled: false, attributes: { of_link: text('b') } }],
          attributes: {
            'ui.component_name': text('Menu'),
            'resource.company': text('Shop'),
            'scope.name': text('tracer'),
            'scope.version': text('13.37'),
          },
        },
      ],
    ),
    headers: { 'content-type': 'application/x-protobuf' },
    body: messageBytes(
      'Traces',
      tracesOf(
        [
          {
            ...SPAN,
            parentSpanId: PARENT_ID,
            name: 'a span',
            flags: 768,
            kind: 2,
            attributes: [{ key: 'ui.component_name', value: { stringValue: 'Menu' } }],
            links: [{ ...LINK, flags: 0, attributes: [{ key: 'of_link', value: { stringValue: 'b' } }] }],
          },
        ],
        {
          resource: { attributes: [{ key: 'company', value: { stringValue: 'Shop' } }] },
          scope: { name: 'tracer', version: '13.37' },
        },
      ),
    ),
    differs: true,
  },
  traces(
    'spans.py: span_ingestion (the requests of OTLP)',
    'a span in JSON without a parent',
    tracesOf([
      {
        ...SPAN,
        name: 'a span',
        attributes: [{ key: 'sentry.exclusive_time_nano', value: { intValue: '500' } }],
      },
    ]),
    [
      {
        ...IDS,
        name: 'a span',
        status: 'ok',
        is_segment: true,
        ...TIMES,
        attributes: { 'sentry.exclusive_time_nano': { value: 500, type: 'integer' } },
      },
    ],
  ),
  span(
    'parse_span, with_exclusive_time_nano_attribute',
    'a status with a message, of no code, and attributes of three types',
    {
      parentSpanId: PARENT_ID,
      kind: 1,
      status: { code: 0, message: 'test' },
      events: [],
      links: [],
      droppedLinksCount: 0,
      attributes: [
        { key: 'sentry.environment', value: { stringValue: 'test' } },
        { key: 'sentry.parentSampled', value: { boolValue: true } },
        { key: 'sentry.exclusive_time_nano', value: { intValue: '3200000000' } },
      ],
    },
    {
      parent_span_id: PARENT_ID.toLowerCase(),
      is_segment: false,
      kind: 'internal',
      attributes: {
        'sentry.environment': text('test'),
        'sentry.parentSampled': { value: true, type: 'boolean' },
        'sentry.exclusive_time_nano': { value: 3_200_000_000, type: 'integer' },
        'sentry.status.message': text('test'),
      },
    },
  ),
  span(
    'parse_span_with_db_attributes, db_attributes_and_description',
    'a query of a database',
    {
      kind: 3,
      attributes: [
        { key: 'db.statement', value: { stringValue: QUERY } },
        { key: 'sentry.description', value: { stringValue: 'a view' } },
      ],
    },
    { kind: 'client', attributes: { 'db.statement': text(QUERY), 'sentry.description': text('a view') } },
  ),
  span(
    'parse_span_with_http_attributes',
    'a request of HTTP',
    { kind: 3, attributes: [{ key: 'http.request.method', value: { stringValue: 'GET' } }] },
    { kind: 'client', attributes: { 'http.request.method': text('GET') } },
  ),
  span(
    'parse_sentry_attributes',
    'an attribute that is a list of objects',
    {
      attributes: [
        { key: 'sentry.op', value: { stringValue: 'myop' } },
        {
          key: 'sentry.metrics_summary.some_metric',
          value: {
            arrayValue: {
              values: [{ kvlistValue: { values: [{ key: 'min', value: { doubleValue: 1 } }] } }],
            },
          },
        },
      ],
    },
    {
      attributes: {
        'sentry.op': text('myop'),
        'sentry.metrics_summary.some_metric': { value: [{ min: 1 }], type: 'array' },
      },
    },
    DIFFERS,
  ),
  span('parse_span_is_remote', 'flags of a remote parent', { flags: 768 }, { flags: 768, is_remote: true }),
  span(
    'parse_span_is_not_remote',
    'flags of a local parent',
    { flags: 256 },
    { flags: 256, is_remote: false },
  ),
  span('extract_span_kind', 'a kind', { kind: 3 }, { kind: 'client' }),
  span(
    'parse_link',
    'a link with attributes of four types',
    {
      links: [
        {
          ...LINK,
          attributes: [
            { key: 'text', value: { stringValue: 'a' } },
            { key: 'yes', value: { boolValue: true } },
            { key: 'whole', value: { intValue: '123' } },
            { key: 'half', value: { doubleValue: 1.5 } },
          ],
        },
      ],
    },
    {
      links: [
        {
          ...LINK_ROW,
          sampled: true,
          flags: 1,
          attributes: {
            text: text('a'),
            yes: { value: true, type: 'boolean' },
            whole: { value: 123, type: 'integer' },
            half: { value: 1.5, type: 'double' },
          },
        },
      ],
    },
  ),
  traces(
    'otel_to_sentry_v2.rs: parse_span_error_status',
    'an error, without a name and times',
    tracesOf([{ traceId: TRACE_ID, spanId: SPAN_ID, status: { code: 2, message: 'no' } }]),
    [
      {
        ...IDS,
        name: '',
        status: 'error',
        is_segment: true,
        attributes: { 'sentry.status.message': text('no') },
      },
    ],
    DIFFERS,
  ),
];

const VALUES = [
  { key: 'text', value: { stringValue: 'a' } },
  { key: 'yes', value: { boolValue: true } },
  { key: 'whole', value: { intValue: '42' } },
  { key: 'half', value: { doubleValue: 3.5 } },
];
const VALUE_ROWS = {
  text: text('a'),
  yes: { value: true, type: 'boolean' },
  whole: { value: 42, type: 'integer' },
  half: { value: 3.5, type: 'double' },
};
const LIST = { arrayValue: { values: [{ stringValue: 'first' }, { intValue: '42' }] } };
const MAP = { kvlistValue: { values: [{ key: 'inner', value: { stringValue: 'nested' } }] } };

const LOGS: readonly RelayRequest[] = [
  logs(
    'otlp_logs.py: otlp_logs_conversion; otel_to_sentry.rs: parse_otel_log',
    'a log with every type of attribute, a resource and a scope',
    logsOf(
      [
        {
          ...LOG,
          observedTimeUnixNano: LOG.timeUnixNano,
          severityNumber: 10,
          severityText: 'Information',
          body: { stringValue: 'an example' },
          attributes: [...VALUES, { key: 'list', value: LIST }, { key: 'map', value: MAP }],
        },
      ],
      {
        resource: { attributes: [{ key: 'service.name', value: { stringValue: 'shop' } }] },
        scope: { name: 'logger' },
      },
    ),
    [
      {
        ...LOG_ROW,
        observed_timestamp: LOG_ROW.timestamp,
        level: 'info',
        severity_number: 10,
        severity_text: 'Information',
        body: 'an example',
        attributes: {
          ...VALUE_ROWS,
          list: { value: ['first', 42], type: 'array' },
          map: { value: { inner: 'nested' }, type: 'kvlist' },
          'resource.service.name': text('shop'),
          'scope.name': text('logger'),
        },
      },
    ],
    DIFFERS,
  ),
  logs(
    'otlp_logs.py: otlp_logs_multiple_records',
    'two logs of two levels',
    logsOf([
      { ...LOG, severityNumber: 18, severityText: 'Error', body: { stringValue: 'first' } },
      { ...LOG, severityNumber: 6, severityText: 'Debug', body: { stringValue: 'second' } },
    ]),
    [
      {
        ...LOG_ROW,
        level: 'error',
        severity_number: 18,
        severity_text: 'Error',
        body: 'first',
        attributes: {},
      },
      {
        ...LOG_ROW,
        level: 'debug',
        severity_number: 6,
        severity_text: 'Debug',
        body: 'second',
        attributes: {},
      },
    ],
  ),
  logs(
    'otel_to_sentry.rs: parse_otel_log_severity_mapping',
    'each level',
    logsOf(
      [
        [1, 'trace'],
        [5, 'debug'],
        [9, 'info'],
        [13, 'warn'],
        [17, 'error'],
        [21, 'fatal'],
        [0, 'warning'],
        [0, 'odd'],
      ].map(([severityNumber, severityText]) => ({ ...LOG, severityNumber, severityText })),
    ),
    [
      ...['trace', 'debug', 'info', 'warn', 'error', 'fatal'].map((level, at) => ({
        ...LOG_ROW,
        level,
        severity_number: 4 * at + 1,
        severity_text: level,
        attributes: {},
      })),
      { ...LOG_ROW, level: 'warn', severity_text: 'warning', attributes: {} },
      { ...LOG_ROW, level: 'info', severity_text: 'odd', attributes: {} },
    ],
  ),
  logs(
    'otel_to_sentry.rs: parse_otel_log_with_db_attributes',
    'a query of a database',
    logsOf([{ ...LOG, attributes: [{ key: 'db.statement', value: { stringValue: QUERY } }] }]),
    [{ ...LOG_ROW, level: 'info', attributes: { 'db.statement': text(QUERY) } }],
  ),
  logs(
    'otel_to_sentry.rs: parse_otel_log_without_span_and_trace_ids, with_empty_trace_ids',
    'no ids, and empty ones',
    logsOf([
      { timeUnixNano: LOG.timeUnixNano, severityNumber: 10 },
      { timeUnixNano: LOG.timeUnixNano, severityNumber: 17, traceId: '', spanId: '' },
    ]),
    [
      { timestamp: LOG_ROW.timestamp, level: 'info', severity_number: 10, attributes: {} },
      { timestamp: LOG_ROW.timestamp, level: 'error', severity_number: 17, attributes: {} },
    ],
    DIFFERS,
  ),
  logs(
    'otel_to_sentry.rs: parse_otel_log_with_invalid_trace_and_span_ids',
    'a log with ids of the wrong length beside a good one',
    logsOf([{ ...LOG, traceId: 'abc123', spanId: 'def456' }, LOG]),
    [{ ...LOG_ROW, level: 'info', attributes: {} }],
    { ...DIFFERS, letters: 1 },
  ),
  logs(
    'relay-otel: string_value, bool_value, int_value, double_value',
    'values of four types',
    logsOf([{ ...LOG, attributes: VALUES }]),
    [{ ...LOG_ROW, level: 'info', attributes: VALUE_ROWS }],
  ),
  logs(
    'relay-otel: bytes_value, array_value, kvlist_value',
    'bytes, a list and an object',
    logsOf([
      {
        ...LOG,
        attributes: [
          { key: 'bytes', value: { bytesValue: 'aGVsbG8=' } },
          { key: 'list', value: LIST },
          { key: 'map', value: MAP },
        ],
      },
    ]),
    [
      {
        ...LOG_ROW,
        level: 'info',
        attributes: {
          bytes: { value: 'aGVsbG8=', type: 'bytes' },
          list: { value: ['first', 42], type: 'array' },
          map: { value: { inner: 'nested' }, type: 'kvlist' },
        },
      },
    ],
    DIFFERS,
  ),
  logs(
    'relay-otel: scope_attributes',
    'a scope with an attribute that has the name of its name',
    logsOf([LOG], {
      resource: { attributes: [{ key: 'the.answer', value: { stringValue: 'foobar' } }] },
      scope: {
        name: 'the scope',
        version: '123.42',
        attributes: [
          { key: 'the.answer', value: { intValue: '42' } },
          { key: 'name', value: { stringValue: 'oops' } },
        ],
      },
    }),
    [
      {
        ...LOG_ROW,
        level: 'info',
        attributes: {
          'resource.the.answer': text('foobar'),
          'scope.the.answer': { value: 42, type: 'integer' },
          'scope.name': text('the scope'),
          'scope.version': text('123.42'),
        },
      },
    ],
    DIFFERS,
  ),
];

export const OTLP: readonly RelayRequest[] = [...SPANS, ...LOGS];
