/**
 * What is sent: a seeded mix of envelopes in the manner of several SDKs, to several projects of unequal size.
 * Everything is made before the first request, and `checksum` proves that two runs did the same work.
 */
import { crc32 } from 'node:zlib';
import { type Body, type Encoding, makeBody } from './load/body.ts';
import {
  eventPayload,
  ID_PLACEHOLDER,
  logPayload,
  recordingPayload,
  replayEventPayload,
  transactionPayload,
} from './payloads.ts';
import { drawTable, integer, type Random, seededRandom, zipf } from './random.ts';

export const KINDS = ['event', 'transaction', 'log', 'replay', 'large'] as const;
export type Kind = (typeof KINDS)[number];
export type Mix = Partial<Record<Kind, number>>;

/** The canonical mix: what a service with browsers, servers and replay switched on receives. */
export const CANONICAL_MIX: Mix = { event: 60, transaction: 25, log: 10, replay: 5 };

export type Target = { id: string; key: string };
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
  keepAlive: boolean;
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

/** Different bodies per workload: enough that no cache of the processor or the CPU is flattered, few enough to be made at once. */
const BODIES = 256;
/** Large ones are megabytes. */
const LARGE_BODIES = 8;
const DRAW_ENTRIES = 65_536;

type Item = { header: Record<string, unknown>; payload: Buffer };

export function itemsOf(kind: Kind, random: Random): Item[] {
  if (kind === 'event') return [{ header: { type: 'event' }, payload: Buffer.from(eventPayload(random)) }];
  if (kind === 'transaction')
    return [{ header: { type: 'transaction' }, payload: Buffer.from(transactionPayload(random)) }];
  if (kind === 'log') {
    const count = integer(random, 5, 15);
    const header = { type: 'log', item_count: count, content_type: 'application/vnd.sentry.items.log+json' };
    return [{ header, payload: Buffer.from(logPayload(random, count)) }];
  }
  const segment = integer(random, 0, 50);
  // gzip takes the text of a recording to about a quarter: a large one is 0.75 to 2 MB.
  const raw = kind === 'large' ? integer(random, 3, 8) * 1024 * 1024 : integer(random, 8, 48) * 1024;
  return [
    { header: { type: 'replay_event' }, payload: Buffer.from(replayEventPayload(random, segment)) },
    { header: { type: 'replay_recording' }, payload: recordingPayload(random, segment, raw) },
  ];
}

function envelopeOf(kind: Kind, manner: Manner, random: Random): Buffer {
  const header = {
    event_id: ID_PLACEHOLDER,
    sent_at: '2026-01-01T00:00:00.000Z',
    sdk: { name: 'sentry.javascript.browser', version: '10.0.0' },
  };
  const parts: Buffer[] = [Buffer.from(JSON.stringify(header))];
  for (const { header: item, payload } of itemsOf(kind, random)) {
    const length = manner.length || item.type === 'replay_recording' ? { length: payload.length } : {};
    parts.push(Buffer.from(`\n${JSON.stringify({ ...item, ...length })}\n`), payload);
  }
  if (manner.finalNewline) parts.push(Buffer.from('\n'));
  return Buffer.concat(parts);
}

const KEY_QUERY = 'sentry_version=7&sentry_client=bench%2F1&sentry_key=';

function requestLines({ id, key }: Target, auth: Manner['auth'], options: WorkloadOptions): Buffer {
  const query = auth === 'query' ? `?${KEY_QUERY}${key}` : '';
  const header = `X-Sentry-Auth: Sentry sentry_version=7, sentry_client=bench/1, sentry_key=${key}\r\n`;
  return Buffer.from(
    `POST /api/${id}/envelope/${query} HTTP/1.1\r\nHost: ${options.host}\r\nUser-Agent: sluice-bench/1\r\nAccept: */*\r\n` +
      (options.keepAlive ? '' : 'Connection: close\r\n') +
      (auth === 'header' ? header : ''),
  );
}

/** One request to be sent: `lines` and then a copy of `body`. */
export type Drawn = { lines: Buffer; body: Body };

export class Workload {
  readonly #bodies: { body: Body; auth: Manner['auth'] }[] = [];
  readonly #lines: Record<Manner['auth'], Buffer[]>;
  readonly #projects: Uint16Array;
  readonly #random: Random;
  /** Bytes of the largest request. */
  readonly requestBytesMax: number;
  readonly requestBytesMean: number;
  /** CRC-32 over every body and the draw of projects, in hex. */
  readonly checksum: string;

  constructor(options: WorkloadOptions) {
    const random = seededRandom(options.seed);
    const kinds = Object.entries(options.mix) as [Kind, number][];
    const sum = kinds.reduce((total, [, weight]) => total + weight, 0);
    for (const [kind, weight] of kinds) {
      const wanted = Math.max(4, Math.round((BODIES * weight) / sum));
      this.#make(kind, kind === 'large' ? LARGE_BODIES : wanted, { options, random });
    }
    this.#lines = {
      query: options.targets.map((target) => requestLines(target, 'query', options)),
      header: options.targets.map((target) => requestLines(target, 'header', options)),
    };
    const ranks = options.targets.length;
    const weights = options.even ? new Array<number>(ranks).fill(1) : zipf(ranks);
    this.#projects = drawTable(weights, DRAW_ENTRIES);
    this.#random = seededRandom(options.seed + 1);
    let crc = crc32(Buffer.from(this.#projects.buffer));
    for (const { body } of this.#bodies) crc = crc32(body.bytes, crc);
    this.checksum = crc.toString(16).padStart(8, '0');
    const lengths = this.#bodies.map(({ body }) => body.bytes.length);
    const lines = Math.max(...[...this.#lines.query, ...this.#lines.header].map(({ length }) => length));
    this.requestBytesMax = Math.max(...lengths) + lines;
    this.requestBytesMean = lengths.reduce((a, b) => a + b, 0) / lengths.length + lines;
  }

  #make(kind: Kind, count: number, { options, random }: { options: WorkloadOptions; random: Random }): void {
    const manners = drawTable(
      MANNERS.map(({ share }) => share),
      count,
    );
    for (let n = 0; n < count; n++) {
      const manner = MANNERS[manners[n] ?? 0] as Manner;
      const encoding = options.encoding === 'sdk' ? manner.encoding : options.encoding;
      const body = makeBody(envelopeOf(kind, manner, random), { ...manner, encoding });
      this.#bodies.push({ body, auth: manner.auth });
    }
  }

  /** The next request of the sequence that the seed decides. */
  draw(): Drawn {
    const { body, auth } = this.#bodies[(this.#random() * this.#bodies.length) | 0] as {
      body: Body;
      auth: Manner['auth'];
    };
    const project = this.#projects[(this.#random() * DRAW_ENTRIES) | 0] as number;
    return { lines: this.#lines[auth][project] as Buffer, body };
  }
}

/** `canonical`, one kind, or weights such as `event=80,replay=20`. @throws Error for anything else */
export function parseMix(text: string): Mix {
  if (text === 'canonical') return CANONICAL_MIX;
  const mix: Mix = {};
  for (const part of text.split(',')) {
    const [kind = '', weight = '1'] = part.split('=');
    if (!KINDS.some((known) => known === kind) || !(Number(weight) > 0))
      throw new Error(
        `--mix: canonical, or a list of ${KINDS.join(', ')} with weights, as in event=80,replay=20`,
      );
    mix[kind as Kind] = Number(weight);
  }
  return mix;
}
