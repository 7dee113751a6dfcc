/**
 * Envelopes that a seed derives from the grammar of docs/protocol.md (3.1 to 3.5), each with what sluice must make of it. An envelope
 * has at most one fault, so its answer is certain.
 */
import zlib from 'node:zlib';
import { hex, integer, pick, type Random } from '../random.ts';
import { COMPRESS, HAS_ZSTD } from './mutate.ts';

export type Derived = {
  body: Buffer;
  encoding: string;
  /** Items to be stored, payloads in latin1; undefined: the envelope must be refused. */
  stored: { type: string; payload: string }[] | undefined;
  /** Undefined: sluice makes one. */
  eventId: string | undefined;
  how: string;
};
type Member = readonly [name: string, json: string];

const NEWLINE = Buffer.from('\n');
const HEADER_BYTES_MAX = 16 * 1024;
const STORED = ['event', 'transaction', 'span', 'log', 'replay_event', 'replay_recording'];
const DROPPED = [
  ...['session', 'sessions', 'client_report', 'check_in', 'attachment', 'user_report', 'trace_metric'],
  ...['otlp_traces', 'statsd', 'unknown', 'Event', 'LOG', 'event ', '', 'constructor', '__proto__', 'é\0'],
];
const NO_TYPES = ['null', '5', 'true', '["event"]', '{"type":"event"}'];
const NO_LENGTHS = ['-1', '1.5', '"3"', 'true', '[3]', '{}', '9007199254740992', '1e400', '-1e400'];
const NO_IDS = [
  '"42"',
  '5',
  'true',
  '[]',
  '{}',
  '""',
  '"\\ud800"',
  `"${'g'.repeat(32)}"`,
  `"${'a'.repeat(33)}"`,
];
const deep = (levels: number): string => '['.repeat(levels) + ']'.repeat(levels);
/** Members that change nothing. */
const NOISE: readonly Member[] = [
  ['sent_at', '"2026-11-28T00:00:00Z"'],
  ['sent_at', '{}'],
  ['sdk', '{"name":"\\u0000","version":[]}'],
  ['dsn', '"\\ud800"'],
  ['item_count', '3'],
  ['item_count', '-1.5'],
  ['content_type', '"application/vnd.sentry.items.log+json"'],
  ['filename', '"a\\nb"'],
  ['__proto__', '{"type":"event","length":3,"event_id":"x"}'],
  ['constructor', 'null'],
  ['x', deep(200)],
];
const SPACE = ['', '', '', ' ', '\t', '\r'];

function nameOf(name: string, random: Random): string {
  if (random() < 0.9) return JSON.stringify(name);
  const at = integer(random, 0, name.length - 1);
  const code = name.charCodeAt(at).toString(16).padStart(4, '0');
  return `"${name.slice(0, at)}\\u${code}${name.slice(at + 1)}"`;
}

/** An object with these members and noise. Of two members of one name the last counts, so their order stays. */
function objectOf(members: readonly Member[], random: Random): Buffer {
  const all = [...members];
  while (random() < 0.3) all.splice(integer(random, 0, all.length), 0, pick(random, NOISE));
  const space = (): string => pick(random, SPACE);
  const texts = all.map(
    ([name, json]) => `${space()}${nameOf(name, random)}${space()}:${space()}${json}${space()}`,
  );
  return Buffer.from(`{${texts.join(',')}}`);
}

/** @param line a JSON object */
const LINE_FAULTS: Readonly<Record<string, (line: Buffer) => Buffer>> = {
  'a byte order mark': (line) => Buffer.concat([Buffer.of(0xef, 0xbb, 0xbf), line]),
  'a NUL': (line) => Buffer.concat([line, Buffer.of(0)]),
  'a surrogate in UTF-8': (line) =>
    Buffer.concat([Buffer.from('{"a":"'), Buffer.of(0xed, 0xa0, 0x80), Buffer.from('",'), line.subarray(1)]),
  'a comma too many': (line) => Buffer.concat([line.subarray(0, -1), Buffer.from(',}')]),
  'a missing end': (line) => line.subarray(0, -1),
  'a line feed inside': (line) => Buffer.concat([Buffer.from('{\n'), line.subarray(1)]),
  'two objects': (line) => Buffer.concat([line, line]),
  'a list': (line) => Buffer.from(`[${line}]`),
  'an empty line': () => Buffer.alloc(0),
  'brackets without an end': () => Buffer.from(`{"a":${'['.repeat(HEADER_BYTES_MAX - 5)}`),
  'a line too long': (line) =>
    Buffer.concat([line.subarray(0, -1), Buffer.alloc(HEADER_BYTES_MAX, ' '), Buffer.from('}')]),
};
const LINE_FAULT_NAMES = Object.keys(LINE_FAULTS);
const ITEM_FAULTS = ['no type', 'a wrong type', 'a wrong length', 'a length too long', 'a byte too many'];
const ENVELOPE_FAULTS = ['an empty body', 'a wrong id', 'two line feeds at the end', 'items too many'];

const PAYLOADS: readonly ((random: Random) => string)[] = [
  () => '',
  () => '{}',
  (random) => `{"message":"${hex(random, integer(random, 1, 300))}"}`,
  (random) => `{"items":[${Array.from({ length: integer(random, 0, 5) }, () => '{"body":"x"}').join(',')}]}`,
  (random) => `{"replay_id":"${hex(random, 32)}"}\n\0\x01\xff`,
  () => '{"discarded_events":[],"timestamp":1e400}',
  () => '{"check_in_id":null,"status":"ok"}\r',
  () => deep(2_000),
  () => '\n\n\n',
  () => '\xed\xa0\x80\xef\xbb\xbf\0',
];

type Item = { bytes: Buffer; stored: { type: string; payload: string }[]; mayEndInHeader: boolean };

function itemOf(random: Random, fault: string | undefined): Item {
  const type = pick(random, random() < 0.6 ? STORED : DROPPED);
  const payload = Buffer.from(pick(random, PAYLOADS)(random), 'latin1');
  const isLengthFault = fault === 'a length too long' || fault === 'a byte too many';
  const isSized = isLengthFault || payload.includes(NEWLINE) || random() < 0.5;
  const types: Member[] = fault === 'no type' ? [] : [['type', JSON.stringify(type)]];
  if (fault === 'a wrong type') types.push(['type', pick(random, NO_TYPES)]);
  else if (types.length > 0 && random() < 0.1) types.unshift(['type', pick(random, NO_TYPES)]);
  const lengths: Member[] = [];
  if (random() < 0.1) lengths.push(['length', pick(random, NO_LENGTHS)]);
  const tooMany = fault === 'a length too long' ? pick(random, [1, 2, 6_000_000]) : 0;
  if (fault === 'a wrong length') lengths.push(['length', pick(random, NO_LENGTHS)]);
  else if (isSized)
    lengths.push(['length', `${payload.length + tooMany}${pick(random, ['', '', '.0', 'e0'])}`]);
  else if (lengths.length > 0 || random() < 0.2) lengths.push(['length', 'null']);
  const line = objectOf(random() < 0.5 ? [...types, ...lengths] : [...lengths, ...types], random);
  const tail = fault === 'a byte too many' ? pick(random, ['x', '\r', '\0', ' ']) : '';
  return {
    bytes: Buffer.concat([LINE_FAULTS[fault ?? '']?.(line) ?? line, NEWLINE, payload, Buffer.from(tail)]),
    stored: STORED.includes(type) ? [{ type, payload: payload.toString('latin1') }] : [],
    mayEndInHeader: fault === undefined && payload.length === 0,
  };
}

const dashed = (id: string): string => id.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');

function idOf(random: Random): { members: Member[]; eventId: string | undefined } {
  const id = hex(random, 32);
  const decoy: Member[] = random() < 0.1 ? [['event_id', pick(random, NO_IDS)]] : [];
  const text = pick(random, [id, id.toUpperCase(), dashed(id), '0'.repeat(32), undefined]);
  if (text !== undefined) {
    const eventId = /^0+$/.test(text) ? undefined : id;
    return { members: [...decoy, ['event_id', `"${text}"`]], eventId };
  }
  return { members: decoy.length > 0 ? [...decoy, ['event_id', 'null']] : [], eventId: undefined };
}

type Coding = readonly [how: string, encoding: string, pack: (bytes: Buffer) => Buffer];
const packed = (name: string) => (bytes: Buffer) => (COMPRESS[name] as (typeof COMPRESS)[string])(bytes);
const gzip = packed('gzip');
const as = (name: string, encoding = name): Coding => [name, encoding, packed(name)];
const plain = (encoding: string): Coding => [encoding || 'plain', encoding, (bytes) => bytes];
const cut = (name: string, random: Random): Coding => [
  `${name} that is cut`,
  name,
  (bytes) => {
    const whole = packed(name)(bytes);
    return whole.subarray(0, integer(random, 1, whole.length - 1));
  },
];
const SOUND: readonly Coding[] = [
  ...[plain(''), plain(''), plain(''), plain('identity'), plain('utf-8')],
  ...[as('gzip'), as('gzip', 'x-gzip'), as('gzip', 'GZip'), as('deflate'), as('br')],
  ['deflate without zlib', 'deflate', (bytes) => zlib.deflateRawSync(bytes)],
  ...(HAS_ZSTD ? [as('zstd')] : []),
];
const unsound = (random: Random): readonly Coding[] => [
  ['gzip in gzip', 'gzip', (bytes) => gzip(gzip(bytes))],
  ['gzip twice', 'gzip, gzip', (bytes) => gzip(gzip(bytes))],
  ['gzip and a byte', 'gzip', (bytes) => Buffer.concat([gzip(bytes), Buffer.from('x')])],
  ['plain as gzip', 'gzip', (bytes) => bytes],
  ['gzip as br', 'br', gzip],
  ['gzip as plain', '', gzip],
  plain('lzma'),
  ...['gzip', 'deflate', 'br', 'zstd'].map((name) => cut(name, random)),
];

/** @returns about as many envelopes that are to be taken as such that are to be refused */
export function derivedEnvelope(random: Random): Derived {
  const { members, eventId } = idOf(random);
  const isFaulty = random() < 0.5;
  const place = isFaulty ? pick(random, ['envelope', 'header', 'item', 'item', 'coding']) : '';
  const lineFault = pick(random, LINE_FAULT_NAMES);
  const envelopeFault = place === 'envelope' ? pick(random, ENVELOPE_FAULTS) : undefined;
  const itemFault = place === 'item' ? pick(random, [lineFault, ...ITEM_FAULTS]) : undefined;
  if (envelopeFault === 'a wrong id') members.push(['event_id', pick(random, NO_IDS)]);
  const sound = objectOf(members, random);
  const header = place === 'header' ? (LINE_FAULTS[lineFault] as (typeof LINE_FAULTS)[string])(sound) : sound;
  const count = integer(random, itemFault ? 1 : 0, 4);
  const faulty = integer(random, 0, count - 1);
  const items = Array.from({ length: count }, (_, at) =>
    itemOf(random, at === faulty ? itemFault : undefined),
  );
  const parts = [header, ...items.flatMap(({ bytes }) => [NEWLINE, bytes])];
  // A faulty body has no line feed at its end: it could complete a length that is one too long.
  if (envelopeFault === 'two line feeds at the end') parts.push(NEWLINE, NEWLINE);
  else if (envelopeFault === 'items too many') parts.push(Buffer.from('\n{"type":"log"}\n{}'.repeat(1_001)));
  else if (place === 'header') parts.push(NEWLINE);
  else if (!isFaulty && random() < 0.5) parts.push(NEWLINE);
  let whole = Buffer.concat(parts);
  if (!isFaulty && items.at(-1)?.mayEndInHeader && random() < 0.5)
    whole = whole.subarray(0, whole.lastIndexOf('}') + 1);
  if (envelopeFault === 'an empty body') whole = Buffer.alloc(0);
  const [coded, encoding, pack] = pick(random, place === 'coding' ? unsound(random) : SOUND);
  return {
    body: pack(whole),
    encoding,
    stored: isFaulty ? undefined : items.flatMap(({ stored }) => stored),
    eventId,
    how: [
      envelopeFault,
      place === 'header' && `header: ${lineFault}`,
      itemFault && `item: ${itemFault}`,
      coded,
    ]
      .filter(Boolean)
      .join(', '),
  };
}
