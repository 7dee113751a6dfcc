/** OTLP over HTTP: what is answered, in the encoding of the request, and what is counted and stored. */
import { createHash } from 'node:crypto';
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Project } from '../../src/projects/project.ts';
import { RUNTIME_HAS_ZSTD, zstdBlocks, zstdCompressSync } from '../ingest/envelope/zstd-bytes.ts';
import { System, until } from '../support/system.ts';

const PROTOBUF = 'application/x-protobuf';
const JSON_TYPE = 'application/json';
const TYPES = [PROTOBUF, JSON_TYPE] as const;
type ContentType = (typeof TYPES)[number];

let system: System;
let project: Project;
beforeAll(async () => {
  const env = { SLUICE_STORE_TYPES: 'otlp_metrics', SLUICE_TRUSTED_PROXIES: '127.0.0.1' };
  system = await System.start({ env });
  project = await system.createProject({ quota: 1_000 });
});
afterAll(() => system.stop());

// ---- requests ----

const field = (number: number, content: Uint8Array): Buffer => {
  const bytes: number[] = [number * 8 + 2];
  let { length } = content;
  for (; length > 127; length = Math.floor(length / 128)) bytes.push((length % 128) + 128);
  return Buffer.concat([Buffer.from([...bytes, length]), content]);
};
const LISTS = {
  traces: ['resourceSpans', 'scopeSpans', 'spans'],
  logs: ['resourceLogs', 'scopeLogs', 'logRecords'],
  metrics: ['resourceMetrics', 'scopeMetrics', 'metrics'],
} as const;
type Signal = keyof typeof LISTS;
const SIGNALS = Object.keys(LISTS) as Signal[];
/** Number of a record's field that is a text: a span's name, a log's severity, a metric's name. */
const TEXT_FIELDS = { traces: [5, 'name'], logs: [3, 'severityText'], metrics: [1, 'name'] } as const;
const ATTRIBUTES_FIELDS = { traces: 9, logs: 6, metrics: 12 } as const;

const [TRACE_ID, SPAN_ID] = ['5b8efff798038103d269b633813fc60c', 'eee19b7ec3c1b174'];
/** The ids of a span, without which it would not be stored. */
const IDS = { traces: { traceId: TRACE_ID, spanId: SPAN_ID }, logs: {}, metrics: {} } as const;

/** A request of one record with this text and these attributes. */
function requestOf(
  signal: Signal,
  contentType: ContentType,
  text: string,
  attributes: Record<string, string> = {},
): Buffer {
  const [number, name] = TEXT_FIELDS[signal];
  const pairs = Object.entries(attributes);
  if (contentType === PROTOBUF) {
    const ids = Object.values(IDS[signal]).map((id, at) => field(at + 1, Buffer.from(id, 'hex')));
    const named = pairs.map(([key, value]) => {
      const pair = [field(1, Buffer.from(key)), field(2, field(1, Buffer.from(value)))];
      return field(ATTRIBUTES_FIELDS[signal], Buffer.concat(pair));
    });
    return field(1, field(2, field(2, Buffer.concat([...ids, field(number, Buffer.from(text)), ...named]))));
  }
  const [resources, scopes, records] = LISTS[signal];
  const named = pairs.map(([key, stringValue]) => ({ key, value: { stringValue } }));
  const record = { ...IDS[signal], [name]: text, attributes: named };
  return Buffer.from(JSON.stringify({ [resources]: [{ [scopes]: [{ [records]: [record] }] }] }));
}

/** The event id of a request (docs/protocol.md 3.10). */
const idOf = (body: Buffer, signal: Signal = 'traces', of = project): string =>
  createHash('sha256').update(`${of.id}\notlp_${signal}\n`).update(body).digest('hex').slice(0, 32);

type Asked = { signal?: Signal; of?: Project; path?: string; headers?: Record<string, string> };
function ask(
  contentType: string,
  body: string | Uint8Array | ReadableStream,
  { signal = 'traces', of = project, path, headers }: Asked = {},
) {
  return fetch(`${system.url}/api/${of.id}/integration/otlp/v1/${path ?? `${signal}/`}`, {
    method: 'POST',
    body,
    headers: { 'x-sentry-auth': `sentry sentry_key=${of.key}`, 'content-type': contentType, ...headers },
    ...(body instanceof ReadableStream && { duplex: 'half' }),
  } as RequestInit);
}

// ---- answers ----

/** A google.rpc.Status: code and message. */
async function statusIn(response: Response, contentType: string): Promise<[code: number, message: string]> {
  expect(response.headers.get('content-type')).toBe(contentType);
  const bytes = Buffer.from(await response.arrayBuffer());
  if (contentType === JSON_TYPE) {
    const { code, message } = JSON.parse(bytes.toString()) as { code: number; message: string };
    return [code, message];
  }
  const [codeTag, code, messageTag, length] = bytes;
  expect([codeTag, messageTag, length]).toEqual([0x08, 0x12, bytes.length - 4]);
  return [code as number, bytes.subarray(4).toString()];
}

type Packer = (bytes: Uint8Array) => Buffer;
const PACKERS: [encoding: string, Packer][] = [
  ['gzip', gzipSync],
  ['x-gzip', gzipSync],
  ['deflate', deflateSync],
  ['br', brotliCompressSync],
  ...(RUNTIME_HAS_ZSTD ? [['zstd', zstdCompressSync] as [string, Packer]] : []),
];

let count = 0;
const unique = (): string => `text ${count++}`;

describe.each(TYPES)('a request of %s', (type) => {
  it.each(SIGNALS)('with %s is queued, counted, and answered with an empty response', async (signal) => {
    const before = await system.metric('sluice_items_total', `{type="otlp_${signal}"}`);
    const answer = await ask(type, requestOf(signal, type, unique()), { signal });
    expect([answer.status, answer.headers.get('content-type')]).toEqual([200, type]);
    expect(answer.headers.get('x-service-usage')).toMatch(/^\d+\/1000$/);
    expect(answer.headers.get('x-ratelimit-remaining')).not.toBeNull();
    expect(answer.headers.get('access-control-allow-origin')).toBe('*');
    expect(answer.headers.get('content-length')).toBe(type === PROTOBUF ? '0' : '2');
    expect(await answer.text()).toBe(type === PROTOBUF ? '' : '{}');
    expect(await system.metric('sluice_items_total', `{type="otlp_${signal}"}`)).toBe(before + 1);
  });

  it('may come without the last slash, with doubled ones, compressed, and in chunks', async () => {
    const body = (): Buffer => requestOf('traces', type, unique());
    const chunks = (): ReadableStream => {
      const bytes = body();
      return new ReadableStream({
        start(stream) {
          for (let at = 0; at < bytes.length; at += 7) stream.enqueue(bytes.subarray(at, at + 7));
          stream.close();
        },
      });
    };
    const answers = await Promise.all([
      ask(type, body(), { path: 'traces' }),
      ask(type, body(), { path: '/traces//' }),
      ask(`${type}; charset=utf-8`, body()),
      ask(type, gzipSync(body()), { headers: { 'content-encoding': 'gzip' } }),
      ask(type, body(), { headers: { 'content-encoding': 'identity' } }),
      ask(type, chunks()),
    ]);
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
    for (const answer of answers) expect(answer.headers.get('x-service-usage')).not.toBeNull();
  });

  describe.each(PACKERS)('compressed with %s', (encoding, pack) => {
    const headers = { 'content-encoding': encoding };
    it.each(SIGNALS)('is stored, with %s', async (signal) => {
      const text = unique();
      const body = requestOf(signal, type, text);
      const answer = await ask(type, pack(body), { signal, headers });
      expect([answer.status, answer.headers.get('content-type')]).toEqual([200, type]);
      expect(answer.headers.get('x-service-usage')).not.toBeNull();
      const [record] = await system.storedOf(idOf(body, signal));
      const content_type = signal === 'metrics' ? JSON_TYPE : type; // metrics are stored in JSON
      const item_header = { type: `otlp_${signal}`, content_type };
      expect([record?.item_header, JSON.stringify(record?.payload)]).toEqual([
        item_header,
        expect.stringContaining(JSON.stringify(text)),
      ]);
    });

    it('is 400 when it is cut, and says so', async () => {
      const packed = pack(requestOf('traces', type, unique()));
      const answer = await ask(type, packed.subarray(0, -2), { headers });
      expect([answer.status, await statusIn(answer, type)]).toEqual([400, [3, 'Invalid envelope format']]);
      expect(answer.headers.get('x-sentry-error')).toContain('the compressed body');
    });
  });

  it('in an encoding that nobody knows is 400, and says so', async () => {
    const body = requestOf('logs', type, unique());
    const refused: [string, Uint8Array][] = [['lzma', body]];
    if (!RUNTIME_HAS_ZSTD) refused.push(['zstd', zstdBlocks(body)]);
    for (const [encoding, bytes] of refused) {
      const answer = await ask(type, bytes, { signal: 'logs', headers: { 'content-encoding': encoding } });
      expect([answer.status, answer.headers.get('x-sentry-error')]).toEqual([
        400,
        'the content encoding is unknown',
      ]);
      expect(await statusIn(answer, type)).toEqual([3, 'Invalid envelope format']);
    }
  });

  it('of 3 MB goes by the disk, and is stored', async () => {
    const text = 'x'.repeat(3_000_000);
    const body = requestOf('traces', type, text);
    const answer = await ask(type, body);
    expect([answer.status, answer.headers.get('x-service-usage')]).toEqual([200, expect.any(String)]);
    const [record] = await system.storedOf(idOf(body));
    expect(record?.payload.items).toMatchObject([{ name: text }]);
  });

  it('that comes again, whatever its compression, is stored once', async () => {
    const body = requestOf('traces', type, unique());
    const packed = { headers: { 'content-encoding': 'gzip' } };
    const usages: (string | null)[] = [];
    for (const answer of [await ask(type, body), await ask(type, gzipSync(body), packed)])
      usages.push(answer.headers.get('x-service-usage'));
    expect(new Set(usages).size).toBe(2);
    const other = requestOf('traces', type, unique());
    await ask(type, other);
    expect(await system.storedOf(idOf(other))).toHaveLength(1);
    const item_header = { type: 'otlp_traces', content_type: type };
    const payload = { items: [{ trace_id: TRACE_ID, span_id: SPAN_ID }] };
    expect(await system.storedOf(idOf(body))).toMatchObject([{ type: 'span', item_header, payload }]);
  });

  it.each(['traces', 'logs'] as const)(
    'has in %s the address of its client where an attribute asks for it, and gets none of its own',
    async (signal) => {
      const headers = { 'x-forwarded-for': '198.51.100.7' };
      const body = requestOf(signal, type, unique(), { 'user.ip_address': '{{auto}}', shop: '7' });
      for (const fillIp of [true, false]) {
        const of = await system.createProject({ fillIp });
        expect((await ask(type, body, { signal, of, headers })).status).toBe(200);
        const [record] = await system.storedOf(idOf(body, signal, of));
        const [element] = (record?.payload.items ?? []) as { attributes: object }[];
        expect(element?.attributes).toEqual({
          'user.ip_address': { value: fillIp ? '198.51.100.7' : '{{auto}}', type: 'string' },
          shop: { value: '7', type: 'string' },
        });
      }
    },
  );

  it('without a record stores and counts nothing', async () => {
    const answer = await ask(type, type === PROTOBUF ? field(1, Buffer.alloc(0)) : '{"resourceSpans":[{}]}');
    expect([answer.status, answer.headers.get('x-service-usage')]).toEqual([200, null]);
    expect([answer.headers.get('x-service-empty'), await answer.text()]).toEqual([
      'no-items',
      type === PROTOBUF ? '' : '{}',
    ]);
  });

  it('that is no request is 400, and says why', async () => {
    const answer = await ask(type, 'hello');
    expect([answer.status, answer.headers.get('x-sentry-error')]).toEqual([
      400,
      'the body is no OTLP request',
    ]);
    expect(await statusIn(answer, type)).toEqual([3, 'Invalid envelope format']);
  });

  it('that is too large is 413', async () => {
    const answer = await ask(type, requestOf('traces', type, 'x'.repeat(5_300_000)));
    expect([answer.status, await statusIn(answer, type)]).toEqual([413, [3, 'Payload too large']]);
  });

  it('with a wrong key or none is 401', async () => {
    const wrong = await ask(type, requestOf('traces', type, unique()), { of: { ...project, key: 'wrong' } });
    expect([wrong.status, await statusIn(wrong, type)]).toEqual([401, [16, 'Invalid project or key']]);
    const none = await ask(type, requestOf('traces', type, unique()), { headers: { 'x-sentry-auth': '' } });
    expect([none.status, await statusIn(none, type)]).toEqual([401, [16, 'Missing authentication']]);
  });

  it('over the limit or the quota is 429, with the hints of an envelope', async () => {
    const limited = await system.createProject({ rateLimit: 1, quota: 1_000 });
    expect((await ask(type, requestOf('traces', type, unique()), { of: limited })).status).toBe(200);
    const over = await ask(type, requestOf('traces', type, unique()), { of: limited });
    expect([over.status, over.headers.get('retry-after')]).toEqual([429, '60']);
    expect(over.headers.get('x-sentry-rate-limits')).toMatch(/^\d+::project$/);
    expect(await statusIn(over, type)).toEqual([8, 'Rate limit exceeded']);
    const used = await system.createProject({ quota: 0 });
    const exceeded = await ask(type, requestOf('traces', type, unique()), { of: used });
    expect([exceeded.status, exceeded.headers.get('retry-after')]).toEqual([429, '600']);
    expect(await statusIn(exceeded, type)).toEqual([8, 'quota_exceeded']);
  });

  it('of a category over its limit is 429 for that category', async () => {
    const limited = await system.createProject({ rateLimits: { spans: 1 } });
    expect((await ask(type, requestOf('traces', type, unique()), { of: limited })).status).toBe(200);
    const spans = await ask(type, requestOf('traces', type, unique()), { of: limited });
    expect([spans.status, spans.headers.get('x-sentry-rate-limits')]).toEqual([
      429,
      expect.stringMatching(/:span:/),
    ]);
    const logs = await ask(type, requestOf('logs', type, unique()), { signal: 'logs', of: limited });
    expect(logs.status).toBe(200);
  });

  it('is judged by the origin, as an envelope is', async () => {
    const strict = await system.createProject({ allowedOrigins: ['https://good.example'] });
    const headers = { origin: 'https://bad.example' };
    const answer = await ask(type, requestOf('traces', type, unique()), { of: strict, headers });
    expect([answer.status, answer.headers.get('x-service-filtered')]).toEqual([200, 'origin']);
    expect(await answer.text()).toBe(type === PROTOBUF ? '' : '{}');
  });
});

it('of another type is 415, after its token', async () => {
  const limited = await system.createProject({ rateLimit: 2 });
  for (const type of ['text/plain', 'application/grpc']) {
    const answer = await ask(type, requestOf('traces', PROTOBUF, unique()), { of: limited });
    expect([answer.status, await statusIn(answer, JSON_TYPE)]).toEqual([415, [3, 'Unsupported media type']]);
  }
  const over = await ask('text/plain', 'x', { of: limited });
  expect([over.status, await statusIn(over, JSON_TYPE)]).toEqual([429, [8, 'Rate limit exceeded']]);
});

it('an envelope may not name such items: they are skipped as unknown', async () => {
  const body = '{}\n{"type":"otlp_traces"}\n{}\n{"type":"otlp_metrics"}\n{}';
  const answer = await system.send(project, body);
  expect([answer.status, answer.headers.get('x-service-empty')]).toEqual([200, 'unstored-types']);
});

it('NATS away is 503, which clients repeat; they go on when it is back', async () => {
  expect(system.ingest.errors).toEqual([]); // the outage brings warnings
  await system.nats.stop();
  await until(async () => (await ask(PROTOBUF, requestOf('traces', PROTOBUF, unique()))).status === 503);
  for (const type of TYPES) {
    const answer = await ask(type, requestOf('traces', type, unique()));
    expect([answer.status, answer.headers.get('retry-after')]).toEqual([503, '5']);
    expect((await statusIn(answer, type))[0]).toBe(14);
  }
  await system.restartNats();
  await until(async () => (await ask(JSON_TYPE, requestOf('traces', JSON_TYPE, unique()))).status === 200);
});
