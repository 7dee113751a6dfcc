/** Requests of the SDKs for Go, Java, Rust, .NET, C and Apple's systems. */
import {
  AT,
  bytes,
  bytesOf,
  CHECK_IN,
  container,
  DASHED,
  EVENT,
  EVENT_WITH_TIME,
  ID,
  json,
  LOG,
  lines,
  METRIC,
  OF_ITEMS,
  refused,
  type SdkRequest,
  SESSION,
  type StoredItem,
  sized,
  TRACE,
  withAndWithoutEnd,
} from './parts.ts';

const GO_HEADER = {
  event_id: ID,
  sent_at: '1970-01-01T00:00:00Z',
  dsn: 'http://public@example.com/sentry/1',
  sdk: { name: 'sentry.go', version: '0.50.0' },
};
export const GO: SdkRequest[] = [
  {
    it: 'an event with an empty attachment and one of HTML',
    body: `${lines(
      GO_HEADER,
      sized('event', { type: 'event' }),
      sized('attachment', '', { filename: 'empty.txt' }),
      sized('attachment', '<h1>Look</h1>', { filename: 'full.txt', content_type: 'text/html' }),
    )}\n`,
    status: 200,
    id: ID,
    stored: [
      ['event', { type: 'event' }],
      ['attachment', Buffer.alloc(0)],
      ['attachment', Buffer.from('<h1>Look</h1>')],
    ],
  },
  {
    it: 'a check-in with the settings of its monitor',
    body: `${lines(GO_HEADER, sized('check_in', { ...CHECK_IN, monitor_config: { checkin_margin: 10 } }))}\n`,
    status: 200,
    id: ID,
    stored: [['check_in', { ...CHECK_IN, monitor_config: { checkin_margin: 10 } }]],
  },
  {
    it: 'logs without length, with members of an event in the container',
    body: `${lines(GO_HEADER, container('log', 1), { event_id: ID, user: {}, items: [LOG] })}\n`,
    status: 200,
    id: ID,
    stored: [['log', { event_id: ID, user: {}, items: [LOG] }]],
  },
  {
    it: 'logs and metrics that are bare lists',
    body: `${lines(
      GO_HEADER,
      sized('log', [LOG], { item_count: 1 }),
      sized('trace_metric', [METRIC], { item_count: 1 }),
    )}\n`,
    status: 200,
    id: ID,
    stored: [
      ['log', [LOG]],
      ['trace_metric', [METRIC]],
    ],
  },
  refused('an id of words', `${lines({ event_id: 'test-event-id' }, sized('event', { message: 'test' }))}\n`),
];

const BROKEN_EVENT = '{"event_id":"7d1f", "sdk": {"name":"sentry-android"}';
export const JAVA: SdkRequest[] = [
  {
    it: 'an event of broken JSON with two attachments, of which one has line feeds',
    body: lines(
      { event_id: ID },
      sized('event', BROKEN_EVENT, { content_type: 'application/json' }),
      sized('attachment', 'a file of one line', { attachment_type: 'event.minidump' }),
      sized('attachment', 'attachment\nwith\nline breaks\n', { filename: 'log.txt' }),
    ),
    status: 200,
    id: ID,
    stored: [
      ['attachment', Buffer.from('a file of one line')],
      ['attachment', Buffer.from('attachment\nwith\nline breaks\n')],
    ],
    letters: 1,
  },
  {
    it: 'a session whose header gives the type last but one',
    body: `${lines({}, { content_type: 'application/json', type: 'session', length: bytesOf(json(SESSION)) }, SESSION)}\n`,
    status: 200,
    stored: [['session', SESSION]],
  },
  {
    it: 'a user report',
    body: `${lines({ event_id: ID }, sized('user_report', { event_id: ID, comments: 'bad' }))}\n`,
    status: 200,
    id: ID,
    stored: [['user_report', { event_id: ID, comments: 'bad' }]],
  },
  refused(
    'lengths that are texts',
    lines(
      { event_id: ID },
      { type: 'event', length: '2' },
      {},
      { type: 'attachment', length: '10' },
      'abcdefghij',
    ),
  ),
  refused('a length beyond the body', lines({ event_id: ID }, { type: 'event', length: 3 }, {})),
  refused('no bytes', ''),
  ...withAndWithoutEnd({
    it: 'a header alone',
    body: json({ event_id: ID }),
    status: 200,
    id: ID,
    empty: 'no-items',
  }),
  {
    it: 'spans and metrics of empty lists that count one',
    body: lines(
      {},
      sized('span', { items: [] }, { content_type: OF_ITEMS.span, item_count: 1 }),
      sized('trace_metric', { items: [] }, { content_type: OF_ITEMS.trace_metric, item_count: 1 }),
    ),
    status: 200,
    stored: [
      ['span', { items: [] }],
      ['trace_metric', { items: [] }],
    ],
  },
  {
    it: 'a part of a profile that is JSON with bytes behind it',
    body: bytes(
      lines(
        { event_id: ID },
        { type: 'profile_chunk', length: 17, platform: 'android', meta_length: 13 },
        '',
      ),
      '{"version":2}',
      [0x50, 0x0a, 0xff, 0x66],
    ),
    status: 200,
    id: ID,
    stored: [['profile_chunk', bytes('{"version":2}', [0x50, 0x0a, 0xff, 0x66])]],
  },
  {
    it: 'the video of a phone, which is MessagePack',
    body: bytes(
      lines({ event_id: ID }, { type: 'replay_video', length: 5 }, ''),
      [0x81, 0xa1, 0x61, 0x0a, 0xc0],
    ),
    status: 200,
    id: ID,
    stored: [['replay_video', Buffer.from([0x81, 0xa1, 0x61, 0x0a, 0xc0])]],
  },
];

export const RUST: SdkRequest[] = [
  { it: 'nothing but an empty header', body: '{}\n', status: 200, empty: 'no-items' },
  {
    it: 'an event under a dashed id',
    body: `${lines({ event_id: DASHED }, sized('event', EVENT_WITH_TIME))}\n`,
    auth: 'Sentry sentry_key=KEY, sentry_version=6, sentry_timestamp=1328055286.5, sentry_client=raven-python/42, sentry_secret=secret',
    status: 200,
    id: ID,
    stored: [['event', EVENT_WITH_TIME]],
  },
  {
    it: 'a check-in with thresholds, under an empty header',
    body: `${lines({}, sized('check_in', { ...CHECK_IN, monitor_config: { recovery_threshold: 7 } }))}\n`,
    status: 200,
    stored: [['check_in', { ...CHECK_IN, monitor_config: { recovery_threshold: 7 } }]],
  },
  ...withAndWithoutEnd({
    it: 'an empty attachment whose header ends the body',
    body: lines({ event_id: ID }, sized('attachment', ''), { type: 'attachment', length: 0 }),
    status: 200,
    id: ID,
    stored: ['', ''].map((text) => ['attachment', Buffer.from(text)]),
  }),
  {
    it: 'an attachment without length whose header ends the body',
    body: lines({ event_id: ID }, { type: 'attachment' }),
    status: 200,
    id: ID,
    stored: [['attachment', Buffer.alloc(0)]],
  },
  {
    it: 'every kind of item in one envelope',
    body: `${lines(
      { event_id: DASHED },
      sized('event', EVENT_WITH_TIME),
      sized('transaction', { event_id: ID, start_timestamp: AT, spans: [] }),
      sized('session', SESSION),
      sized('attachment', 'some content', { filename: 'file.txt', attachment_type: 'event.attachment' }),
      ...[container('log', 2), { items: [LOG, LOG] }, container('trace_metric', 1), { items: [METRIC] }],
    )}\n`,
    status: 200,
    id: ID,
    stored: [
      ['event', EVENT_WITH_TIME],
      ['transaction', { event_id: ID, start_timestamp: AT, spans: [] }],
      ['session', SESSION],
      ['attachment', Buffer.from('some content')],
      ['log', { items: [LOG, LOG] }],
      ['trace_metric', { items: [METRIC] }],
    ],
  },
  {
    it: 'all members of a header at once',
    body: `${lines(
      {
        event_id: DASHED,
        sdk: { name: 'sentry.rust', version: '0.49.5', integrations: ['a'], packages: [] },
        sent_at: '2020-02-07T14:16:00Z',
        trace: { trace_id: TRACE, sample_rand: '0.123456', sampled: 'true' },
      },
      sized('event', EVENT_WITH_TIME),
    )}\n`,
    status: 200,
    id: ID,
    stored: [['event', EVENT_WITH_TIME]],
  },
  refused('bytes that are no envelope', bytes('oh no!', [0, 1, 2])),
];

const DOTNET_TIME = '9999-12-31T23:59:59.9999999+00:00';
const withId = (id: unknown): string => lines({ event_id: id, sent_at: DOTNET_TIME }, sized('event', EVENT));
export const DOTNET: SdkRequest[] = [
  {
    it: 'a header alone, with the last time of the calendar',
    body: json({ event_id: ID, sent_at: DOTNET_TIME }),
    status: 200,
    id: ID,
    empty: 'no-items',
  },
  {
    it: 'a session under a header of a time alone',
    body: lines({ sent_at: DOTNET_TIME }, sized('session', SESSION)),
    status: 200,
    sentAt: '9999-12-31T23:59:59.999Z',
    stored: [['session', SESSION]],
  },
  {
    it: 'an attachment whose text is longer in UTF-8',
    body: lines({ event_id: ID }, sized('attachment', 'ï»¿Hello\r\n'), sized('event', EVENT)),
    status: 200,
    id: ID,
    stored: [
      ['attachment', Buffer.from('ï»¿Hello\r\n')],
      ['event', EVENT],
    ],
  },
  {
    it: 'feedback with an attachment',
    body: lines(
      { event_id: ID },
      sized('feedback', { contexts: { feedback: {} } }),
      sized('attachment', 'x'),
    ),
    status: 200,
    id: ID,
    stored: [
      ['feedback', { contexts: { feedback: {} } }],
      ['attachment', Buffer.from('x')],
    ],
  },
  { it: 'an id of null', body: withId(null), status: 200, stored: [['event', EVENT]] },
  {
    it: 'an id of zeros',
    body: withId('00000000-0000-0000-0000-000000000000'),
    status: 200,
    stored: [['event', EVENT]],
  },
  refused('an id that is a number', withId(10)),
  refused('an id that is no UUID', withId('not-guid')),
  refused('a megabyte of zeros', new Uint8Array(1_000_000)),
  refused('one word', 'helloworld\n'),
];

export const NATIVE: SdkRequest[] = [
  {
    it: 'an event, a minidump and an attachment',
    body: lines(
      { dsn: 'https://foo@example.com/42', event_id: DASHED, trace: { sample_rate: 0, sampled: 'false' } },
      ...[sized('event', EVENT), sized('minidump', 'MDMP'), sized('attachment', 'Hello World!')],
    ),
    status: 200,
    id: ID,
    stored: [
      ['event', EVENT],
      ['attachment', Buffer.from('Hello World!')],
    ],
  },
  {
    it: 'a minidump without an event',
    body: lines({}, sized('minidump', 'MDMP')),
    status: 200,
    empty: 'unstored-types',
  },
  {
    it: 'a user report under a dashed id',
    body: lines({ event_id: DASHED }, sized('user_report', { event_id: DASHED, comments: 'c' })),
    status: 200,
    id: ID,
    stored: [['user_report', { event_id: DASHED, comments: 'c' }]],
  },
  {
    it: 'feedback',
    body: lines({ event_id: DASHED }, sized('feedback', { contexts: { feedback: { message: 'm' } } })),
    status: 200,
    id: ID,
    stored: [['feedback', { contexts: { feedback: { message: 'm' } } }]],
  },
  {
    it: 'an attachment that only names a file of the SDK',
    body: lines(
      { event_id: DASHED },
      sized('event', {}),
      sized(
        'attachment',
        { path: 'abc-crashlog.bin' },
        { attachment_length: 12_345, filename: 'crashlog.bin' },
      ),
    ),
    status: 200,
    id: ID,
    stored: [
      ['event', {}],
      ['attachment', Buffer.from('{"path":"abc-crashlog.bin"}')],
    ],
  },
  ...withAndWithoutEnd({
    it: 'an attachment without length',
    body: lines({ event_id: ID }, { type: 'attachment' }, 'helloworld'),
    status: 200,
    id: ID,
    stored: [['attachment', Buffer.from('helloworld')]],
  }),
  refused('a line feed', '\n'),
  refused('an item header without a type', '{}\n{}'),
  refused('an item header that is a word', '{}\ninvalid\n'),
  refused('a word', 'invalid'),
  refused('a negative length', '{}\n{"type":"event","length":-1}\n'),
  refused('the largest length of 64 bits', '{}\n{"type":"event","length":18446744073709551615}\n'),
];

export const COCOA: SdkRequest[] = [
  {
    it: 'an item whose header gives the length first, and ends with a line feed',
    body: '{}\n{"length":0,"type":"attachment"}\n',
    status: 200,
    stored: [['attachment', Buffer.alloc(0)]],
  },
  {
    it: 'an item whose header ends the body',
    body: lines({ event_id: DASHED }, { length: 0, type: 'attachment' }),
    status: 200,
    id: ID,
    stored: [['attachment', Buffer.alloc(0)]],
  },
  {
    it: 'an attachment before an empty one, and behind one',
    body: lines(
      { event_id: DASHED },
      ...[sized('attachment', 'helloworld'), sized('attachment', ''), sized('attachment', 'helloworld')],
    ),
    status: 200,
    id: ID,
    stored: ['helloworld', '', 'helloworld'].map((text) => ['attachment', Buffer.from(text)]),
  },
  {
    it: 'twenty items of unknown types',
    body: lines(
      { event_id: DASHED },
      ...[...'abcdefghijklmnopqrst'].map((type) => sized(type, type.repeat(9))),
    ),
    status: 200,
    id: ID,
    empty: 'unstored-types',
  },
  {
    it: 'three events in one envelope, and three sessions',
    body: lines(
      { event_id: DASHED },
      ...[1, 2, 3].map((number) => sized('event', { number })),
      ...[1, 2, 3].map(() => sized('session', SESSION)),
    ),
    status: 200,
    id: ID,
    stored: [
      ...[1, 2, 3].map((number): StoredItem => ['event', { number }]),
      ...[1, 2, 3].map((): StoredItem => ['session', SESSION]),
    ],
  },
  refused(
    'a length shorter than the payload',
    lines({ event_id: DASHED }, { length: 10, type: 'attachment' }, 'helloworlds', sized('attachment', 'x')),
  ),
  refused(
    'a length without a payload',
    `${lines({ event_id: DASHED }, { length: 10, type: 'attachment' })}\n`,
  ),
  refused('a header of other bytes', bytes([0xff, 0xff, 0xff], '\n')),
  refused('an empty line for an item header', lines({ event_id: DASHED }, '', '')),
  refused('a blank for an item header', lines({ event_id: DASHED }, ' ')),
  refused('an item header with a misspelt type', lines({ event_id: DASHED }, { typ: 'attachment' }, 'hello')),
  refused('an item header of other bytes', bytes(json({ event_id: DASHED }), '\n', [0xff], '\n')),
];
