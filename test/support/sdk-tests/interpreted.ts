/** Requests of the SDKs for JavaScript, Python, Ruby and PHP. */
import { brotliCompressSync, gzipSync } from 'node:zlib';
import {
  bytes,
  CHECK_IN,
  container,
  EVENT,
  ID,
  json,
  LOG,
  lines,
  METRIC,
  OF_ITEMS,
  REPORT,
  refused,
  type SdkRequest,
  SPAN_V2,
  sized,
  TEXT,
  TRACE,
  withAndWithoutEnd,
} from './parts.ts';

export const JAVASCRIPT: SdkRequest[] = [
  {
    it: 'an event without length, and a sent_at that is a number in quotes',
    body: lines({ event_id: ID, sent_at: '123' }, { type: 'event' }, EVENT),
    headers: { 'content-type': 'text/plain;charset=UTF-8' },
    status: 200,
    id: ID,
    sentAt: '1970-01-01T00:02:03.000Z',
    stored: [['event', EVENT]],
  },
  {
    it: 'an event and a transaction in one envelope',
    body: lines({ event_id: ID }, { type: 'event' }, EVENT, { type: 'transaction' }, { event_id: TRACE }),
    status: 200,
    id: ID,
    stored: [
      ['event', EVENT],
      ['transaction', { event_id: TRACE }],
    ],
  },
  {
    it: 'an event without length before two attachments of bytes with length',
    body: bytes(
      lines({ event_id: ID }, { type: 'event' }, EVENT, { type: 'attachment', filename: 'a', length: 6 }),
      ...['\n', [1, 2, 3, 10, 5, 6], '\n', json({ type: 'attachment', filename: 'b', length: 6 }), '\n'],
      [7, 8, 9, 10, 11, 0xff],
    ),
    status: 200,
    id: ID,
    stored: [
      ['event', EVENT],
      ['attachment', Buffer.from([1, 2, 3, 10, 5, 6])],
      ['attachment', Buffer.from([7, 8, 9, 10, 11, 0xff])],
    ],
  },
  {
    it: 'a large attachment of zeros, which Node compresses and sends in chunks',
    body: gzipSync(
      bytes(
        lines({ event_id: ID }, { type: 'event' }, EVENT, { type: 'attachment', length: 50_000 }),
        ...['\n', new Uint8Array(50_000)],
      ),
    ),
    headers: { 'content-encoding': 'gzip', 'transfer-encoding': 'chunked' },
    status: 200,
    id: ID,
    stored: [
      ['event', EVENT],
      ['attachment', Buffer.alloc(50_000)],
    ],
  },
  refused(
    'an attachment whose length is larger than the rest of the body',
    lines({ event_id: ID }, { type: 'attachment', length: 20, filename: 'a.txt' }, 'eighteen bytes are'),
  ),
  {
    it: 'an envelope without items',
    body: json({ event_id: ID, sent_at: '123' }),
    status: 200,
    id: ID,
    empty: 'no-items',
  },
  {
    it: 'a client report alone, under a header of a DSN',
    body: lines({ dsn: 'https://public@example.com/1' }, { type: 'client_report' }, REPORT),
    status: 200,
    stored: [['client_report', REPORT]],
  },
  {
    it: 'logs of a page, with the settings of its ingest, under an empty header',
    body: lines({}, container('log', 1), {
      version: 2,
      ingest_settings: { infer_ip: 'never', infer_user_agent: 'never' },
      items: [LOG],
    }),
    status: 200,
    stored: [
      [
        'log',
        {
          version: 2,
          ingest_settings: { infer_ip: 'never', infer_user_agent: 'never' },
          items: [LOG],
        },
      ],
    ],
  },
  {
    it: 'metrics under a header of an SDK',
    body: lines(
      { sdk: { name: 'sentry.javascript.browser', version: '11.12.0' } },
      container('trace_metric', 1),
      {
        version: 2,
        items: [METRIC],
      },
    ),
    status: 200,
    stored: [['trace_metric', { version: 2, items: [METRIC] }]],
  },
  {
    it: 'streamed spans under a header of a trace',
    body: lines(
      { sent_at: '2026-11-28T06:00:00.000Z', trace: { trace_id: TRACE, public_key: 'k' } },
      container('span', 2),
      { version: 2, items: [SPAN_V2, { ...SPAN_V2, span_id: '0102030405060709' }] },
    ),
    status: 200,
    stored: [['span', { version: 2, items: [SPAN_V2, { ...SPAN_V2, span_id: '0102030405060709' }] }]],
  },
  {
    it: 'one span of the older form, which is no container',
    body: lines({ sent_at: '2026-11-28T06:00:00.000Z' }, { type: 'span' }, { ...SPAN_V2, op: 'ui.click' }),
    status: 200,
    stored: [['span', { ...SPAN_V2, op: 'ui.click' }]],
  },
  {
    it: 'a replay whose recording is plain JSON',
    body: lines(
      { event_id: ID },
      ...[{ type: 'replay_event' }, { type: 'replay_event', replay_id: ID, segment_id: 3 }],
      sized('replay_recording', '{"segment_id":3}\n[{"type":4}]'),
    ),
    status: 200,
    id: ID,
    stored: [
      ['replay_event', { type: 'replay_event', replay_id: ID, segment_id: 3 }],
      ['replay_recording', { segment_id: 3, recording: [{ type: 4 }] }],
    ],
  },
  {
    it: 'a replay whose recording is a word',
    body: lines({ event_id: ID }, { type: 'replay_event' }, EVENT, sized('replay_recording', 'payload')),
    status: 200,
    id: ID,
    stored: [['replay_event', EVENT]],
    letters: 1,
  },
  refused(
    'a replay under an id that is no UUID',
    lines(
      { event_id: 'MY_REPLAY_ID' },
      { type: 'replay_event' },
      EVENT,
      sized('replay_recording', 'payload'),
    ),
  ),
];

export const PYTHON: SdkRequest[] = [
  ...withAndWithoutEnd({
    it: 'items with lengths, of unknown types, one of them empty, with a blank in their headers',
    body: lines(
      ...[{ event_id: ID }, '{"type":"type1","length":4 }', '1234', '{"type":"type2","length":4 }', 'abcd'],
      ...['{"type":"type3","length":0}', '', '{"type":"type4","length":4 }', 'ab12'],
    ),
    status: 200,
    id: ID,
    empty: 'unstored-types',
  }),
  ...withAndWithoutEnd({
    it: 'items without lengths, one of them empty',
    body: lines(
      ...[{ event_id: ID }, { type: 'type1' }, '1234', { type: 'attachment' }, 'abcd'],
      ...[{ type: 'attachment' }, '', { type: 'attachment' }, 'ab12'],
    ),
    status: 200,
    id: ID,
    stored: ['abcd', '', 'ab12'].map((text) => ['attachment', Buffer.from(text)]),
  }),
  ...withAndWithoutEnd({
    it: 'an attachment with a byte order mark and CRLF before an event',
    body: lines(
      { event_id: ID, dsn: 'https://public:@example.com/42' },
      ...[
        { type: 'attachment', length: 10, content_type: 'text/plain', filename: 'hello.txt' },
        TEXT.toString(),
      ],
      sized('event', { message: 'hello world', level: 'error' }, { filename: 'application.log' }),
    ),
    status: 200,
    id: ID,
    stored: [
      ['attachment', TEXT],
      ['event', { message: 'hello world', level: 'error' }],
    ],
  }),
  ...withAndWithoutEnd({
    it: 'two empty attachments',
    body: lines({ event_id: ID }, sized('attachment', ''), sized('attachment', '')),
    status: 200,
    id: ID,
    stored: ['', ''].map((text) => ['attachment', Buffer.from(text)]),
  }),
  {
    it: 'a session under an empty header',
    body: lines({}, { type: 'session' }, '{"started": "2026-11-28T06:00:00Z"}'),
    status: 200,
    stored: [['session', { started: '2026-11-28T06:00:00Z' }]],
  },
  {
    it: 'a log item that is an empty object',
    body: `${lines({}, sized('log', '{}'))}\n`,
    status: 200,
    stored: [['log', {}]],
  },
  {
    it: 'two logs with all kinds of attributes',
    body: `${lines({}, sized('log', { items: [LOG, LOG] }, { item_count: 2, content_type: OF_ITEMS.log }))}\n`,
    status: 200,
    stored: [['log', { items: [LOG, LOG] }]],
  },
  {
    it: 'a transaction with a description like HTML, by gzip, under a header of a trace',
    body: gzipSync(
      `${lines(
        {
          event_id: ID,
          sent_at: '2026-11-28T06:00:00.415908Z',
          trace: { trace_id: TRACE, sample_rate: '1.0' },
        },
        sized('transaction', { event_id: ID, contexts: { trace: { description: '<Context>' } }, spans: [] }),
      )}\n`,
    ),
    headers: { 'content-encoding': 'gzip' },
    status: 200,
    id: ID,
    sentAt: '2026-11-28T06:00:00.415Z',
    stored: [['transaction', { event_id: ID, contexts: { trace: { description: '<Context>' } }, spans: [] }]],
  },
  {
    it: 'a message outside of ASCII, by br',
    body: brotliCompressSync(`${lines({ event_id: ID }, sized('event', { message: 'löl' }))}\n`),
    headers: { 'content-encoding': 'br' },
    status: 200,
    id: ID,
    stored: [['event', { message: 'löl' }]],
  },
  {
    it: 'an event with a client report behind it',
    body: `${lines({ event_id: ID }, sized('event', { type: 'error' }), sized('client_report', REPORT))}\n`,
    status: 200,
    id: ID,
    stored: [
      ['event', { type: 'error' }],
      ['client_report', REPORT],
    ],
  },
];

export const RUBY: SdkRequest[] = [
  {
    it: 'an event with a secret beside the key, and an empty Content-Encoding',
    body: lines(
      { event_id: ID, sent_at: '2026-11-28T06:00:00Z', trace: { user_id: 'Amélie', sample_rate: '0.01337' } },
      ...[{ type: 'event', content_type: 'application/json' }, EVENT],
    ),
    auth: 'Sentry sentry_version=7, sentry_timestamp=1790000000, sentry_key=KEY, sentry_client=sentry-ruby/6.6.2, sentry_secret=67890',
    headers: { 'content-encoding': '' },
    status: 200,
    id: ID,
    stored: [['event', EVENT]],
  },
  {
    it: 'a transaction with a profile, both without length, by gzip',
    body: gzipSync(
      lines(
        ...[{ event_id: ID }, { type: 'transaction', content_type: 'application/json' }, EVENT],
        ...[
          { type: 'profile', content_type: 'application/json' },
          { profile: { frames: [{ function: 'foo' }] } },
        ],
      ),
    ),
    headers: { 'content-encoding': 'gzip' },
    status: 200,
    id: ID,
    stored: [
      ['transaction', EVENT],
      ['profile', { profile: { frames: [{ function: 'foo' }] } }],
    ],
  },
  {
    it: 'a client report with a time in words',
    body: lines(...[{ event_id: ID }, { type: 'event' }, EVENT, { type: 'client_report' }], {
      timestamp: '2026-11-28T06:00:00Z',
      discarded_events: [],
    }),
    status: 200,
    id: ID,
    stored: [
      ['event', EVENT],
      ['client_report', { timestamp: '2026-11-28T06:00:00Z', discarded_events: [] }],
    ],
  },
  {
    it: 'five logs without id and length',
    body: lines({}, container('log', 5), { items: [LOG, LOG, LOG, LOG, LOG] }),
    status: 200,
    stored: [['log', { items: [LOG, LOG, LOG, LOG, LOG] }]],
  },
];

/** PHP writes a slash as `\/`. */
const php = (value: unknown): string => json(value).replaceAll('/', '\\/');
const PHP_HEADER = {
  sent_at: '2026-11-28T06:00:00Z',
  dsn: 'http://public@example.com/sentry/1',
  sdk: {
    name: 'sentry.php',
    version: '4.30.0',
    packages: [{ name: 'composer:sentry/sentry', version: '4.30.0' }],
  },
};
export const PHP: SdkRequest[] = [
  {
    it: 'an event with escaped slashes, by gzip',
    body: gzipSync(
      lines(
        php({ ...PHP_HEADER, event_id: ID }),
        ...[php({ type: 'event', content_type: 'application/json' }), php({ transaction: '/users/<name>/' })],
      ),
    ),
    headers: { 'content-encoding': 'gzip' },
    status: 200,
    id: ID,
    stored: [['event', { transaction: '/users/<name>/' }]],
  },
  {
    it: 'a transaction with a profile, and spans in a container',
    body: lines(
      php({ ...PHP_HEADER, event_id: ID }),
      ...[
        php({ type: 'transaction', content_type: 'application/json' }),
        php({ transaction: 'POST /ai/chat' }),
      ],
      ...[php({ type: 'profile', content_type: 'application/json' }), php({ platform: 'php' })],
      ...[php(container('span', 1)), php({ items: [SPAN_V2] })],
    ),
    status: 200,
    id: ID,
    stored: [
      ['transaction', { transaction: 'POST /ai/chat' }],
      ['profile', { platform: 'php' }],
      ['span', { items: [SPAN_V2] }],
    ],
  },
  {
    it: 'a check-in without duration',
    body: lines(
      php({ ...PHP_HEADER, event_id: ID }),
      ...[php({ type: 'check_in', content_type: 'application/json' }), php({ ...CHECK_IN, duration: null })],
    ),
    status: 200,
    id: ID,
    stored: [['check_in', { ...CHECK_IN, duration: null }]],
  },
  ...(
    [
      ['log', container('log', 1), { items: [LOG] }],
      ['trace_metric', container('trace_metric', 1), { items: [METRIC] }],
      ['client_report', { type: 'client_report' }, REPORT],
    ] as const
  ).map(
    ([type, header, payload]): SdkRequest => ({
      it: `a ${type} without an id`,
      body: lines(php(PHP_HEADER), php(header), php(payload)),
      status: 200,
      stored: [[type, payload]],
    }),
  ),
];
