/**
 * Envelopes and requests of OTLP that went wrong in every way that a seed can think of. What is damaged
 * at random has no certain answer, except that it must be a documented one; grammar.ts makes envelopes
 * whose answer is certain.
 */
import zlib, { brotliCompressSync, constants, deflateSync, gzipSync } from 'node:zlib';
import {
  eventPayload,
  logPayload,
  recordingPayload,
  replayEventPayload,
  spanPayload,
  transactionPayload,
} from '../payloads.ts';
import { hex, integer, pick, type Random } from '../random.ts';
import { field } from './attacks.ts';

const NEWLINE = 0x0a;
const ID = '9ec79c33ec9942ab8353589fcb2e04dc';
/** Whether this Node, which is also the worker's, knows zstd. */
export const HAS_ZSTD = 'createZstdDecompress' in zlib;
const ENCODINGS = ['', '', '', 'gzip', 'deflate', 'br', 'zstd', 'identity', 'utf-8', 'lzma'] as const;
export const COMPRESS: Readonly<Record<string, (bytes: Uint8Array) => Buffer>> = {
  gzip: (bytes) => gzipSync(bytes, { level: 1 }),
  deflate: (bytes) => deflateSync(bytes, { level: 1 }),
  br: (bytes) => brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } }),
  zstd: zstdRaw,
};

/** A zstd frame of one raw block, so that also Node 20 sends some. */
function zstdRaw(bytes: Uint8Array): Buffer {
  const word = bytes.length * 8 + 1;
  const head = [0x28, 0xb5, 0x2f, 0xfd, 0, 0x38, word & 255, (word >> 8) & 255, word >> 16];
  return Buffer.concat([Buffer.from(head), bytes]);
}

export const BODY_KINDS = ['envelopes', 'otlp-json', 'otlp-protobuf'] as const;
export type BodyKind = (typeof BODY_KINDS)[number];

/** A body that is taken as it is. */
type Sound = {
  body: Buffer;
  /** Address below that of the project; undefined: that of envelopes. */
  door?: string;
  contentType?: string;
};

/** Requests of OTLP for both signals, in two scopes. Ingest takes them; some of their records are sound, others odd. */
function otlpCorpus(random: Random): Record<'otlp-json' | 'otlp-protobuf', Sound[]> {
  const text = (): string => hex(random, integer(random, 1, 200));
  const attributes = () => [
    { key: text(), value: { stringValue: text() } },
    { key: 'é"\\', value: {} },
  ];
  const id = (bytes: number): string => hex(random, 2 * bytes);
  const scopes = (records: string): object => ({
    resource: { attributes: attributes() },
    [records === 'spans' ? 'scopeSpans' : 'scopeLogs']: [
      {
        [records]: [
          {
            ...{ traceId: id(16), spanId: id(8), name: text() },
            ...{ body: { stringValue: text() }, attributes: attributes() },
          },
          {},
        ],
      },
      { scope: { name: text() }, [records]: [{ droppedAttributesCount: 1e-3, flags: null }] },
    ],
  });
  const bytes = (hexDigits: string): Buffer => Buffer.from(hexDigits, 'hex');
  const textField = (number: number): Buffer => field(number, Buffer.from(text()));
  const started = Buffer.concat([Buffer.from([0x39]), Buffer.alloc(8, 7)]);
  const span = (): Buffer =>
    Buffer.concat([field(1, bytes(id(16))), field(2, bytes(id(8))), textField(5), started]);
  const log = (): Buffer =>
    Buffer.concat([field(5, textField(1)), field(9, bytes(id(16))), field(10, bytes(id(8)))]);
  const protobuf = (record: () => Buffer): Buffer => {
    const scope = (): Buffer =>
      Buffer.concat([field(1, textField(1)), field(2, record()), field(2, Buffer.alloc(0))]);
    return field(1, Buffer.concat([field(1, field(1, textField(1))), field(2, scope()), field(2, scope())]));
  };
  const json = (list: string, records: string): Buffer =>
    Buffer.from(JSON.stringify({ [list]: [scopes(records)] }));
  const doorOf = (signal: string): string => `/integration/otlp/v1/${signal}/`;
  const both = (contentType: string, traces: Buffer, logs: Buffer): Sound[] => [
    { door: doorOf('traces'), contentType, body: traces },
    { door: doorOf('logs'), contentType, body: logs },
  ];
  return {
    'otlp-json': both('application/json', json('resourceSpans', 'spans'), json('resourceLogs', 'logRecords')),
    'otlp-protobuf': both('application/x-protobuf', protobuf(span), protobuf(log)),
  };
}

/** Sound bodies by kind, from which all others are made. */
export const corpus = (random: Random): Record<BodyKind, Sound[]> => ({
  envelopes: envelopes(random).map((body) => ({ body })),
  ...otlpCorpus(random),
});

function envelopes(random: Random): Buffer[] {
  const item = (header: object, payload: string | Uint8Array, sized = false): Buffer => {
    const bytes = Buffer.from(payload as string);
    const whole = sized ? { ...header, length: bytes.length } : header;
    return Buffer.concat([Buffer.from(`\n${JSON.stringify(whole)}\n`), bytes]);
  };
  const of = (...items: Buffer[]): Buffer =>
    Buffer.concat([
      Buffer.from(JSON.stringify({ event_id: ID, sdk: { name: 'a', version: '1' } })),
      ...items,
    ]);
  const replay = item({ type: 'replay_event' }, replayEventPayload(random, 0));
  return [
    of(item({ type: 'event' }, eventPayload(random))),
    of(item({ type: 'event' }, eventPayload(random), true), item({ type: 'attachment' }, 'abc\ndef', true)),
    of(item({ type: 'transaction' }, transactionPayload(random), true)),
    of(item({ type: 'log', item_count: 3 }, logPayload(random, 3))),
    of(item({ type: 'span', item_count: 3 }, spanPayload(random, 3), true)),
    of(replay, item({ type: 'replay_recording' }, recordingPayload(random, 0, 4096), true)),
    of(item({ type: 'session' }, '{}'), item({ type: 'client_report' }, '{}'), Buffer.from('\n')),
    Buffer.from('{}'),
  ];
}

type Mutation = (bytes: Buffer, random: Random) => Buffer;

function span(bytes: Buffer, random: Random): [from: number, to: number] {
  const from = integer(random, 0, bytes.length);
  return [from, Math.min(bytes.length, from + integer(random, 1, 64))];
}

const lines = (bytes: Buffer): Buffer[] => {
  const found: Buffer[] = [];
  for (let at = 0; at <= bytes.length; ) {
    const end = bytes.indexOf(NEWLINE, at);
    found.push(bytes.subarray(at, end < 0 ? bytes.length : end));
    if (end < 0) break;
    at = end + 1;
  }
  return found;
};
const joined = (parts: readonly Buffer[]): Buffer =>
  Buffer.concat(parts.flatMap((part, at) => (at === 0 ? [part] : [Buffer.of(NEWLINE), part])));
const noise = (length: number, random: Random): Buffer =>
  Buffer.from(Array.from({ length }, () => integer(random, 0, 255)));

const MUTATIONS: Readonly<Record<string, Mutation>> = {
  none: (bytes) => bytes,
  flip: (bytes, random) => {
    const flipped = Buffer.from(bytes);
    for (let left = integer(random, 1, 8); left > 0 && flipped.length > 0; left--) {
      const at = integer(random, 0, flipped.length - 1);
      flipped[at] = (flipped[at] as number) ^ (1 << integer(random, 0, 7));
    }
    return flipped;
  },
  cutEnd: (bytes, random) => bytes.subarray(0, integer(random, 0, bytes.length)),
  cutStart: (bytes, random) => bytes.subarray(integer(random, 0, bytes.length)),
  cutMiddle: (bytes, random) => {
    const [from, to] = span(bytes, random);
    return Buffer.concat([bytes.subarray(0, from), bytes.subarray(to)]);
  },
  repeat: (bytes, random) => {
    const [from, to] = span(bytes, random);
    return Buffer.concat([bytes.subarray(0, to), bytes.subarray(from)]);
  },
  insert: (bytes, random) => {
    const at = integer(random, 0, bytes.length);
    return Buffer.concat([bytes.subarray(0, at), noise(integer(random, 1, 32), random), bytes.subarray(at)]);
  },
  doubleLine: (bytes, random) => {
    const all = lines(bytes);
    const at = integer(random, 0, all.length - 1);
    return joined([...all.slice(0, at), all[at] as Buffer, ...all.slice(at)]);
  },
  dropLine: (bytes, random) => {
    const all = lines(bytes);
    all.splice(integer(random, 0, all.length - 1), 1);
    return joined(all);
  },
  swapLines: (bytes, random) => {
    const all = lines(bytes);
    const [a, b] = [integer(random, 0, all.length - 1), integer(random, 0, all.length - 1)];
    [all[a], all[b]] = [all[b] as Buffer, all[a] as Buffer];
    return joined(all);
  },
  length: (bytes, random) => {
    const wrong = pick(random, [
      '-1',
      '0',
      '1',
      '1e3',
      '1.5',
      'null',
      '"5"',
      '999999999999',
      '9007199254740993',
      '{}',
    ]);
    const text = bytes.toString('latin1');
    return Buffer.from(text.replace(/"length":\d+/, `"length":${wrong}`), 'latin1');
  },
  header: (bytes, random) => {
    const wrong = pick(random, [
      '[]',
      'null',
      '"x"',
      '{',
      '{"event_id":5}',
      '{"event_id":"xyz"}',
      '{"__proto__":{"a":1}}',
      '',
    ]);
    return Buffer.concat([Buffer.from(wrong), bytes.subarray(Math.max(0, bytes.indexOf(NEWLINE)))]);
  },
  carriageReturns: (bytes) => Buffer.from(bytes.toString('latin1').replaceAll('\n', '\r\n'), 'latin1'),
  tail: (bytes, random) => Buffer.concat([bytes, Buffer.from('\n'.repeat(integer(random, 1, 4)))]),
  manyItems: (bytes, random) =>
    Buffer.concat([bytes, Buffer.from('\n{"type":"session"}\n{}'.repeat(integer(random, 90, 110)))]),
  deep: (bytes, random) =>
    Buffer.concat([bytes, Buffer.from(`\n${'['.repeat(integer(random, 100, 16_000))}`)]),
  noise: (_bytes, random) => noise(integer(random, 0, 512), random),
};
const NAMES = Object.keys(MUTATIONS);

export type Mutant = Sound & {
  encoding: string;
  /** Sizes of the chunks it is sent in; empty: with a Content-Length. */
  chunks: number[];
  /** Whether it must be taken; undefined where that is not known. */
  isSound?: boolean | undefined;
  /** What was done to it, for the report of a surprise. */
  how: string;
};

export function cuts(length: number, random: Random): number[] {
  if (length === 0 || random() < 0.6) return [];
  const sizes: number[] = [];
  for (let left = length; left > 0; ) {
    const size = sizes.length < 40 ? Math.min(left, integer(random, 1, Math.ceil(length / 3))) : left;
    sizes.push(size);
    left -= size;
  }
  return sizes;
}

/** Mutated before it is compressed, after, or both; or under the name of another encoding. */
export function mutant(sound: readonly Sound[], random: Random): Mutant {
  const before = Array.from({ length: integer(random, 0, 2) }, () => pick(random, NAMES));
  const encoding = pick(random, ENCODINGS);
  const after = encoding !== '' && random() < 0.4 ? [pick(random, NAMES)] : [];
  const whole = pick(random, sound);
  let { body } = whole;
  for (const name of before) body = (MUTATIONS[name] as Mutation)(body, random);
  const isMislabelled = random() < 0.05;
  if (!isMislabelled) body = COMPRESS[encoding]?.(body) ?? body;
  for (const name of after) body = (MUTATIONS[name] as Mutation)(body, random);
  const how = [...before, isMislabelled ? `not ${encoding}` : encoding || 'plain', ...after].join(', ');
  const isDamaged = isMislabelled || [...before, ...after].some((name) => name !== 'none');
  const isKnown = encoding !== 'lzma' && (encoding !== 'zstd' || HAS_ZSTD);
  const isSound = isDamaged || !isKnown ? undefined : true;
  return { ...whole, body, encoding, chunks: cuts(body.length, random), isSound, how };
}
