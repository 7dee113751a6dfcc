/**
 * Decodes the messages of OTLP from protobuf into the objects that OTLP/JSON has for them: ids in
 * hex, other bytes in base64, integers of 64 bits as decimal texts, enums as numbers. The library
 * reads the wire format; the tables name the fields.
 */
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';

/** A message as OTLP/JSON. If the message came as JSON, its values are not checked yet. */
export type OtlpMessage = Record<string, unknown>;

/**
 * Thrown for a record that is no OTLP. The message is for an operator and quotes nothing of the
 * record. The error has no stack: a request may have millions of bad records, and a stack takes 10
 * µs.
 */
export class OtlpError extends Error {
  override name = 'OtlpError';

  constructor(message: string, options?: ErrorOptions) {
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    super(message, options);
    Error.stackTraceLimit = stackTraceLimit;
  }
}

/** Most levels of messages within messages. Other protobuf decoders stop at 100 levels. */
const DEPTH_MAX = 400;
/**
 * Most messages in one record. A message may take only two bytes of the request, but takes some
 * hundred bytes of memory.
 */
const MESSAGES_MAX = 100_000;

type Scalar =
  | 'string'
  | 'hex'
  | 'base64'
  | 'bool'
  | 'enum'
  | 'uint32'
  | 'sint32'
  | 'fixed32'
  | 'int64'
  | 'uint64'
  | 'fixed64'
  | 'sfixed64'
  | 'double';
const POINT = { 2: 'startTimeUnixNano fixed64', 3: 'timeUnixNano fixed64' } as const;

/**
 * The fields of each message, by their numbers in opentelemetry-proto 1.x: a name, and a scalar or
 * a message, with `[]` behind it where the field is repeated.
 */
export const MESSAGES = {
  AnyValue: {
    1: 'stringValue string',
    2: 'boolValue bool',
    3: 'intValue int64',
    4: 'doubleValue double',
    5: 'arrayValue ArrayValue',
    6: 'kvlistValue KeyValueList',
    7: 'bytesValue base64',
  },
  ArrayValue: { 1: 'values AnyValue[]' },
  KeyValueList: { 1: 'values KeyValue[]' },
  KeyValue: { 1: 'key string', 2: 'value AnyValue' },
  Resource: { 1: 'attributes KeyValue[]', 2: 'droppedAttributesCount uint32', 3: 'entityRefs EntityRef[]' },
  EntityRef: { 1: 'schemaUrl string', 2: 'type string', 3: 'idKeys string[]', 4: 'descriptionKeys string[]' },
  InstrumentationScope: {
    1: 'name string',
    2: 'version string',
    3: 'attributes KeyValue[]',
    4: 'droppedAttributesCount uint32',
  },
  Span: {
    1: 'traceId hex',
    2: 'spanId hex',
    3: 'traceState string',
    4: 'parentSpanId hex',
    5: 'name string',
    6: 'kind enum',
    7: 'startTimeUnixNano fixed64',
    8: 'endTimeUnixNano fixed64',
    9: 'attributes KeyValue[]',
    10: 'droppedAttributesCount uint32',
    11: 'events Event[]',
    12: 'droppedEventsCount uint32',
    13: 'links Link[]',
    14: 'droppedLinksCount uint32',
    15: 'status Status',
    16: 'flags fixed32',
  },
  Event: {
    1: 'timeUnixNano fixed64',
    2: 'name string',
    3: 'attributes KeyValue[]',
    4: 'droppedAttributesCount uint32',
  },
  Link: {
    1: 'traceId hex',
    2: 'spanId hex',
    3: 'traceState string',
    4: 'attributes KeyValue[]',
    5: 'droppedAttributesCount uint32',
    6: 'flags fixed32',
  },
  Status: { 2: 'message string', 3: 'code enum' },
  LogRecord: {
    1: 'timeUnixNano fixed64',
    2: 'severityNumber enum',
    3: 'severityText string',
    5: 'body AnyValue',
    6: 'attributes KeyValue[]',
    7: 'droppedAttributesCount uint32',
    8: 'flags fixed32',
    9: 'traceId hex',
    10: 'spanId hex',
    11: 'observedTimeUnixNano fixed64',
    12: 'eventName string',
  },
  Metric: {
    1: 'name string',
    2: 'description string',
    3: 'unit string',
    5: 'gauge Gauge',
    7: 'sum Sum',
    9: 'histogram Histogram',
    10: 'exponentialHistogram ExponentialHistogram',
    11: 'summary Summary',
    12: 'metadata KeyValue[]',
  },
  Gauge: { 1: 'dataPoints NumberDataPoint[]' },
  Sum: { 1: 'dataPoints NumberDataPoint[]', 2: 'aggregationTemporality enum', 3: 'isMonotonic bool' },
  Histogram: { 1: 'dataPoints HistogramDataPoint[]', 2: 'aggregationTemporality enum' },
  ExponentialHistogram: {
    1: 'dataPoints ExponentialHistogramDataPoint[]',
    2: 'aggregationTemporality enum',
  },
  Summary: { 1: 'dataPoints SummaryDataPoint[]' },
  NumberDataPoint: {
    ...POINT,
    4: 'asDouble double',
    5: 'exemplars Exemplar[]',
    6: 'asInt sfixed64',
    7: 'attributes KeyValue[]',
    8: 'flags uint32',
  },
  HistogramDataPoint: {
    ...POINT,
    4: 'count fixed64',
    5: 'sum double',
    6: 'bucketCounts fixed64[]',
    7: 'explicitBounds double[]',
    8: 'exemplars Exemplar[]',
    9: 'attributes KeyValue[]',
    10: 'flags uint32',
    11: 'min double',
    12: 'max double',
  },
  ExponentialHistogramDataPoint: {
    ...POINT,
    1: 'attributes KeyValue[]',
    4: 'count fixed64',
    5: 'sum double',
    6: 'scale sint32',
    7: 'zeroCount fixed64',
    8: 'positive Buckets',
    9: 'negative Buckets',
    10: 'flags uint32',
    11: 'exemplars Exemplar[]',
    12: 'min double',
    13: 'max double',
    14: 'zeroThreshold double',
  },
  Buckets: { 1: 'offset sint32', 2: 'bucketCounts uint64[]' },
  SummaryDataPoint: {
    ...POINT,
    4: 'count fixed64',
    5: 'sum double',
    6: 'quantileValues ValueAtQuantile[]',
    7: 'attributes KeyValue[]',
    8: 'flags uint32',
  },
  ValueAtQuantile: { 1: 'quantile double', 2: 'value double' },
  Exemplar: {
    2: 'timeUnixNano fixed64',
    3: 'asDouble double',
    4: 'spanId hex',
    5: 'traceId hex',
    6: 'asInt sfixed64',
    7: 'filteredAttributes KeyValue[]',
  },
} as const satisfies Record<string, Readonly<Record<number, string>>>;
export type MessageName = keyof typeof MESSAGES;

type Read = (reader: BinaryReader) => unknown;
type Field = {
  name: string;
  isRepeated: boolean;
  /** The wire type in which one value comes. */
  wire: WireType;
} & ({ read: Read; of?: undefined } | { of: Message; read?: undefined });
/** `isOneOf`: only the field that comes last counts. */
type Message = { fields: (Field | undefined)[]; isOneOf: boolean };

export const bufferOf = ({ buffer, byteOffset, length }: Uint8Array): Buffer =>
  Buffer.from(buffer as ArrayBuffer, byteOffset, length);
/** Decodes UTF-8. Other bytes become U+FFFD. */
const utf8 = (bytes: Uint8Array): string => bufferOf(bytes).toString();

const READS: Readonly<Record<Scalar, readonly [WireType, Read]>> = {
  string: [WireType.LengthDelimited, (reader) => reader.string()],
  hex: [WireType.LengthDelimited, (reader) => bufferOf(reader.bytes()).toString('hex')],
  base64: [WireType.LengthDelimited, (reader) => bufferOf(reader.bytes()).toString('base64')],
  bool: [WireType.Varint, (reader) => reader.bool()],
  enum: [WireType.Varint, (reader) => reader.int32()],
  uint32: [WireType.Varint, (reader) => reader.uint32()],
  sint32: [WireType.Varint, (reader) => reader.sint32()],
  fixed32: [WireType.Bit32, (reader) => reader.fixed32()],
  int64: [WireType.Varint, (reader) => String(reader.int64())],
  uint64: [WireType.Varint, (reader) => String(reader.uint64())],
  fixed64: [WireType.Bit64, (reader) => String(reader.fixed64())],
  sfixed64: [WireType.Bit64, (reader) => String(reader.sfixed64())],
  double: [
    WireType.Bit64,
    (reader) => {
      const value = reader.double();
      return Number.isFinite(value) ? value : String(value);
    },
  ],
};

const compiled = new Map<string, Message>();

function messageOf(name: MessageName): Message {
  const known = compiled.get(name);
  if (known) return known;
  const message: Message = { fields: [], isOneOf: name === 'AnyValue' };
  compiled.set(name, message);
  for (const [number, text] of Object.entries(MESSAGES[name])) {
    const [field = '', type = ''] = text.split(' ');
    const isRepeated = type.endsWith('[]');
    const one = (isRepeated ? type.slice(0, -2) : type) as Scalar | MessageName;
    const scalar = READS[one as Scalar] as (typeof READS)[Scalar] | undefined;
    message.fields[Number(number)] = scalar
      ? { name: field, isRepeated, wire: scalar[0], read: scalar[1] }
      : { name: field, isRepeated, wire: WireType.LengthDelimited, of: messageOf(one as MessageName) };
  }
  return message;
}

/** Decodes one message and all within it. */
class Decoding {
  readonly #reader: BinaryReader;
  readonly #length: number;
  #messages = 0;

  constructor(bytes: Uint8Array) {
    this.#reader = new BinaryReader(bytes, utf8);
    this.#length = bytes.length;
  }

  /**
   * Reads the fields up to `end` into the object. A field that comes again replaces the earlier
   * value; a list grows instead, and a message is merged.
   */
  into(found: OtlpMessage, message: Message, end: number, depth = 0): OtlpMessage {
    if (depth > DEPTH_MAX) throw new OtlpError('it is nested too deep');
    if (++this.#messages > MESSAGES_MAX) throw new OtlpError('it has too many values');
    const reader = this.#reader;
    let last: string | undefined;
    while (reader.pos < end) {
      const [number, wire] = reader.tag();
      const field = message.fields[number];
      if (field && (wire === field.wire || (field.isRepeated && wire === WireType.LengthDelimited))) {
        if (message.isOneOf && last !== undefined) delete found[last];
        last = field.name;
        this.#field(found, field, wire, depth);
      } else reader.skip(wire, number);
    }
    if (reader.pos > end) throw new OtlpError('a field is longer than its message');
    return found;
  }

  #field(found: OtlpMessage, field: Field, wire: WireType, depth: number): void {
    const reader = this.#reader;
    const { name, isRepeated } = field;
    if (!isRepeated && field.read) {
      found[name] = field.read(reader);
      return;
    }
    if (!isRepeated) {
      const of = field.of as Message;
      const before = of.isOneOf ? undefined : (found[name] as OtlpMessage | undefined);
      found[name] = this.#within(before ?? {}, of, depth);
      return;
    }
    const list = (found[name] as unknown[] | undefined) ?? [];
    found[name] = list;
    if (field.of) list.push(this.#within({}, field.of, depth));
    else if (wire === field.wire) list.push(field.read(reader));
    else for (const end = this.#end(); reader.pos < end; ) list.push(field.read(reader)); // packed
  }

  #within(found: OtlpMessage, message: Message, depth: number): OtlpMessage {
    const end = this.#end();
    return this.into(found, message, end, depth + 1);
  }

  /** Reads a length, and returns where that many bytes end. */
  #end(): number {
    const length = this.#reader.uint32();
    const end = this.#reader.pos + length;
    if (end > this.#length) throw new OtlpError('a field is longer than its message');
    return end;
  }
}

/**
 * Decodes a message.
 * @throws OtlpError when the bytes are no such message
 */
export function decodeMessage(name: MessageName, bytes: Uint8Array): OtlpMessage {
  try {
    return new Decoding(bytes).into({}, messageOf(name), bytes.length);
  } catch (error) {
    if (error instanceof OtlpError) throw error;
    throw new OtlpError('it is no protobuf', { cause: error });
  }
}
