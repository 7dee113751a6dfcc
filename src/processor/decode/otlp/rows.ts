/**
 * Turns spans and logs of OTLP into the elements of span and log containers, as JSON texts.
 * docs/otlp.md has the mapping field by field, and a test compares the two.
 */
import { OtlpError, type OtlpMessage } from './messages.ts';

/** Most levels of values within values. */
const DEPTH_MAX = 100;
/**
 * Most attributes, values, events and links of one record together. Each may take 50 bytes of a
 * row, and 1.5 µs in which the process cannot pause. SDKs send 128 attributes, events and links at
 * most.
 */
const VALUES_MAX = 20_000;

const bad = (what: string): never => {
  throw new OtlpError(what);
};
const isAbsent = (value: unknown): value is null | undefined => value === undefined || value === null;

function messageIn(value: unknown, name: string): OtlpMessage {
  if (isAbsent(value)) return {};
  return typeof value === 'object' && !Array.isArray(value)
    ? (value as OtlpMessage)
    : bad(`${name} is no object`);
}

function listIn(value: unknown, name: string): readonly unknown[] {
  if (isAbsent(value)) return [];
  return Array.isArray(value) ? value : bad(`${name} is no list`);
}

function textIn(value: unknown, name: string): string {
  if (isAbsent(value)) return '';
  return typeof value === 'string' ? value : bad(`${name} is no text`);
}

const ALL_ZEROS = /^0*$/;
const HEX = /^[\da-f]*$/;

/** Returns an id in lower-case hex, and '' for an absent id or one of zeros. */
function idIn(value: unknown, name: string, bytes: 8 | 16): string {
  const id = textIn(value, name).toLowerCase();
  if (ALL_ZEROS.test(id)) return '';
  return id.length === 2 * bytes && HEX.test(id) ? id : bad(`${name} is no id of ${bytes} bytes`);
}

const INTEGER = /^-?\d{1,20}$/;
const INT64 = { min: -(2n ** 63n), max: 2n ** 63n - 1n };
const UINT64 = { min: 0n, max: 2n ** 64n - 1n };
/** Matches an integer that is within both INT64 and UINT64, as most are: up to 18 digits. */
const PLAIN_INTEGER = /^(?:0|[1-9]\d{0,17})$/;

/** Returns an integer of 64 bits as its digits; '0' when it is absent. */
function digitsIn(value: unknown, name: string, { min, max } = UINT64): string {
  if (isAbsent(value)) return '0';
  if (typeof value === 'string' && PLAIN_INTEGER.test(value)) return value;
  const isInteger = typeof value === 'string' ? INTEGER.test(value) : Number.isInteger(value);
  if (!isInteger) return bad(`${name} is no integer`);
  const integer = BigInt(value as string | number);
  return integer >= min && integer <= max ? String(integer) : bad(`${name} is out of range`);
}

/** Returns an integer of 32 bits; 0 when it is absent. */
function smallIn(value: unknown, name: string, min: number, max: number): number {
  const integer = isAbsent(value)
    ? 0
    : typeof value === 'string' && INTEGER.test(value)
      ? Number(value)
      : value;
  if (!Number.isInteger(integer)) return bad(`${name} is no integer`);
  return (integer as number) >= min && (integer as number) <= max
    ? (integer as number)
    : bad(`${name} is out of range`);
}
const countIn = (value: unknown, name: string): number => smallIn(value, name, 0, 2 ** 32 - 1);

/**
 * Returns a moment in nanoseconds as seconds with nine decimals; undefined when it is 0, which
 * means unknown.
 */
function secondsIn(value: unknown, name: string): string | undefined {
  const nanos = digitsIn(value, name);
  if (nanos === '0') return undefined;
  const digits = nanos.padStart(10, '0');
  return `${digits.slice(0, -9)}.${digits.slice(-9)}`;
}

/** Returns the number of an enum's value, which OTLP/JSON may give by name. */
function enumIn(value: unknown, name: string, names: readonly string[]): number {
  if (typeof value !== 'string') return smallIn(value, name, -(2 ** 31), 2 ** 31 - 1);
  const found = names.indexOf(value);
  return found >= 0 ? found : bad(`${name} has an unknown name`);
}

const KINDS = ['internal', 'server', 'client', 'producer', 'consumer'] as const;
const KIND_NAMES = ['UNSPECIFIED', ...KINDS.map((kind) => kind.toUpperCase())].map(
  (kind) => `SPAN_KIND_${kind}`,
);
const STATUS_NAMES = ['STATUS_CODE_UNSET', 'STATUS_CODE_OK', 'STATUS_CODE_ERROR'] as const;
const STATUS_ERROR = 2;
/** Levels of logs. Each level has four severity numbers: `trace` has 1 to 4, `debug` 5 to 8. */
const LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal'] as const;
const SEVERITIES_PER_LEVEL = 4;
const SEVERITY_NAMES = [
  'SEVERITY_NUMBER_UNSPECIFIED',
  ...LEVELS.flatMap((level) =>
    ['', 2, 3, 4].map((grade) => `SEVERITY_NUMBER_${level.toUpperCase()}${grade}`),
  ),
];
/** Severity texts, in lower case, that differ from the name of their level. */
const LEVEL_OF_TEXT: Readonly<Record<string, string>> = {
  information: 'info',
  warning: 'warn',
  critical: 'fatal',
};
/**
 * Bits of a span's flags. HAS_IS_REMOTE says that IS_REMOTE is known, and IS_REMOTE that the span's
 * parent is in another process.
 */
const HAS_IS_REMOTE = 0x100;
const IS_REMOTE = 0x200;
const SAMPLED = 1;

function doubleText(value: unknown): string {
  const number = typeof value === 'string' && value.trim() !== '' ? Number(value) : value;
  if (typeof number !== 'number' || (Number.isNaN(number) && value !== 'NaN' && typeof value !== 'number'))
    return bad('doubleValue is no number');
  if (!Number.isFinite(number)) return `"${number}"`;
  const text = Object.is(number, -0) ? '-0' : String(number);
  return /^-?\d+$/.test(text) ? `${text}.0` : text;
}

const BASE64 = /^[\w+/-]*={0,2}$/;
function bytesText(value: unknown): string {
  const text = textIn(value, 'bytesValue');
  if (!BASE64.test(text)) return bad('bytesValue is no base64');
  return `"${Buffer.from(text, 'base64').toString('base64')}"`;
}

/** A value as JSON, and its type. */
type Value = readonly [json: string, type: string];

/** Writes one record as JSON, and counts its values. */
class Writing {
  #values = 0;

  count(): void {
    if (++this.#values > VALUES_MAX) bad('it has too many values');
  }

  value(any: unknown, depth = 0): Value {
    this.count();
    if (depth > DEPTH_MAX) return bad('its values are nested too deep');
    const value = messageIn(any, 'value');
    if (!isAbsent(value.stringValue))
      return [JSON.stringify(textIn(value.stringValue, 'stringValue')), 'string'];
    if (!isAbsent(value.boolValue)) {
      if (typeof value.boolValue !== 'boolean') return bad('boolValue is no boolean');
      return [String(value.boolValue), 'boolean'];
    }
    if (!isAbsent(value.intValue)) return [digitsIn(value.intValue, 'intValue', INT64), 'integer'];
    if (!isAbsent(value.doubleValue)) return [doubleText(value.doubleValue), 'double'];
    if (!isAbsent(value.bytesValue)) return [bytesText(value.bytesValue), 'bytes'];
    const list = value.arrayValue ?? value.kvlistValue;
    if (isAbsent(list)) return ['null', 'null'];
    const values = listIn(messageIn(list, 'value').values, 'values');
    if (!isAbsent(value.arrayValue))
      return [`[${values.map((one) => this.value(one, depth + 1)[0])}]`, 'array'];
    const members = values.map((one) => {
      const { key, value: of } = messageIn(one, 'value');
      return `${JSON.stringify(textIn(key, 'key'))}:${this.value(of, depth + 1)[0]}`;
    });
    return [`{${members}}`, 'kvlist'];
  }

  /** Calls `add` with each attribute: its name, and the member of `attributes` that it becomes. */
  each(list: unknown, prefix: string, add: (name: string, member: string) => void): void {
    for (const one of listIn(list, 'attributes')) {
      const { key, value } = messageIn(one, 'attribute');
      const name = prefix + textIn(key, 'key');
      const [json, type] = this.value(value);
      add(name, attribute(name, json, type));
    }
  }

  attributes(list: unknown): string {
    const members: string[] = [];
    this.each(list, '', (_, member) => members.push(member));
    return `{${members}}`;
  }
}

const attribute = (name: string, json: string, type: string): string =>
  `${JSON.stringify(name)}:{"value":${json},"type":"${type}"}`;
const textAttribute = (name: string, text: string): string => attribute(name, JSON.stringify(text), 'string');
const integerAttribute = (name: string, count: number): string => attribute(name, String(count), 'integer');

/**
 * Attributes that the records of a resource or scope share: by name, the JSON member of
 * `attributes`.
 */
export class SharedAttributes {
  readonly #members: ReadonlyMap<string, string>;
  readonly text: string;
  /** Bytes of the text. */
  readonly bytes: number;

  constructor(members: ReadonlyMap<string, string>) {
    this.#members = members;
    this.text = [...members.values()].join();
    this.bytes = Buffer.byteLength(this.text);
  }

  /** Returns the members, except those whose names the record has itself. */
  without(names: ReadonlySet<string>): string {
    return [...this.#members].flatMap(([name, member]) => (names.has(name) ? [] : [member])).join(',');
  }

  has(name: string): boolean {
    return this.#members.has(name);
  }

  /**
   * Returns the attributes with these names, except those whose member is longer than `charsMax`.
   */
  some(names: readonly string[], charsMax: number): SharedAttributes {
    const found = names.map((name) => [name, this.#members.get(name) ?? ''] as const);
    return new SharedAttributes(new Map(found.filter(([, { length }]) => length > 0 && length <= charsMax)));
  }
}

const NONE = new SharedAttributes(new Map());

function shared(
  prefix: string,
  source: OtlpMessage,
  schemaUrl: unknown,
  own: readonly string[],
): SharedAttributes {
  const members = new Map<string, string>();
  new Writing().each(source.attributes, prefix, (name, member) => members.set(name, member));
  const dropped = countIn(source.droppedAttributesCount, 'droppedAttributesCount');
  if (dropped > 0) {
    const name = `${prefix}dropped_attributes_count`;
    members.set(name, integerAttribute(name, dropped));
  }
  for (const [field, value] of [
    ...own.map((name) => [name, source[name]] as const),
    ['schema_url', schemaUrl] as const,
  ]) {
    const text = textIn(value, field);
    if (text !== '') members.set(prefix + field, textAttribute(prefix + field, text));
  }
  return members.size === 0 ? NONE : new SharedAttributes(members);
}

/** @throws OtlpError */
export const resourceAttributes = (resource: OtlpMessage, schemaUrl: unknown): SharedAttributes =>
  shared('resource.', resource, schemaUrl, []);
/** @throws OtlpError */
export const scopeAttributes = (scope: OtlpMessage, schemaUrl: unknown): SharedAttributes =>
  shared('scope.', scope, schemaUrl, ['name', 'version']);

/** Writes the `attributes` of a record: first its own, then shared attributes of other names. */
function ownAttributes(writing: Writing, list: unknown, from: readonly SharedAttributes[]): string {
  const members: string[] = [];
  let own: Set<string> | undefined;
  writing.each(list, '', (name, member) => {
    members.push(member);
    if (from.some((one) => one.has(name))) own = (own ?? new Set()).add(name);
  });
  for (const one of from) {
    const text = own ? one.without(own) : one.text;
    if (text !== '') members.push(text);
  }
  return `"attributes":{${members}}`;
}

/** Joins the members of an object; those that are undefined are left out. */
const objectOf = (...members: readonly (string | undefined)[]): string =>
  `{${members.filter((member) => member !== undefined).join(',')}}`;
const textMember = (name: string, text: string): string | undefined =>
  text === '' ? undefined : `"${name}":${JSON.stringify(text)}`;
const countMember = (name: string, count: number): string | undefined =>
  count === 0 ? undefined : `"${name}":${count}`;
const rawMember = (name: string, json: string | undefined): string | undefined =>
  json === undefined ? undefined : `"${name}":${json}`;
const droppedAttributes = (message: OtlpMessage): string | undefined =>
  countMember('dropped_attributes_count', countIn(message.droppedAttributesCount, 'droppedAttributesCount'));

function eventText(writing: Writing, value: unknown): string {
  writing.count();
  const event = messageIn(value, 'event');
  return objectOf(
    rawMember('timestamp', secondsIn(event.timeUnixNano, 'timeUnixNano')),
    `"name":${JSON.stringify(textIn(event.name, 'name'))}`,
    droppedAttributes(event),
    `"attributes":${writing.attributes(event.attributes)}`,
  );
}

function linkText(writing: Writing, value: unknown): string {
  writing.count();
  const link = messageIn(value, 'link');
  const flags = countIn(link.flags, 'flags');
  return objectOf(
    textMember('trace_id', idIn(link.traceId, 'traceId of a link', 16)),
    textMember('span_id', idIn(link.spanId, 'spanId of a link', 8)),
    `"sampled":${(flags & SAMPLED) !== 0}`,
    textMember('trace_state', textIn(link.traceState, 'traceState')),
    countMember('flags', flags),
    droppedAttributes(link),
    `"attributes":${writing.attributes(link.attributes)}`,
  );
}

function listMember(name: string, list: unknown, one: (value: unknown) => string): string | undefined {
  const texts = listIn(list, name).map(one);
  return texts.length === 0 ? undefined : `"${name}":[${texts}]`;
}

/** Returns the attributes that a span's status becomes, besides `status`. */
function statusAttributes(code: number, message: string): SharedAttributes {
  if (message === '' && (code === 0 || code === STATUS_ERROR)) return NONE;
  const members = new Map<string, string>();
  const add = (name: string, text: string): unknown => members.set(name, textAttribute(name, text));
  if (message !== '') add('sentry.status.message', message);
  if (code !== 0 && code !== STATUS_ERROR) add('otel.status_code', code === 1 ? 'OK' : `${code}`);
  return new SharedAttributes(members);
}

/**
 * Returns a span as an element of a span container.
 * @param from attributes of its resource and scope
 * @throws OtlpError
 */
export function spanElement(span: OtlpMessage, from: readonly SharedAttributes[]): string {
  const writing = new Writing();
  const parent = idIn(span.parentSpanId, 'parentSpanId', 8);
  const flags = countIn(span.flags, 'flags');
  const kind = enumIn(span.kind, 'kind', KIND_NAMES);
  const status = messageIn(span.status, 'status');
  const code = enumIn(status.code, 'code of the status', STATUS_NAMES);
  const isRemote = (flags & HAS_IS_REMOTE) === 0 ? undefined : (flags & IS_REMOTE) !== 0;
  const ofStatus = statusAttributes(code, textIn(status.message, 'message of the status'));
  return objectOf(
    `"trace_id":"${idIn(span.traceId, 'traceId', 16) || bad('it has no traceId')}"`,
    `"span_id":"${idIn(span.spanId, 'spanId', 8) || bad('it has no spanId')}"`,
    textMember('parent_span_id', parent),
    `"name":${JSON.stringify(textIn(span.name, 'name'))}`,
    `"status":"${code > 1 || code < 0 ? 'error' : 'ok'}"`,
    `"is_segment":${parent === '' || isRemote === true}`,
    kind === 0 ? undefined : `"kind":${JSON.stringify(KINDS[kind - 1] ?? kind)}`,
    rawMember('start_timestamp', secondsIn(span.startTimeUnixNano, 'startTimeUnixNano')),
    rawMember('end_timestamp', secondsIn(span.endTimeUnixNano, 'endTimeUnixNano')),
    textMember('trace_state', textIn(span.traceState, 'traceState')),
    countMember('flags', flags),
    rawMember('is_remote', isRemote === undefined ? undefined : String(isRemote)),
    droppedAttributes(span),
    countMember('dropped_events_count', countIn(span.droppedEventsCount, 'droppedEventsCount')),
    countMember('dropped_links_count', countIn(span.droppedLinksCount, 'droppedLinksCount')),
    listMember('events', span.events, (event) => eventText(writing, event)),
    listMember('links', span.links, (link) => linkText(writing, link)),
    ownAttributes(writing, span.attributes, [ofStatus, ...from]),
  );
}

function levelOf(severity: number, text: string): string {
  const level = LEVELS[Math.ceil(severity / SEVERITIES_PER_LEVEL) - 1];
  if (level) return level;
  const named = text.toLowerCase();
  return LEVELS.find((one) => one === named) ?? LEVEL_OF_TEXT[named] ?? 'info';
}

/**
 * Returns a log as an element of a log container.
 * @param from attributes of its resource and scope
 * @throws OtlpError
 */
export function logElement(log: OtlpMessage, from: readonly SharedAttributes[]): string {
  const writing = new Writing();
  const severity = enumIn(log.severityNumber, 'severityNumber', SEVERITY_NAMES);
  const severityText = textIn(log.severityText, 'severityText');
  const observed = secondsIn(log.observedTimeUnixNano, 'observedTimeUnixNano');
  const [body, type] = isAbsent(log.body) ? (['null', 'null'] as const) : writing.value(log.body);
  return objectOf(
    rawMember('timestamp', secondsIn(log.timeUnixNano, 'timeUnixNano') ?? observed),
    textMember('trace_id', idIn(log.traceId, 'traceId', 16)),
    textMember('span_id', idIn(log.spanId, 'spanId', 8)),
    `"level":"${levelOf(severity, severityText)}"`,
    countMember('severity_number', severity),
    textMember('severity_text', severityText),
    type === 'null' ? undefined : `"body":${type === 'string' ? body : JSON.stringify(body)}`,
    type === 'null' || type === 'string' ? undefined : `"body_type":"${type}"`,
    rawMember('observed_timestamp', observed),
    textMember('event_name', textIn(log.eventName, 'eventName')),
    countMember('flags', countIn(log.flags, 'flags')),
    droppedAttributes(log),
    ownAttributes(writing, log.attributes, from),
  );
}
