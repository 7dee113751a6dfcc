/** Requests as OpenTelemetry's exporters send them, in both encodings. The JSON is made first, and protobuf from it by a table. */
import { createHash } from 'node:crypto';
import { ID_PLACEHOLDER, MESSAGES, many, TIMESTAMP } from './payloads.ts';
import { hex, integer, pick, type Random } from './random.ts';

export type OtlpKind = 'otlp-traces' | 'otlp-logs';
export const isOtlp = (kind: string): kind is OtlpKind => kind === 'otlp-traces' || kind === 'otlp-logs';
/** Behind `/api/{project}`. */
export const OTLP_PATHS: Readonly<Record<OtlpKind, string>> = {
  'otlp-traces': '/integration/otlp/v1/traces/',
  'otlp-logs': '/integration/otlp/v1/logs/',
};

/** The event id that the server makes of a request (docs/protocol.md 3.10). @param projectId its own id, no alias */
export const otlpEventId = (kind: OtlpKind, projectId: string, body: Uint8Array): string =>
  createHash('sha256')
    .update(`${projectId}\n${kind.replace('-', '_')}\n`)
    .update(body)
    .digest('hex')
    .slice(0, ID_PLACEHOLDER.length);

const value = (of: unknown) =>
  typeof of === 'string'
    ? { stringValue: of }
    : typeof of === 'boolean'
      ? { boolValue: of }
      : Number.isInteger(of)
        ? { intValue: `${of}` }
        : { doubleValue: of };
const attributes = (of: Record<string, unknown>) =>
  Object.entries(of).map(([key, one]) => ({ key, value: value(one) }));

/** Nanoseconds, as JSON writes 64 bits. */
const nanoseconds = (random: Random, seconds = 0): string =>
  `${TIMESTAMP + seconds}${integer(random, 0, 999_999_999).toString().padStart(9, '0')}`;

/** The id of the request stands in the resource, as text: so it can be stamped in both encodings. */
const resource = (random: Random) => ({
  attributes: attributes({
    'service.name': pick(random, ['shop', 'cart', 'mail']),
    'service.version': `${integer(random, 1, 9)}.0.0`,
    'service.instance.id': ID_PLACEHOLDER,
    'deployment.environment.name': 'production',
    'telemetry.sdk.name': 'opentelemetry',
  }),
});
const SCOPE = { name: '@opentelemetry/instrumentation-http', version: '0.223.0' };

function span(random: Random, traceId: string) {
  const isFailed = random() < 0.1;
  return {
    traceId,
    spanId: hex(random, 16),
    parentSpanId: hex(random, 16),
    flags: 257,
    name: `GET /orders/${hex(random, 4)}`,
    kind: integer(random, 1, 3),
    startTimeUnixNano: nanoseconds(random),
    endTimeUnixNano: nanoseconds(random, 1),
    attributes: attributes({
      'http.request.method': 'GET',
      'url.full': `https://shop.example.com/orders/${hex(random, 12)}`,
      'http.response.status_code': isFailed ? 500 : 200,
      'server.address': `app-${integer(random, 1, 40)}`,
      'shop.discount': random(),
      'shop.is_member': random() < 0.5,
    }),
    ...(isFailed && {
      events: [
        {
          timeUnixNano: nanoseconds(random),
          name: 'exception',
          attributes: attributes({
            'exception.type': 'TypeError',
            'exception.message': pick(random, MESSAGES),
          }),
        },
      ],
      links: [{ traceId: hex(random, 32), spanId: hex(random, 16), flags: 257 }],
    }),
    status: isFailed ? { code: 2, message: 'failed' } : { code: 0 },
  };
}

const logRecord = (random: Random) => ({
  timeUnixNano: nanoseconds(random),
  observedTimeUnixNano: nanoseconds(random, 1),
  severityNumber: pick(random, [9, 13, 17]),
  severityText: pick(random, ['INFO', 'WARN', 'ERROR']),
  body: value(`order ${hex(random, 8)} moved to state ${pick(random, ['paid', 'packed', 'sent'])}`),
  attributes: attributes({
    'server.address': `app-${integer(random, 1, 40)}`,
    'order.items': integer(random, 1, 9),
  }),
  traceId: hex(random, 32),
  spanId: hex(random, 16),
});

/** A request of spans or logs, about 600 and 350 bytes each in JSON. */
function requestOf(kind: OtlpKind, random: Random, count: number): object {
  const of = { resource: resource(random) };
  if (kind === 'otlp-logs')
    return {
      resourceLogs: [
        { ...of, scopeLogs: [{ scope: SCOPE, logRecords: many(count, () => logRecord(random)) }] },
      ],
    };
  const traceId = hex(random, 32);
  return {
    resourceSpans: [
      { ...of, scopeSpans: [{ scope: SCOPE, spans: many(count, () => span(random, traceId)) }] },
    ],
  };
}

// ---- protobuf ----

type Scalar = 'text' | 'hex' | 'number' | 'fixed32' | 'fixed64' | 'double';
/** Fields of a message by their names in JSON: number, and the kind of the value, a scalar or a message. */
type Message = { readonly [name: string]: readonly [number: number, kind: Scalar | (() => Message)] };

const VALUE: Message = {
  stringValue: [1, 'text'],
  boolValue: [2, 'number'],
  intValue: [3, 'number'],
  doubleValue: [4, 'double'],
};
const ATTRIBUTE: Message = { key: [1, 'text'], value: [2, () => VALUE] };
const RESOURCE: Message = { attributes: [1, () => ATTRIBUTE] };
const SCOPE_FIELDS: Message = { name: [1, 'text'], version: [2, 'text'] };
const EVENT: Message = { timeUnixNano: [1, 'fixed64'], name: [2, 'text'], attributes: [3, () => ATTRIBUTE] };
const LINK: Message = { traceId: [1, 'hex'], spanId: [2, 'hex'], flags: [6, 'fixed32'] };
const STATUS: Message = { message: [2, 'text'], code: [3, 'number'] };
const SPAN: Message = {
  traceId: [1, 'hex'],
  spanId: [2, 'hex'],
  parentSpanId: [4, 'hex'],
  name: [5, 'text'],
  kind: [6, 'number'],
  startTimeUnixNano: [7, 'fixed64'],
  endTimeUnixNano: [8, 'fixed64'],
  attributes: [9, () => ATTRIBUTE],
  events: [11, () => EVENT],
  links: [13, () => LINK],
  status: [15, () => STATUS],
  flags: [16, 'fixed32'],
};
const LOG: Message = {
  timeUnixNano: [1, 'fixed64'],
  severityNumber: [2, 'number'],
  severityText: [3, 'text'],
  body: [5, () => VALUE],
  attributes: [6, () => ATTRIBUTE],
  traceId: [9, 'hex'],
  spanId: [10, 'hex'],
  observedTimeUnixNano: [11, 'fixed64'],
};
const SCOPES: Message = {
  scope: [1, () => SCOPE_FIELDS],
  spans: [2, () => SPAN],
  logRecords: [2, () => LOG],
};
const RESOURCES: Message = {
  resource: [1, () => RESOURCE],
  scopeSpans: [2, () => SCOPES],
  scopeLogs: [2, () => SCOPES],
};
const REQUEST: Message = { resourceSpans: [1, () => RESOURCES], resourceLogs: [1, () => RESOURCES] };

function varint(of: number): Buffer {
  const bytes: number[] = [];
  let rest = of;
  for (; rest > 0x7f; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 0x80);
  return Buffer.from([...bytes, rest]);
}

const WIRE = { number: 0, fixed64: 1, double: 1, fixed32: 5 } as const;
const tag = (number: number, wire: number): Buffer => varint(number * 8 + wire);
const counted = (bytes: Buffer): Buffer => Buffer.concat([varint(bytes.length), bytes]);

function scalar(kind: Scalar, of: unknown): Buffer {
  switch (kind) {
    case 'text':
      return counted(Buffer.from(`${of}`));
    case 'hex':
      return counted(Buffer.from(`${of}`, 'hex'));
    case 'number':
      return varint(Number(of));
    default: {
      const bytes = Buffer.alloc(kind === 'fixed32' ? 4 : 8);
      if (kind === 'double') bytes.writeDoubleLE(of as number);
      else if (kind === 'fixed32') bytes.writeUInt32LE(of as number);
      else bytes.writeBigUInt64LE(BigInt(of as string));
      return bytes;
    }
  }
}

function protobuf(message: Message, of: object): Buffer {
  const parts: Buffer[] = [];
  for (const [name, one] of Object.entries(of))
    for (const each of Array.isArray(one) ? one : [one]) {
      const [number, kind] = message[name] as Message[string];
      if (typeof kind === 'function') parts.push(tag(number, 2), counted(protobuf(kind(), each)));
      else parts.push(tag(number, kind in WIRE ? WIRE[kind as keyof typeof WIRE] : 2), scalar(kind, each));
    }
  return Buffer.concat(parts);
}

export const OTLP_TYPES = { json: 'application/json', protobuf: 'application/x-protobuf' } as const;
export type OtlpEncoding = keyof typeof OTLP_TYPES;

/** The body of a request; the id's placeholder is in it once. @param count of spans or logs */
export function otlpBody(
  kind: OtlpKind,
  encoding: OtlpEncoding,
  random: Random,
  count = integer(random, 10, 40),
): Buffer {
  const request = requestOf(kind, random, count);
  return encoding === 'json' ? Buffer.from(JSON.stringify(request)) : protobuf(REQUEST, request);
}
