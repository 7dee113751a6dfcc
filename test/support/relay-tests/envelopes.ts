/** Envelopes in the form of Relay's tests (docs/relay-tests.md names the files). The values are our own. */
import { gzipSync } from 'node:zlib';
import {
  AT,
  bytes,
  CHECK_IN,
  container,
  DASHED,
  ID,
  json,
  LOG,
  lines,
  METRIC,
  OF_ITEMS,
  REPORT,
  SESSION,
  SPAN,
  SPAN_V2,
  sized,
  TRACE,
} from '../sdk-tests/parts.ts';
import { envelope, type RelayRequest, type Stored } from './parts.ts';

const MESSAGE = { message: 'the disk is full' };
const HEADER = { event_id: ID, dsn: 'https://e12d836b15bb49d7bbf99e64295d995b:@sentry.example/42' };
const HELLO = Buffer.from('helloworld');
const noItems = (from: string, it: string, body: string): RelayRequest => ({
  from,
  it,
  body,
  status: 200,
  id: ID,
  empty: 'no-items',
});

/** What the parser of envelopes reads: the unit tests of relay-server/src/envelope. */
const PARSED: readonly RelayRequest[] = [
  noItems('mod.rs: deserialize_envelope_empty', 'a header without a line feed', json(HEADER)),
  noItems('mod.rs: deserialize_envelope_empty_newline', 'a header with a line feed', `${json(HEADER)}\n`),
  noItems(
    'mod.rs: parse_request_envelope, no_dsn, no_origin',
    'a header of an id alone',
    json({ event_id: ID }),
  ),
  {
    from: 'mod.rs: deserialize_envelope_empty_item_newline',
    it: 'two empty attachments, of which the last has a line feed',
    body: lines(HEADER, ...Array<string>(2).fill(sized('attachment', ''))),
    status: 200,
    id: ID,
    stored: Array<Stored>(2).fill(['attachment', Buffer.alloc(0)]),
  },
  {
    from: 'mod.rs: deserialize_envelope_empty_item_eof',
    it: 'two empty attachments, of which the last ends with its header',
    body: lines(HEADER, sized('attachment', ''), { type: 'attachment', length: 0 }),
    status: 200,
    id: ID,
    stored: Array<Stored>(2).fill(['attachment', Buffer.alloc(0)]),
  },
  ...['', '\n'].map(
    (end): RelayRequest => ({
      from: `mod.rs: deserialize_envelope_implicit_length${end === '' ? '_eof' : ''}`,
      it: 'an attachment without length',
      body: `${lines(HEADER, { type: 'attachment' }, 'helloworld')}${end}`,
      status: 200,
      id: ID,
      stored: [['attachment', HELLO]],
    }),
  ),
  {
    from: 'mod.rs: deserialize_envelope_implicit_length_empty_eof',
    it: 'an attachment without length whose header ends the body',
    body: lines(HEADER, { type: 'attachment' }),
    status: 200,
    id: ID,
    stored: [['attachment', Buffer.alloc(0)]],
  },
  {
    from: 'mod.rs: deserialize_envelope_multiple_items',
    it: 'an attachment that ends with CR LF before an event with a file name',
    body: bytes(
      lines(HEADER, { type: 'attachment', length: 10, content_type: 'text/plain', filename: 'hello.txt' }),
      ...['\n', [0xef, 0xbb, 0xbf], 'Hello\r\n', '\n'],
      sized('event', MESSAGE, { content_type: 'application/json', filename: 'application.log' }),
      '\n',
    ),
    status: 200,
    id: ID,
    stored: [
      ['attachment', bytes([0xef, 0xbb, 0xbf], 'Hello\r\n'), { filename: 'hello.txt' }],
      ['event', MESSAGE, { filename: 'application.log' }],
    ],
  },
  {
    from: 'mod.rs: deserialize_envelope_unknown_item',
    it: 'an item of an unknown type',
    body: envelope(HEADER, lines({ type: 'of_tomorrow' }, 'helloworld')),
    status: 200,
    id: ID,
    empty: 'unstored-types',
  },
  {
    from: 'mod.rs: deserialize_envelope_replay_video',
    it: 'a video without length',
    body: envelope(HEADER, lines({ type: 'replay_video' }, 'helloworld')),
    status: 200,
    id: ID,
    stored: [['replay_video', HELLO]],
  },
  {
    from: 'mod.rs: deserialize_envelope_view_hierarchy; attachments.py: view_hierarchy_processing',
    it: 'an attachment of another attachment_type',
    body: envelope(
      HEADER,
      sized('attachment', '{"windows":[]}', { attachment_type: 'event.view_hierarchy' }),
    ),
    status: 200,
    id: ID,
    stored: [['attachment', Buffer.from('{"windows":[]}'), { attachment_type: 'event.view_hierarchy' }]],
  },
  {
    from: 'mod.rs: deserialize_envelope_replay_recording, parse_multiple_items',
    it: 'an attachment and a recording that is a word',
    differs: true,
    body: lines(HEADER, { type: 'attachment' }, 'helloworld', { type: 'replay_recording' }, 'helloworld'),
    status: 200,
    id: ID,
    stored: [['attachment', HELLO]],
    letters: 1,
  },
  {
    from: 'mod.rs: parse_request_sent_at',
    it: 'a sent_at of 1970',
    body: envelope({ event_id: ID, sent_at: '1970-01-01T00:02:03Z' }, sized('event', MESSAGE)),
    status: 200,
    id: ID,
    sentAt: '1970-01-01T00:02:03.000Z',
    stored: [['event', MESSAGE]],
  },
  {
    from: 'mod.rs: parse_request_sent_at_null',
    it: 'a sent_at of null',
    body: envelope({ event_id: ID, sent_at: null }, sized('event', MESSAGE)),
    status: 200,
    id: ID,
    sentAt: null,
    stored: [['event', MESSAGE]],
  },
  ...Object.entries({
    project: { dsn: 'https://e12d836b15bb49d7bbf99e64295d995b:@sentry.example/99' },
    key: { dsn: 'https://aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:@sentry.example/42' },
    origin: { origin: 'http://localhost/' },
  }).map(
    ([name, header]): RelayRequest => ({
      from: `mod.rs: parse_request_validate_${name}`,
      it: `a header of another ${name} than the request's`,
      differs: true,
      body: envelope({ event_id: ID, ...header }, sized('event', MESSAGE)),
      headers: { origin: 'http://origin.example' },
      status: 200,
      id: ID,
      stored: [['event', MESSAGE]],
    }),
  ),
  {
    from: 'mod.rs: deserialize_request_meta',
    it: 'a header that tells the client, its version, origin, address and user agent',
    differs: true,
    body: envelope(
      {
        ...HEADER,
        client: 'sentry/client',
        version: 6,
        origin: 'http://origin.example',
        remote_addr: '192.168.0.1',
        user_agent: 'Googlebot',
      },
      sized('event', MESSAGE),
    ),
    status: 200,
    id: ID,
    stored: [['event', MESSAGE]],
  },
  {
    from: 'item.rs: internal_item_type_does_not_parse',
    it: 'an item of a type that Relay uses inside',
    differs: true,
    body: envelope(HEADER, sized('integration', '{}'), sized('event', MESSAGE)),
    status: 200,
    id: ID,
    stored: [['event', MESSAGE]],
  },
  {
    from: 'item.rs: internal_content_type_does_parse',
    it: 'an attachment of a content type that Relay uses inside',
    body: envelope(
      HEADER,
      sized('attachment', '12345', { content_type: 'application/vnd.x.otel.logs+json' }),
    ),
    status: 200,
    id: ID,
    stored: [['attachment', Buffer.from('12345')]],
  },
];

const logs = (...items: readonly object[]): string => json({ items });
/** A container of logs whose header may be wrong. */
const oddLogs = (
  from: string,
  it: string,
  header: object,
  payload = logs(LOG),
  type = 'log',
): RelayRequest => ({
  from: `container.rs: ${from}`,
  it,
  differs: true,
  body: lines({}, { ...container('log', 1), type, ...header }, payload),
  status: 200,
  stored: [[type, JSON.parse(payload)]],
});

const BAD_SPANS = [{ ...SPAN_V2, span_id: null }, { name: 'no more than this' }, SPAN_V2];

/** Logs with attributes of all types, also of wrong ones. */
const ODD_LOGS = {
  items: [
    LOG,
    {
      ...LOG,
      span_id: SPAN,
      attributes: {
        yes: { value: true, type: 'boolean' },
        whole: { value: 42, type: 'integer' },
        half: { value: 1.5, type: 'double' },
        list: { value: ['a', 3.5, null], type: 'array' },
        odd: { value: 'a', type: 'not_a_real_type' },
        wrong: { value: 'a', type: 'boolean' },
        more: { value: 'a', type: 'string', unit: 'b' },
      },
    },
  ],
};

/** Containers of logs, spans and metrics. */
const CONTAINERS: readonly RelayRequest[] = [
  {
    from: 'container.rs: container_deserialize_successful, with_headers, roundtrip',
    it: 'two logs, of which one has a header of its own, in a container with a version',
    body: lines({}, container('log', 2), {
      version: 123,
      items: [LOG, { __header: { foo: [1, 'bar'] }, ...LOG }],
    }),
    status: 200,
    stored: [['log', { version: 123, items: [LOG, { __header: { foo: [1, 'bar'] }, ...LOG }] }]],
  },
  {
    from: 'container.rs: container_deserialize_unexpected_type',
    it: 'logs that are no JSON',
    body: lines({}, container('log', 1), `{"items":[${json(LOG)},]}`),
    status: 200,
    letters: 1,
  },
  oddLogs('container_deserialize_invalid_item_count', 'one log that is counted as two', { item_count: 2 }),
  oddLogs('container_deserialize_invalid_content_type', 'logs of the content type of JSON', {
    content_type: 'application/json',
  }),
  oddLogs('container_deserialize_missing_content_type', 'logs without a content type', {
    content_type: undefined,
  }),
  oddLogs('container_deserialize_missing_items', 'logs without items', {}, json({ items2: [LOG] })),
  oddLogs(
    'container_invalid_meta',
    'logs of a version that is a word',
    {},
    json({ version: 'x', items: [LOG] }),
  ),
  oddLogs(
    'container_deserialize_invalid_item_type',
    'spans of the content type of logs',
    {},
    logs(LOG),
    'span',
  ),
  {
    from: 'ourlogs.py: ourlog_extraction_with_sentry_logs_with_missing_fields',
    it: 'a log with a time, a level, a text and a trace alone',
    body: lines({}, container('log', 1), logs(LOG)),
    status: 200,
    stored: [['log', { items: [LOG] }]],
  },
  {
    from: 'ourlogs.py: ourlog_extraction_with_sentry_logs',
    it: 'logs with attributes of all types, also of wrong ones',
    differs: true,
    body: lines({}, container('log', 2), ODD_LOGS),
    status: 200,
    stored: [['log', ODD_LOGS]],
  },
  {
    from: 'ourlogs.py: ourlog_multiple_containers_not_allowed',
    it: 'two containers of logs',
    differs: true,
    body: lines({}, container('log', 1), logs(LOG), container('log', 1), logs(LOG)),
    status: 200,
    stored: [
      ['log', { items: [LOG] }],
      ['log', { items: [LOG] }],
    ],
  },
  {
    from: 'spansv2.py: spansv2_basic, spansv2_attribute_normalization',
    it: 'a span with an attribute of the wrong type, and a trace in the header of the envelope',
    differs: true,
    body: lines(
      { trace: { trace_id: TRACE, public_key: 'a', release: 'foo@1.0', environment: 'prod' } },
      container('span', 1),
      { items: [{ ...SPAN_V2, is_segment: true, attributes: { a: { value: true, type: 'string' } } }] },
    ),
    status: 200,
    stored: [
      [
        'span',
        { items: [{ ...SPAN_V2, is_segment: true, attributes: { a: { value: true, type: 'string' } } }] },
      ],
    ],
  },
  {
    from: 'spansv2.py: spans_v2_multiple_containers_not_allowed, dsc_validations',
    it: 'two containers of spans without a trace, one of two traces',
    differs: true,
    body: lines({}, container('span', 1), { items: [SPAN_V2] }, container('span', 2), {
      items: [SPAN_V2, { ...SPAN_V2, trace_id: '3'.repeat(32) }],
    }),
    status: 200,
    stored: [
      ['span', { items: [SPAN_V2] }],
      ['span', { items: [SPAN_V2, { ...SPAN_V2, trace_id: '3'.repeat(32) }] }],
    ],
  },
  {
    from: 'spansv2.py: invalid_spans',
    it: 'spans without what a span needs, beside a good one',
    differs: true,
    body: lines({}, container('span', 3), { items: BAD_SPANS }),
    status: 200,
    stored: [['span', { items: BAD_SPANS }]],
  },
  {
    from: 'spans.py: span_ingestion; spans_standalone.py: lcp_span, cls_span',
    it: 'spans of the first form, each an item, beside one of OpenTelemetry',
    differs: true,
    body: envelope(
      {},
      sized('otel_span', { traceId: TRACE, spanId: SPAN, name: 'x' }),
      ...[1, 2].map((at) => sized('span', { op: 'ui.webvital.lcp', span_id: SPAN, start_timestamp: at })),
    ),
    status: 200,
    stored: [1, 2].map(
      (at): Stored => ['span', { op: 'ui.webvital.lcp', span_id: SPAN, start_timestamp: at }],
    ),
  },
  {
    from: 'trace_metrics.py: trace_metric_extraction, validation',
    it: 'a metric, and one without a type',
    differs: true,
    body: lines({}, container('trace_metric', 2), { items: [METRIC, { ...METRIC, type: undefined }] }),
    status: 200,
    stored: [
      ['trace_metric', { items: [METRIC, { timestamp: AT, trace_id: TRACE, name: 'jobs', value: 1 }] }],
    ],
  },
];

const ATTACHMENT_V2 = bytes(json({ trace_id: TRACE, attachment_id: DASHED }), 'mock content');
const SESSIONS = {
  aggregates: [{ started: '2026-11-28T05:00:00Z', did: 'foo', exited: 2, errored: 3 }],
  attrs: { release: 'app@1.0.0' },
};
const TRANSACTION = {
  type: 'transaction',
  transaction: '/organizations/:orgId/',
  start_timestamp: AT,
  timestamp: AT + 8,
  contexts: { trace: { trace_id: TRACE.toUpperCase(), span_id: SPAN, type: 'trace' } },
  measurements: { LCP: { value: 420.5 }, cls: { value: null }, fp: { value: 'a paint' }, odd: 'string' },
  spans: [{ op: 'http', span_id: SPAN, start_timestamp: 1000.5, timestamp: 2000.5, trace_id: TRACE }],
};
const SPAN_LINK = {
  trace_id: TRACE,
  span_id: SPAN,
  sampled: false,
  attributes: { text: 'a', number: 42, yes: true },
};
const LINKED = {
  ...TRANSACTION,
  contexts: {
    trace: { trace_id: TRACE, span_id: SPAN, links: [SPAN_LINK] },
    flags: { values: [{ flag: 'dark-mode', result: 'on' }] },
  },
  spans: [{ ...TRANSACTION.spans[0], links: [SPAN_LINK, { trace_id: TRACE, span_id: SPAN }] }],
};
const REPLAY_EVENT = {
  type: 'replay_event',
  replay_id: ID,
  event_id: ID,
  segment_id: 0,
  urls: ['a.example'],
};
const USER_REPORT = { name: 'Jo', email: '', comments: 'good', event_id: ID };
const CRASH = { exception: { values: [{ type: 'SIGSEGV', value: 'a fault' }] } };
const FEEDBACK = { type: 'feedback', event_id: ID, contexts: { feedback: { message: 'slow' } } };

/** Items of each type, as the integration tests send them. */
const ITEMS: readonly RelayRequest[] = [
  {
    from: 'envelope.py: envelope',
    it: 'an event alone',
    body: envelope({}, sized('event', MESSAGE)),
    status: 200,
    stored: [['event', MESSAGE]],
  },
  {
    from: 'envelope.py: envelope_empty',
    it: 'nothing but an empty header',
    body: envelope({}),
    status: 200,
    empty: 'no-items',
  },
  {
    from: 'envelope.py: envelope_without_header',
    it: 'the key in the DSN of the envelope alone',
    differs: true,
    headers: { 'x-sentry-auth': '' },
    key: 'none',
    body: envelope(HEADER, sized('event', MESSAGE)),
    status: 401,
  },
  {
    from: 'envelope.py: unknown_item, drop_unknown_item',
    it: 'an item of an unknown type between attachments, of which one has an unknown attachment_type',
    differs: true,
    body: envelope(
      {},
      sized('attachment', 'something'),
      sized('invalid_unknown', 'something'),
      sized('attachment', 'something', { attachment_type: 'attachment_unknown' }),
    ),
    status: 200,
    stored: [
      ['attachment', Buffer.from('something')],
      ['attachment', Buffer.from('something'), { attachment_type: 'attachment_unknown' }],
    ],
  },
  {
    from: 'envelope.py: measurement_items_envelope, normalize_measurement_interface, ops_breakdowns and others',
    it: 'a transaction with odd measurements, and measurements in an item of their own',
    differs: true,
    body: envelope(
      { event_id: ID },
      sized('transaction', TRANSACTION),
      sized('measures', { foo: { value: 1 } }),
    ),
    status: 200,
    id: ID,
    stored: [['transaction', TRANSACTION]],
  },
  {
    from: 'envelope.py: measurement_strip_envelope, strip_measurement_interface',
    it: 'an event with measurements',
    differs: true,
    body: envelope({}, sized('event', { ...MESSAGE, measurements: { foo: { value: 420.5 } } })),
    status: 200,
    stored: [['event', { ...MESSAGE, measurements: { foo: { value: 420.5 } } }]],
  },
  {
    from: 'envelope.py: sample_rates',
    it: 'an event whose item header has a list',
    body: envelope({}, sized('event', MESSAGE, { sample_rates: [{ id: 'client', rate: 0.01 }] })),
    status: 200,
    stored: [['event', MESSAGE, { sample_rates: [{ id: 'client', rate: 0.01 }] }]],
  },
  {
    from: 'clock_drift.py: clock_drift_applied_when_timestamp_is_too_old',
    it: 'a transaction of a clock that is a month late',
    differs: true,
    body: envelope({ sent_at: '2026-10-28T06:00:00.123456Z' }, sized('transaction', TRANSACTION)),
    status: 200,
    sentAt: '2026-10-28T06:00:00.123Z',
    stored: [['transaction', TRANSACTION]],
  },
  {
    from: 'session.py: sessions, session_with_processing and others',
    it: 'a session, and another of the same id',
    body: envelope({}, sized('session', SESSION), sized('session', { ...SESSION, status: 'crashed' })),
    status: 200,
    stored: [
      ['session', SESSION],
      ['session', { ...SESSION, status: 'crashed' }],
    ],
  },
  {
    from: 'session.py: session_release_required, session_age_discard, session_invalid_release',
    it: 'sessions that are old, and without a release or with a bad one',
    differs: true,
    body: envelope(
      {},
      sized('session', { ...SESSION, started: '2020-01-01T00:00:00Z' }),
      sized('session', { ...SESSION, attrs: { release: 'latest' } }),
    ),
    status: 200,
    stored: [
      ['session', { ...SESSION, started: '2020-01-01T00:00:00Z' }],
      ['session', { ...SESSION, attrs: { release: 'latest' } }],
    ],
  },
  {
    from: 'session.py: session_aggregates, session_aggregates_explode',
    it: 'sums of sessions',
    differs: true,
    body: envelope({}, sized('sessions', SESSIONS)),
    status: 200,
    stored: [['sessions', SESSIONS]],
  },
  {
    from: 'client_report.py: client_reports',
    it: 'two client reports of the same second',
    differs: true,
    body: envelope({}, sized('client_report', REPORT), sized('client_report', REPORT)),
    status: 200,
    stored: [
      ['client_report', REPORT],
      ['client_report', REPORT],
    ],
  },
  {
    from: 'monitors.py: monitor_ingest; crons.py: crons_with_processing',
    it: 'a check-in',
    body: envelope({}, sized('check_in', CHECK_IN)),
    status: 200,
    stored: [['check_in', CHECK_IN]],
  },
  {
    from: 'feedback.py: feedback_event_with_processing, feedback_with_attachment_in_same_envelope',
    it: 'feedback with a picture',
    body: envelope(
      { event_id: ID },
      sized('feedback', FEEDBACK),
      sized('attachment', 'PNG', { filename: 'a.png' }),
    ),
    status: 200,
    id: ID,
    stored: [
      ['feedback', FEEDBACK],
      ['attachment', Buffer.from('PNG'), { filename: 'a.png' }],
    ],
  },
  {
    from: 'user_report.py: standalone_user_report, user_report_with_event',
    it: 'a user report beside its event',
    body: envelope({ event_id: ID }, sized('event', MESSAGE), sized('user_report', USER_REPORT)),
    status: 200,
    id: ID,
    stored: [
      ['event', MESSAGE],
      ['user_report', USER_REPORT],
    ],
  },
  {
    from: 'outcome.py: profile_outcomes',
    it: 'a profile beside its transaction and an attachment',
    body: envelope(
      {},
      ...[
        sized('transaction', TRANSACTION),
        sized('profile', { version: '1' }),
        sized('attachment', 'foobar'),
      ],
    ),
    status: 200,
    stored: [
      ['transaction', TRANSACTION],
      ['profile', { version: '1' }],
      ['attachment', Buffer.from('foobar')],
    ],
  },
  {
    from: 'outcome.py: profile_outcomes_too_many, profile_outcomes_invalid',
    it: 'two profiles, of which one is empty',
    differs: true,
    body: envelope({}, sized('profile', { version: '1' }), sized('profile', '')),
    status: 200,
    stored: [
      ['profile', { version: '1' }],
      ['profile', Buffer.alloc(0)],
    ],
  },
  {
    from: 'profile_chunks.py: profile_chunk_outcomes_invalid',
    it: 'a part of a profile, of a platform that nobody knows',
    differs: true,
    body: envelope({}, sized('profile_chunk', { chunk_id: ID, platform: 'odd' }, { platform: 'node' })),
    status: 200,
    stored: [['profile_chunk', { chunk_id: ID, platform: 'odd' }, { platform: 'node' }]],
  },
  {
    from: 'profile_chunks.py: profile_chunk_outcomes',
    it: 'a part of a profile, of the item type of two versions for Android',
    differs: true,
    body: envelope({}, sized('profile_chunk_ui', { chunk_id: ID, platform: 'android' })),
    status: 200,
    empty: 'unstored-types',
  },
  {
    from: 'span_links.py: event_with_span_link_in_transaction; flags.py: event_with_flags',
    it: 'a transaction with links and flags, in an item of the type event',
    body: envelope({ event_id: ID }, sized('event', LINKED)),
    status: 200,
    id: ID,
    stored: [['event', LINKED]],
  },
  {
    from: 'replay_combined_payload.py: replay_combined_with_processing; replay_events.py: replay_event_with_processing',
    it: 'a recording before its event',
    body: envelope(
      { event_id: ID, attachment_type: 'replay_recording' },
      sized('replay_recording', '{"segment_id":0}\n[]'),
      sized('replay_event', REPLAY_EVENT),
    ),
    status: 200,
    id: ID,
    stored: [
      ['replay_recording', { segment_id: 0, recording: [] }],
      ['replay_event', REPLAY_EVENT],
    ],
  },
  {
    from: 'replay_recordings.py: replay_recordings and others',
    it: 'a recording of a word, and one of a megabyte',
    differs: true,
    body: envelope(
      { event_id: ID },
      sized('replay_recording', 'test'),
      sized('replay_recording', '1'.repeat(1_000_000)),
    ),
    status: 200,
    id: ID,
    letters: 2,
  },
  {
    from: 'replay_videos.py: replay_recording_with_video',
    it: 'a video in MessagePack',
    body: bytes(
      lines({ event_id: ID }, { type: 'replay_video', length: 4 }),
      ...['\n', [0x81, 0xa1, 0x0a, 0xc0], '\n'],
    ),
    status: 200,
    id: ID,
    stored: [['replay_video', Buffer.from([0x81, 0xa1, 0x0a, 0xc0])]],
  },
  {
    from: 'attachments.py: event_with_attachment',
    it: 'an event with an attachment without a name, compressed',
    headers: { 'content-encoding': 'gzip' },
    body: gzipSync(
      envelope({ event_id: ID }, sized('event', MESSAGE), sized('attachment', 'event attachment')),
    ),
    status: 200,
    id: ID,
    stored: [
      ['event', MESSAGE],
      ['attachment', Buffer.from('event attachment')],
    ],
  },
  {
    from: 'minidump.py: minidump_with_event_exception (as an envelope)',
    it: 'an event with an exception beside a minidump',
    differs: true,
    body: envelope(
      { event_id: ID },
      sized('event', CRASH),
      sized('attachment', 'MDMP', { attachment_type: 'event.minidump', filename: 'a.dmp' }),
    ),
    status: 200,
    id: ID,
    stored: [
      ['event', CRASH],
      ['attachment', Buffer.from('MDMP'), { attachment_type: 'event.minidump', filename: 'a.dmp' }],
    ],
  },
  {
    from: 'attachmentsv2.py: standalone_attachment_forwarding, attachment_with_matching_span and others',
    it: 'attachments whose bytes begin with JSON, beside the span that they name',
    body: bytes(
      lines({ event_id: ID }, container('span', 1), { items: [SPAN_V2] }),
      ...[null, SPAN].flatMap((span_id) => [
        '\n',
        json({
          type: 'attachment',
          content_type: 'application/vnd.sentry.attachment.v2',
          meta_length: ATTACHMENT_V2.length - 12,
          length: ATTACHMENT_V2.length,
          span_id,
        }),
        '\n',
        ATTACHMENT_V2,
      ]),
    ),
    status: 200,
    id: ID,
    stored: [
      ['span', { items: [SPAN_V2] }, { content_type: OF_ITEMS.span }],
      ['attachment', ATTACHMENT_V2, { span_id: null, meta_length: ATTACHMENT_V2.length - 12 }],
      ['attachment', ATTACHMENT_V2, { span_id: SPAN }],
    ],
  },
  {
    from: 'attachment_ref.py: attachment_ref_validation',
    it: 'an attachment that says it is a reference to a file, and is not',
    differs: true,
    body: envelope(
      { event_id: ID },
      sized('attachment', 'no reference', {
        content_type: 'application/vnd.sentry.attachment-ref+json',
        attachment_length: 100,
      }),
    ),
    status: 200,
    id: ID,
    stored: [['attachment', Buffer.from('no reference'), { attachment_length: 100 }]],
  },
  {
    from: 'attachmentsv2.py: invalid_item_headers',
    it: 'such an attachment of a span that is not there, whose JSON is longer than its bytes',
    differs: true,
    body: envelope(
      { event_id: ID },
      sized('attachment', ATTACHMENT_V2.toString(), { span_id: 'ABCDFDEAD5F74052', meta_length: 999 }),
    ),
    status: 200,
    id: ID,
    stored: [['attachment', ATTACHMENT_V2, { meta_length: 999 }]],
  },
];

export const ENVELOPES: readonly RelayRequest[] = [...PARSED, ...CONTAINERS, ...ITEMS];
