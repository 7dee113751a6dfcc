/** Random OTLP requests in the form of OTLP/JSON, and what the processor makes of a request. */
import fc from 'fast-check';
import { Slices } from '../../../../src/lib/slices.ts';
import type { WholeItem } from '../../../../src/processor/decode/decode.ts';
import { partsOf } from '../../../../src/processor/decode/otlp/request.ts';
import { type OtlpJson, type OtlpType, toJson, toProtobuf } from '../../../support/otlp-reference.ts';

export type Encoding = 'json' | 'protobuf';
export const ENCODINGS: readonly Encoding[] = ['json', 'protobuf'];

export const encoded = (type: OtlpType, request: OtlpJson, encoding: Encoding): Buffer =>
  encoding === 'json' ? toJson(request) : toProtobuf(type, request);

export function otlpItem(type: OtlpType, payload: Uint8Array, encoding: Encoding): WholeItem {
  const content_type = encoding === 'json' ? 'application/json' : 'application/x-protobuf';
  const header = Buffer.from(JSON.stringify({ type, content_type }));
  return { index: 0, type, header, length: payload.length, payload };
}

export type Part = { index: number; type: string; text: string; payload: Uint8Array; fault?: string };

export async function parts(type: OtlpType, payload: Uint8Array, encoding: Encoding): Promise<Part[]> {
  const found: Part[] = [];
  for await (const { item, fault } of partsOf(otlpItem(type, payload, encoding), new Slices()))
    found.push({
      index: item.index,
      type: item.type,
      text: Buffer.from(item.payload).toString(),
      payload: item.payload,
      ...(fault !== undefined && { fault }),
    });
  return found;
}

const id = (bytes: number): fc.Arbitrary<string> =>
  fc.uint8Array({ minLength: bytes, maxLength: bytes }).map((found) =>
    Buffer.from(found)
      .toString('hex')
      .replace(/^0+$/, (zeros) => zeros.replace(/0$/, '1')),
  );
const text = fc.string({ unit: 'binary', maxLength: 12 });
const key = fc.oneof(
  text,
  fc.constantFrom('service.name', 'resource.service.name', 'scope.name', 'user.id', '__proto__'),
);
const nanos = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }).map(String);
const uint32 = fc.nat({ max: 2 ** 32 - 1 });
const { any } = fc.letrec<{ any: OtlpJson; value: OtlpJson }>((tie) => ({
  any: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    fc.constant({}),
    text.map((stringValue) => ({ stringValue })),
    fc.boolean().map((boolValue) => ({ boolValue })),
    fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map((int) => ({ intValue: String(int) })),
    fc.double().map((double) => ({ doubleValue: Number.isFinite(double) ? double : String(double) })),
    fc.uint8Array({ maxLength: 8 }).map((bytes) => ({ bytesValue: Buffer.from(bytes).toString('base64') })),
    fc.array(tie('any'), { maxLength: 3 }).map((values) => ({ arrayValue: { values } })),
    fc.array(tie('value'), { maxLength: 3 }).map((values) => ({ kvlistValue: { values } })),
  ) as fc.Arbitrary<OtlpJson>,
  value: fc.record({ key, value: tie('any') }),
}));
const attributes = fc.array(fc.record({ key, value: any }), { maxLength: 5 });
const maybe = <T>(arbitrary: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> =>
  fc.option(arbitrary, { nil: undefined });

const span = fc.record({
  traceId: id(16),
  spanId: id(8),
  parentSpanId: maybe(id(8)),
  traceState: maybe(text),
  flags: maybe(uint32),
  name: text,
  kind: maybe(fc.integer({ min: 0, max: 7 })),
  startTimeUnixNano: nanos,
  endTimeUnixNano: nanos,
  attributes,
  droppedAttributesCount: maybe(uint32),
  droppedEventsCount: maybe(uint32),
  droppedLinksCount: maybe(uint32),
  events: fc.array(fc.record({ timeUnixNano: nanos, name: text, attributes }), { maxLength: 2 }),
  links: fc.array(
    fc.record({ traceId: id(16), spanId: id(8), traceState: text, flags: uint32, attributes }),
    {
      maxLength: 2,
    },
  ),
  status: maybe(fc.record({ code: fc.integer({ min: 0, max: 3 }), message: text })),
});
const log = fc.record({
  timeUnixNano: nanos,
  observedTimeUnixNano: maybe(nanos),
  severityNumber: maybe(fc.integer({ min: 0, max: 30 })),
  severityText: maybe(fc.constantFrom('WARNING', 'fatal', 'x')),
  body: maybe(any),
  attributes,
  flags: maybe(uint32),
  traceId: maybe(id(16)),
  spanId: maybe(id(8)),
  eventName: maybe(text),
});
const resource = maybe(fc.record({ attributes, droppedAttributesCount: uint32 }));
const scope = maybe(fc.record({ name: text, version: text, attributes }));

const request = (
  [ofRequest, ofResource, ofScope]: readonly [string, string, string],
  record: fc.Arbitrary<unknown>,
): fc.Arbitrary<OtlpJson> => {
  const scopes = fc.record({ scope, schemaUrl: text, [ofScope]: fc.array(record, { maxLength: 3 }) });
  const resources = fc.record({
    resource,
    schemaUrl: text,
    [ofResource]: fc.array(scopes, { maxLength: 3 }),
  });
  return fc.record({ [ofRequest]: fc.array(resources, { maxLength: 3 }) });
};
export const traces = request(['resourceSpans', 'scopeSpans', 'spans'], span);
export const logs = request(['resourceLogs', 'scopeLogs', 'logRecords'], log);

/** A request of one resource and one scope. */
export const tracesOf = (
  spans: readonly OtlpJson[],
  more: { resource?: OtlpJson; scope?: OtlpJson } = {},
): OtlpJson => ({
  resourceSpans: [{ resource: more.resource ?? {}, scopeSpans: [{ scope: more.scope ?? {}, spans }] }],
});
export const logsOf = (
  logRecords: readonly OtlpJson[],
  more: { resource?: OtlpJson; scope?: OtlpJson } = {},
): OtlpJson => ({
  resourceLogs: [{ resource: more.resource ?? {}, scopeLogs: [{ scope: more.scope ?? {}, logRecords }] }],
});
export const attributesOf = (texts: Readonly<Record<string, string>>): OtlpJson[] =>
  Object.entries(texts).map(([key, stringValue]) => ({ key, value: { stringValue } }));

export const SPAN: OtlpJson = {
  traceId: '5b8efff798038103d269b633813fc60c',
  spanId: 'eee19b7ec3c1b174',
  name: 'GET /users',
  startTimeUnixNano: '1764000000123456789',
  endTimeUnixNano: '1764000001000000001',
};
