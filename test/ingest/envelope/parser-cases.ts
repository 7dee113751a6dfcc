/** Every rule of the envelope (contract part 2) as a body and what a parser must make of it. */
import {
  ENVELOPE_HEADER_BYTES_MAX,
  ITEM_HEADER_BYTES_MAX,
  ITEM_HEADERS_BYTES_MAX,
  ITEMS_MAX,
} from '../../../src/limits.ts';
import { bytesOf, EVENT_ID } from './bodies.ts';

/** Why it is malformed, or its items as `type@index:payload`, skipped ones as `[type]`. */
export type Verdict = { malformed: string } | { found: string[] };

const HEADER = `{"event_id":"${EVENT_ID}"}`;
const found = (...items: string[]): Verdict => ({ found: items });
const malformed = (reason: string): Verdict => ({ malformed: reason });
const NO_HEADER = malformed('the envelope header is no JSON object');
const NO_ITEM_HEADER = malformed('an item header is no JSON object');
const NO_TYPE = malformed('an item header has no type');
const ENDS_INSIDE = malformed('the body ends inside a payload');
const OTHER_BYTE = malformed('a payload is followed by another byte than a newline');
const TOO_MANY = malformed('the envelope has too many items');
const LONG_TOGETHER = malformed('the item headers are too long together');
/** The beginning of an envelope with one log, up to its payload. */
const LOG = '{}\n{"type":"log"}\n';
const logOf = (length: number | string): string => `{}\n{"type":"log","length":${length}}\n`;
const filler = (bytes: number): string => 'x'.repeat(bytes);
/** A JSON object of exactly `bytes` bytes. */
const objectOf = (bytes: number, begin = '{"type":"log","a":"'): string =>
  `${begin}${filler(bytes - begin.length - 2)}"}`;
const items = (count: number): string => Array.from({ length: count }, () => '\n{"type":"log"}\n{}').join('');
/** Items whose headers are as long as may be, `bytes` of them in all. */
const longHeaders = (bytes: number): string =>
  `\n${objectOf(ITEM_HEADER_BYTES_MAX)}\n{}`.repeat(bytes / ITEM_HEADER_BYTES_MAX);

export const CASES: [title: string, body: string | Buffer, verdict: Verdict][] = [
  // ---- the envelope header ----
  ['a header alone is an envelope without items', '{}', found()],
  ['a header and a newline are an envelope without items', '{}\n', found()],
  ['white space around the header object is JSON', ' {} \n', found()],
  ['an empty body is malformed', '', malformed('the body is empty')],
  ['a lone newline is malformed', '\n', NO_HEADER],
  ['an empty first line is malformed', '\n{}\n', NO_HEADER],
  ['a header that is an array is malformed', '[]\n', NO_HEADER],
  ['a header that is null is malformed', 'null\n', NO_HEADER],
  ['a header that is a string is malformed', '"{}"', NO_HEADER],
  ['a header with something after its object is malformed', '{}{}\n', NO_HEADER],
  ['a header that is cut short is malformed', '{"a":', NO_HEADER],
  [
    'a header that is no UTF-8 is malformed',
    Buffer.concat([bytesOf('{"a":"'), Buffer.of(0xc3, 0x28), bytesOf('"}\n')]),
    NO_HEADER,
  ],
  [
    'a byte order mark is malformed',
    Buffer.concat([Buffer.of(0xef, 0xbb, 0xbf), bytesOf('{}\n')]),
    NO_HEADER,
  ],
  ['a header at its bound', `${objectOf(ENVELOPE_HEADER_BYTES_MAX, '{"a":"')}\n`, found()],
  ['a header at its bound without a newline', objectOf(ENVELOPE_HEADER_BYTES_MAX, '{"a":"'), found()],
  [
    'a header over its bound is malformed',
    `${objectOf(ENVELOPE_HEADER_BYTES_MAX + 1, '{"a":"')}\n`,
    malformed('the envelope header is too long'),
  ],
  [
    'a body without any newline is malformed once it is over the header bound',
    filler(ENVELOPE_HEADER_BYTES_MAX + 1),
    malformed('the envelope header is too long'),
  ],
  [
    'an event_id of another shape is malformed',
    '{"event_id":"42"}',
    malformed('the event_id is neither 32 hex digits nor a dashed UUID'),
  ],
  // ---- payloads without a length ----
  [
    'an item without a length runs to the newline',
    `${HEADER}\n{"type":"event"}\n{"a":1}\n`,
    found('event@0:{"a":1}'),
  ],
  [
    'an item without a length runs to the end',
    `${HEADER}\n{"type":"event"}\n{"a":1}`,
    found('event@0:{"a":1}'),
  ],
  ['a payload without a length may be empty', `${LOG}\n{"type":"log"}\n`, found('log@0:', 'log@1:')],
  ['an item header may end the body', '{}\n{"type":"log"}', found('log@0:')],
  ['an item header and its newline may end the body', LOG, found('log@0:')],
  ['an empty payload and its newline may end the body', `${LOG}\n`, found('log@0:')],
  ['a payload may hold any byte but a newline', `${LOG}\0\r\t\x7f\n`, found('log@0:\0\r\t\x7f')],
  // ---- payloads with a length ----
  ['a length counts bytes, newlines among them', `${logOf(5)}a\nb\nc\n`, found('log@0:a\nb\nc')],
  ['a payload of its length may end the body', `${logOf(3)}abc`, found('log@0:abc')],
  ['a length counts bytes, not characters', `${logOf(4)}éé\n`, found('log@0:Ã©Ã©')],
  ['a length of nothing', `${logOf(0)}\n{"type":"log","length":0}`, found('log@0:', 'log@1:')],
  ['a length of nothing before the end of the body', logOf(0), found('log@0:')],
  ['a length may be written with an exponent', `${logOf('3e0')}abc`, found('log@0:abc')],
  ['a body that ends inside a payload is malformed', `${logOf(4)}abc`, ENDS_INSIDE],
  ['a body that ends before a payload is malformed', logOf(4), ENDS_INSIDE],
  ['a header with a length that ends the body is malformed', '{}\n{"type":"log","length":4}', ENDS_INSIDE],
  ['another byte after the payload is malformed', `${logOf(3)}abcd\n`, OTHER_BYTE],
  ['a carriage return after a payload with a length is malformed', `${logOf(3)}abc\r\n`, OTHER_BYTE],
  ['a byte after a length of nothing is malformed', `${logOf(0)}{"type":"log"}`, OTHER_BYTE],
  ...['-1', '1.5', '"3"', 'true', '[3]', '9007199254740992', '1e400'].map(
    (length): [string, string, Verdict] => [
      `a length of ${length} is malformed`,
      `${logOf(length)}abc`,
      malformed('an item length is no whole number of bytes'),
    ],
  ),
  ['a length beyond every body ends it inside the payload', `${logOf('9007199254740991')}abc`, ENDS_INSIDE],
  ['a length of null is none', `${logOf('null')}a\n`, found('log@0:a')],
  ['a length of minus nothing is nothing', logOf('-0'), found('log@0:')],
  // ---- item headers ----
  ['an empty line instead of an item header is malformed', '{}\n\n', NO_ITEM_HEADER],
  ['a second newline at the end is malformed', `${LOG}{}\n\n`, NO_ITEM_HEADER],
  ['an item header that is an array is malformed', '{}\n["type"]\n{}', NO_ITEM_HEADER],
  ['an item header without a type is malformed', '{}\n{"length":2}\n{}', NO_TYPE],
  ['a type that is no string is malformed', '{}\n{"type":1}\n{}', NO_TYPE],
  ['an empty type is an unknown one', '{}\n{"type":""}\n{}', found('[]')],
  ['white space inside an item header is JSON', '{}\n{ "type" :\t"log" }\n{}', found('log@0:{}')],
  [
    'carriage returns belong to header lines and payloads',
    '{}\r\n{"type":"log"}\r\n{}\r\n',
    found('log@0:{}\r'),
  ],
  ['an item header at its bound', `{}\n${objectOf(ITEM_HEADER_BYTES_MAX)}\n{}`, found('log@0:{}')],
  [
    'an item header over its bound is malformed',
    `{}\n${objectOf(ITEM_HEADER_BYTES_MAX + 1)}\n{}`,
    malformed('an item header is too long'),
  ],
  [
    'an item header that is no UTF-8 is malformed',
    Buffer.concat([bytesOf('{}\n{"type":"log","a":"'), Buffer.of(0xff), bytesOf('"}\n{}')]),
    NO_ITEM_HEADER,
  ],
  ['a name in __proto__ is no type', '{}\n{"__proto__":{"type":"log"}}\n{}', NO_TYPE],
  [
    'a name in __proto__ does no harm',
    '{"__proto__":{"event_id":"x"}}\n{"type":"log","__proto__":null}\n{}',
    found('log@0:{}'),
  ],
  [
    'of a duplicate name the last counts',
    '{}\n{"type":"log","type":"event","length":9,"length":2}\n{}',
    found('event@0:{}'),
  ],
  [
    'constructor is an unknown type',
    '{}\n{"type":"constructor"}\n{}\n{"type":"__proto__"}\n{}',
    found('[constructor]', '[__proto__]'),
  ],
  [
    'brackets 16 KiB deep are malformed, no worse',
    `{}\n${'['.repeat(ITEM_HEADER_BYTES_MAX)}\n`,
    NO_ITEM_HEADER,
  ],
  // ---- several items ----
  [
    'unknown types are skipped and counted in the index',
    '{}\n{"type":"session"}\n{"a":1}\n{"type":"event"}\n{}\n{"type":"attachment","length":3}\n\n\n\n\n{"type":"log"}\n[]',
    found('[session]', 'event@1:{}', '[attachment]', 'log@3:[]'),
  ],
  [
    'a replay recording holds newlines and binary',
    '{}\n{"type":"replay_event"}\n{"r":1}\n{"type":"replay_recording","length":9}\n{"s":0}\n\n\n',
    found('replay_event@0:{"r":1}', 'replay_recording@1:{"s":0}\n\n'),
  ],
  [
    'events and transactions may be several',
    '{}\n{"type":"event"}\n{}\n{"type":"transaction"}\n[]\n{"type":"event"}\n{"a":1}',
    found('event@0:{}', 'transaction@1:[]', 'event@2:{"a":1}'),
  ],
  [
    'as many items as are allowed',
    `{}${items(ITEMS_MAX)}`,
    found(...Array.from({ length: ITEMS_MAX }, (_, i) => `log@${i}:{}`)),
  ],
  ['one item more is malformed', `{}${items(ITEMS_MAX + 1)}`, TOO_MANY],
  [
    'skipped items count as items',
    `{}${items(ITEMS_MAX - 1)}${'\n{"type":"session"}\n{}'.repeat(2)}`,
    TOO_MANY,
  ],
  [
    'item headers at their bound together',
    `{}${longHeaders(ITEM_HEADERS_BYTES_MAX)}`,
    found(...Array.from({ length: ITEM_HEADERS_BYTES_MAX / ITEM_HEADER_BYTES_MAX }, (_, i) => `log@${i}:{}`)),
  ],
  [
    'item headers over their bound together are malformed',
    `{}${longHeaders(ITEM_HEADERS_BYTES_MAX)}\n{"type":"log"}\n{}`,
    LONG_TOGETHER,
  ],
  [
    'headers of skipped items count too',
    `{}${longHeaders(ITEM_HEADERS_BYTES_MAX)}\n{"type":"x"}\n{}`,
    LONG_TOGETHER,
  ],
];
