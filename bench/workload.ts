/**
 * What is sent: a seeded mix of envelopes in the manner of several SDKs, to several projects of unequal size.
 * Everything is made before the first request, and `checksum` proves that two runs did the same work.
 */
import { crc32 } from 'node:zlib';
import { type Body, type Encoding, makeBody, stamped, withId } from './load/body.ts';
import {
  isOtlp,
  OTLP_PATHS,
  OTLP_TYPES,
  type OtlpEncoding,
  type OtlpKind,
  otlpBody,
  otlpEventId,
} from './otlp.ts';
import {
  attachmentPayload,
  checkInPayload,
  clientReportPayload,
  eventPayload,
  feedbackPayload,
  ID_PLACEHOLDER,
  logPayload,
  padded,
  recordingPayload,
  replayEventPayload,
  sessionPayload,
  spanPayload,
  transactionPayload,
} from './payloads.ts';
import { drawTable, integer, type Random, seededRandom, zipf } from './random.ts';

/**
 * What can be in a mix. Those from `session` to `attachment` are stored only where the server's SLUICE_STORE_TYPES names them. Those of
 * OTLP are no envelopes.
 */
export const KINDS = [
  'event',
  'transaction',
  'log',
  'replay',
  'large',
  'span',
  'session',
  'check_in',
  'feedback',
  'client_report',
  'attachment',
  'otlp-traces',
  'otlp-logs',
] as const;
export type Kind = (typeof KINDS)[number];
export type Mix = Partial<Record<Kind, number>>;

/** The canonical mix: what a service with browsers, servers and replay switched on receives. */
export const CANONICAL_MIX: Mix = { event: 60, transaction: 25, log: 10, replay: 5 };

/** `prefix`: the path before /api, as in `/sluice`. */
export type Target = { id: string; key: string; prefix?: string | undefined };
/** A recorded envelope whose id is the placeholder. */
export type Recorded = { kind: string; envelope: Buffer };
/** Payloads of about so many bytes, with a weight. */
export type Size = { bytes: number; weight: number };
export type WorkloadOptions = {
  seed: number;
  mix: Mix;
  /** `sdk`: as the SDKs do, about a fifth of the requests gzip; else every body alike. */
  encoding: Encoding | 'sdk';
  targets: readonly Target[];
  /** Every target alike; else by Zipf's law. */
  even?: boolean | undefined;
  /** Host header. */
  host: string;
  /** Of each server, when several share the load. */
  hosts?: readonly string[] | undefined;
  keepAlive: boolean;
  /** Further header lines, as in `X-Real-Ip: 192.0.2.1`. */
  headers?: readonly string[] | undefined;
  /** How events and transactions are padded. */
  sizes?: readonly Size[] | undefined;
  /** Sent instead of the mix. */
  corpus?: readonly Recorded[] | undefined;
  /** The first 24 digits of every id. */
  idPrefix?: string | undefined;
};

/** How one family of SDKs sends (share in percent). */
type Manner = {
  share: number;
  auth: 'query' | 'header';
  length: boolean;
  finalNewline: boolean;
  chunked: boolean;
  encoding: Encoding;
  contentType: string | undefined;
};
const MANNERS: readonly Manner[] = [
  {
    share: 50,
    auth: 'query',
    length: false,
    finalNewline: false,
    chunked: false,
    encoding: 'none',
    contentType: 'text/plain;charset=UTF-8',
  },
  {
    share: 20,
    auth: 'query',
    length: false,
    finalNewline: false,
    chunked: true,
    encoding: 'none',
    contentType: undefined,
  },
  {
    share: 20,
    auth: 'header',
    length: true,
    finalNewline: true,
    chunked: false,
    encoding: 'gzip',
    contentType: 'application/x-sentry-envelope',
  },
  {
    share: 10,
    auth: 'header',
    length: true,
    finalNewline: true,
    chunked: false,
    encoding: 'none',
    contentType: 'application/x-sentry-envelope',
  },
];

/** How OpenTelemetry's exporters send: the most as protobuf, collectors in gzip. */
const OTLP_MANNERS: readonly (Manner & { otlp: OtlpEncoding })[] = (
  [
    [40, 'protobuf', 'none'],
    [30, 'protobuf', 'gzip'],
    [20, 'json', 'none'],
    [10, 'json', 'gzip'],
  ] as const
).map(([share, otlp, encoding]) => ({
  ...{ share, auth: 'header', length: false, finalNewline: false, chunked: false },
  ...{ otlp, encoding, contentType: OTLP_TYPES[otlp] },
}));

/** Different bodies per workload: enough that no cache of the processor or the CPU is flattered, few enough to be made at once. */
const BODIES = 256;
/** Large ones are megabytes. */
const LARGE_BODIES = 8;
const LARGE_BYTES_MIN = 500_000;
const DRAW_ENTRIES = 65_536;
/** Without a divisor in common with the usual numbers of bodies. */
const SIZE_STRIDE = 97;

type Item = { header: Record<string, unknown>; payload: Buffer };

const SIMPLE: Partial<Record<Kind, (random: Random) => string>> = {
  session: sessionPayload,
  check_in: checkInPayload,
  feedback: feedbackPayload,
  client_report: clientReportPayload,
};
const SIZED: Partial<Record<Kind, (random: Random) => string>> = {
  event: eventPayload,
  transaction: transactionPayload,
};

function containerOf(type: 'log' | 'span', random: Random): Item {
  const count = integer(random, 5, 15);
  const header = { type, item_count: count, content_type: CONTAINER_TYPES[type] };
  const payload = type === 'log' ? logPayload(random, count) : spanPayload(random, count);
  return { header, payload: Buffer.from(payload) };
}
const CONTAINER_TYPES = {
  log: 'application/vnd.sentry.items.log+json',
  span: 'application/vnd.sentry.items.span.v2+json',
};

/** @param size 0 as it comes */
export function itemsOf(kind: Kind, random: Random, size = 0): Item[] {
  const sized = SIZED[kind];
  if (sized) return [{ header: { type: kind }, payload: Buffer.from(padded(random, sized(random), size)) }];
  const simple = SIMPLE[kind];
  if (simple) return [{ header: { type: kind }, payload: Buffer.from(simple(random)) }];
  if (kind === 'log' || kind === 'span') return [containerOf(kind, random)];
  if (kind === 'attachment')
    return [{ header: { type: kind, filename: 'report.bin' }, payload: attachmentPayload(random) }];
  const segment = integer(random, 0, 50);
  // gzip takes the text of a recording to about a quarter: a large one is 0.75 to 2 MB.
  const raw = kind === 'large' ? integer(random, 3, 8) * 1024 * 1024 : integer(random, 8, 48) * 1024;
  return [
    { header: { type: 'replay_event' }, payload: Buffer.from(replayEventPayload(random, segment)) },
    { header: { type: 'replay_recording' }, payload: recordingPayload(random, segment, raw) },
  ];
}

const NEEDS_LENGTH: readonly unknown[] = ['replay_recording', 'attachment'];

function envelopeOf(kind: Kind, manner: Manner, { random, size }: { random: Random; size: number }): Buffer {
  const header = {
    event_id: ID_PLACEHOLDER,
    sent_at: '2026-01-01T00:00:00.000Z',
    sdk: { name: 'sentry.javascript.browser', version: '10.0.0' },
  };
  const parts: Buffer[] = [Buffer.from(JSON.stringify(header))];
  for (const { header: item, payload } of itemsOf(kind, random, size)) {
    const length = manner.length || NEEDS_LENGTH.includes(item.type) ? { length: payload.length } : {};
    parts.push(Buffer.from(`\n${JSON.stringify({ ...item, ...length })}\n`), payload);
  }
  if (manner.finalNewline) parts.push(Buffer.from('\n'));
  return Buffer.concat(parts);
}

const KEY_QUERY = 'sentry_version=7&sentry_client=bench%2F1&sentry_key=';

/** Behind `/api/{project}`. */
const ENVELOPE_PATH = '/envelope/';
type Way = `${Manner['auth']} ${string}`;
const wayOf = (auth: Manner['auth'], kind: string): Way =>
  `${auth} ${isOtlp(kind) ? OTLP_PATHS[kind] : ENVELOPE_PATH}`;

function requestLines(
  { id, key, prefix = '' }: Target,
  way: Way,
  { host, keepAlive, headers = [] }: WorkloadOptions,
): Buffer {
  const [auth, path] = way.split(' ');
  const query = auth === 'query' ? `?${KEY_QUERY}${key}` : '';
  const header = `X-Sentry-Auth: Sentry sentry_version=7, sentry_client=bench/1, sentry_key=${key}\r\n`;
  return Buffer.from(
    `POST ${prefix}/api/${id}${path}${query} HTTP/1.1\r\nHost: ${host}\r\nUser-Agent: sluice-bench/1\r\nAccept: */*\r\n` +
      (keepAlive ? '' : 'Connection: close\r\n') +
      headers.map((line) => `${line}\r\n`).join('') +
      (auth === 'header' ? header : ''),
  );
}

/**
 * One request to be sent: `lines` and then a copy of `body`. `kind` and `project` are places in the lists. `eventIdOf`, of a request
 * of OTLP: the event id that the server makes of it.
 */
export type Drawn = {
  lines: Buffer;
  body: Body;
  kind: number;
  project: number;
  eventIdOf?: ((count: number) => string) | undefined;
};

/** `lines`: for each host those of all projects. `plain`: of OTLP, the body before compression. */
type Prepared = { body: Body; lines: readonly Buffer[]; kind: number; plain?: { bytes: Buffer; id: string } };

export class Workload {
  readonly #bodies: Prepared[] = [];
  readonly #lines = new Map<Way, readonly Buffer[]>();
  readonly #projects: Uint16Array;
  readonly #targets: readonly Target[];
  readonly #random: Random;
  #crc: number;
  readonly kinds: readonly string[];
  /** Bytes of the largest request. */
  readonly requestBytesMax: number;
  readonly requestBytesMean: number;
  /** CRC-32 over every body and the draw of projects, in hex. */
  readonly checksum: string;

  constructor(options: WorkloadOptions) {
    const random = seededRandom(options.seed);
    const { targets, corpus } = options;
    const weights = options.even ? new Array<number>(targets.length).fill(1) : zipf(targets.length);
    this.#projects = drawTable(weights, DRAW_ENTRIES);
    this.#targets = targets;
    this.#crc = crc32(Buffer.from(this.#projects.buffer));
    if (corpus) {
      this.kinds = [...new Set(corpus.map(({ kind }) => kind))];
      this.#replay(corpus, options);
    } else {
      this.kinds = Object.keys(options.mix);
      this.#makeMix(options, random);
    }
    this.#random = seededRandom(options.seed + 1);
    this.checksum = this.#crc.toString(16).padStart(8, '0');
    const lengths = this.#bodies.map(({ body }) => body.bytes.length);
    const most = (numbers: readonly number[]): number => numbers.reduce((a, b) => Math.max(a, b), 0);
    const lines = most([...this.#lines.values()].flat().map(({ length }) => length));
    this.requestBytesMax = most(lengths) + lines;
    this.requestBytesMean = lengths.reduce((a, b) => a + b, 0) / lengths.length + lines;
  }

  #makeMix(options: WorkloadOptions, random: Random): void {
    const kinds = Object.entries(options.mix) as [Kind, number][];
    const sum = kinds.reduce((total, [, weight]) => total + weight, 0);
    for (const [at, [kind, weight]] of kinds.entries()) {
      const wanted = Math.max(4, Math.round((BODIES * weight) / sum));
      if (isOtlp(kind)) {
        this.#makeOtlp(kind, wanted, { random, options });
        continue;
      }
      const isLarge = kind === 'large' || options.sizes?.every(({ bytes }) => bytes >= LARGE_BYTES_MIN);
      const count = isLarge ? LARGE_BODIES : wanted;
      const sizes = sizesOf(options.sizes, count);
      for (const [n, manner] of mannersOf(count, MANNERS).entries())
        this.#add(envelopeOf(kind, manner, { random, size: sizes[n] ?? 0 }), manner, { kind: at, options });
    }
  }

  #makeOtlp(
    kind: OtlpKind,
    count: number,
    { random, options }: { random: Random; options: WorkloadOptions },
  ): void {
    for (const manner of mannersOf(count, OTLP_MANNERS))
      this.#add(otlpBody(kind, manner.otlp, random), manner, { kind: this.kinds.indexOf(kind), options });
  }

  #replay(corpus: readonly Recorded[], options: WorkloadOptions): void {
    // Every recorded envelope in every manner would be many megabytes: the manners take turns.
    const manners = mannersOf(corpus.length, MANNERS);
    for (const [n, { kind, envelope }] of corpus.entries())
      this.#add(envelope, manners[n] as Manner, { kind: this.kinds.indexOf(kind), options });
  }

  #add(
    envelope: Buffer,
    manner: Manner,
    { kind, options }: { kind: number; options: WorkloadOptions },
  ): void {
    const encoding = options.encoding === 'sdk' ? manner.encoding : options.encoding;
    const name = this.kinds[kind] as string;
    const how = { ...manner, encoding, isEnvelope: !isOtlp(name) };
    const plain = makeBody(envelope, how);
    // Whatever the ids are, the same seed has the same checksum.
    this.#crc = crc32(plain.bytes, this.#crc);
    const { idPrefix } = options;
    const id = idPrefix ? `${idPrefix}00000000` : ID_PLACEHOLDER;
    const bytes = idPrefix ? withId(envelope, id) : envelope;
    const body = idPrefix ? makeBody(bytes, { ...how, id }) : plain;
    const lines = this.#linesOf(wayOf(manner.auth, name), options);
    this.#bodies.push({ body, lines, kind, ...(isOtlp(name) && { plain: { bytes, id } }) });
  }

  #linesOf(way: Way, options: WorkloadOptions): readonly Buffer[] {
    const known = this.#lines.get(way);
    if (known) return known;
    const { targets, hosts = [options.host] } = options;
    const lines = hosts.flatMap((host) =>
      targets.map((target) => requestLines(target, way, { ...options, host })),
    );
    this.#lines.set(way, lines);
    return lines;
  }

  /** The next request of the sequence that the seed decides, to one of the hosts. */
  draw(host = 0): Drawn {
    const { body, lines, kind, plain } = this.#bodies[(this.#random() * this.#bodies.length) | 0] as Prepared;
    const project = this.#projects[(this.#random() * DRAW_ENTRIES) | 0] as number;
    const drawn: Drawn = {
      lines: lines[host * this.#targets.length + project] as Buffer,
      body,
      kind,
      project,
    };
    if (plain)
      drawn.eventIdOf = (count) =>
        otlpEventId(
          this.kinds[kind] as OtlpKind,
          (this.#targets[project] as Target).id,
          stamped(plain.bytes, plain.id, count),
        );
    return drawn;
  }
}

function mannersOf<T extends Manner>(count: number, manners: readonly T[]): T[] {
  const table = drawTable(
    manners.map(({ share }) => share),
    count,
  );
  return Array.from({ length: count }, (_, n) => manners[table[n] ?? 0] as T);
}

/** Of each body, so that every manner has every size. */
function sizesOf(sizes: readonly Size[] | undefined, count: number): number[] {
  if (!sizes) return [];
  const table = drawTable(
    sizes.map(({ weight }) => weight),
    count,
  );
  return Array.from({ length: count }, (_, n) => sizes[table[(n * SIZE_STRIDE) % count] ?? 0]?.bytes ?? 0);
}

/** `canonical`, one kind, or weights such as `event=80,replay=20`. @throws Error for anything else */
export function parseMix(text: string): Mix {
  if (text === 'canonical') return CANONICAL_MIX;
  const mix: Mix = {};
  for (const part of text.split(',')) {
    const [kind = '', weight = '1'] = part.split('=');
    if (!KINDS.some((known) => known === kind) || !(Number(weight) > 0) || Number(weight) === Infinity)
      throw new Error(
        `--mix: canonical, or a list of ${KINDS.join(', ')} with weights, as in event=80,replay=20`,
      );
    mix[kind as Kind] = Number(weight);
  }
  return mix;
}
