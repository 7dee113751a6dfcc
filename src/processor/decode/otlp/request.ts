/**
 * Cuts an OTLP request into items that are stored like any others: containers of spans or logs, or
 * one item with all metrics as JSON. docs/otlp.md has the rules.
 *
 * Each span or log gets the attributes of its resource and its scope. So a request of 40 KB, with a
 * large resource and many small logs, could become a gigabyte of rows. Three bounds prevent that:
 *
 *     SHARED_…            bytes of resources and scopes that all records repeat. If a request has
 *                         more, these attributes are once in each container, not in each record
 *     ROWS_BYTES_MAX      bytes of all rows of a request. The records after them are a dead letter
 *     RECORD_BYTES_MAX    bytes of a record, a resource or a scope, which is decoded without a
 *                         pause. A larger record is a dead letter, and so are all records of a
 *                         larger resource or scope
 *
 * The same request is always cut in the same way, so its rows have the same keys each time.
 */
import { type ItemType, isOtlp, type OtlpType } from '../../../lib/item-types.ts';
import { otlpFormOf, otlpHeader } from '../../../lib/otlp.ts';
import type { Slices, Steps } from '../../../lib/slices.ts';
import { RECORDING_BYTES_MAX } from '../../../limits.ts';
import type { WholeItem } from '../decode.ts';
import { bufferOf, decodeMessage, type MessageName, OtlpError, type OtlpMessage } from './messages.ts';
import {
  logElement,
  resourceAttributes,
  type SharedAttributes,
  scopeAttributes,
  spanElement,
} from './rows.ts';
import {
  type Encoding,
  type FoundRecord,
  json,
  type Outer,
  PROTOBUF,
  parsed,
  recordsOf,
  requestWith,
} from './walk.ts';

const KIB = 1024;
const MIB = 1024 * KIB;

const RECORD_BYTES_MAX = 4 * MIB;
const TOO_LARGE = `it has more than ${RECORD_BYTES_MAX} bytes`;
const ROWS_BYTES_MAX = 2 * RECORDING_BYTES_MAX;
/**
 * Bytes of resources and scopes that the records of a request may repeat: SHARED_RATIO_MAX times
 * the request's size, but at least SHARED_BYTES_MIN and at most SHARED_BYTES_MAX. Requests of SDKs
 * repeat 5 to 20 times their size.
 */
const SHARED_RATIO_MAX = 32;
const SHARED_BYTES_MIN = 1 * MIB;
const SHARED_BYTES_MAX = RECORDING_BYTES_MAX;

/**
 * Most elements of a container. A sink does not split a container that has more
 * (sink/containers.ts).
 */
const ELEMENTS_MAX = 1_000;
const CONTAINER_BYTES_MAX = 1 * MIB;
/** Bytes that a container takes in a sink besides its elements. */
const CONTAINER_OWN_BYTES = 512;
/**
 * Most bytes that rows may repeat when a sink splits a container: each row gets the shared
 * attributes. A container that would repeat more is stored in one row. So a container with large
 * shared attributes gets fewer elements, but at least ELEMENTS_MIN, because each container repeats
 * the attributes, too.
 */
const SPLIT_REPEATED_BYTES = 1 * MIB;
const ROW_OWN_BYTES = 1 * KIB;
const ELEMENTS_MIN = 100;
/** Attributes that each element has in any case: columns are filled from them (sink/columns.ts). */
const OF_COLUMNS = [
  'resource.service.name',
  'resource.service.version',
  'resource.deployment.environment.name',
  'resource.deployment.environment',
];
const OF_COLUMN_CHARS_MAX = 400;

/**
 * Number that a dead letter adds to its item's index. So a replay of the dead letter makes items
 * whose indexes no other item has.
 */
const LETTER_INDEX = 65_536;

/** An item that is made of an OTLP item. `fault`: why its records cannot be stored. */
export type Expanded = { item: WholeItem; fault?: string };

const OTLP: Readonly<Record<OtlpType, { message: MessageName; plural: string; type: ItemType }>> = {
  otlp_traces: { message: 'Span', plural: 'spans', type: 'span' },
  otlp_logs: { message: 'LogRecord', plural: 'logs', type: 'log' },
  otlp_metrics: { message: 'Metric', plural: 'metrics', type: 'otlp_metrics' },
};

const encodingOf = (type: OtlpType, header: Uint8Array): Encoding =>
  otlpFormOf(bufferOf(header).toString()) === 'json' ? json(type) : PROTOBUF;

/**
 * Yields the items that an OTLP item becomes, and undefined where the work may pause. If some
 * records cannot be stored, the last item is an OTLP request with these records alone, and has a
 * `fault`.
 */
export function* expanded(item: WholeItem): Generator<Expanded | undefined, void, void> {
  const type = item.type as OtlpType;
  const encoding = encodingOf(type, item.header);
  if (type === 'otlp_metrics' && encoding.isJson) return yield { item: { ...item, fromOtlp: true } };
  try {
    const payload = yield* encoding.prepared(item.payload);
    yield* new Request(item, encoding, payload).items();
  } catch (error) {
    if (!(error instanceof OtlpError)) throw error;
    yield { item, fault: `OTLP: ${error.message}` };
  }
}

/**
 * Yields the items that an item becomes: for most items, only the item itself. The work is done in
 * slices, with pauses.
 */
export async function* partsOf(item: WholeItem, slices: Slices): AsyncGenerator<Expanded, void, void> {
  if (!isOtlp(item.type)) return yield { item };
  const pause = slices.pauses();
  for (const part of expanded(item)) {
    if (part) yield part;
    const pending = pause();
    if (pending) await pending;
  }
}

class Request {
  readonly #item: WholeItem;
  readonly #encoding: Encoding;
  readonly #payload: Uint8Array;
  readonly #type: OtlpType;
  readonly #outer: OuterReader;

  constructor(item: WholeItem, encoding: Encoding, payload: Uint8Array) {
    this.#item = item;
    this.#encoding = encoding;
    this.#payload = payload;
    this.#type = item.type as OtlpType;
    this.#outer = new OuterReader(encoding);
  }

  /**
   * Yields the items of the request, and undefined where the work may pause.
   * @throws OtlpError, before the first item
   */
  *items(): Generator<Expanded | undefined, void, void> {
    const records = yield* recordsOf(this.#encoding, this.#payload);
    const rows =
      this.#type === 'otlp_metrics'
        ? new MetricRows(this.#item)
        : new ContainerRows(this.#item, this.#type, yield* this.#repeatsTooMuch(records));
    const bad: FoundRecord[] = [];
    let reason = '';
    for (const record of records) {
      const found = this.#add(rows, record);
      if (found instanceof OtlpError) {
        if (bad.push(record) === 1) reason = found.message;
      } else if (found) yield { item: found };
      yield;
    }
    const last = rows.end();
    if (last) yield { item: last };
    if (bad.length === 0) return;
    const { plural } = OTLP[this.#type];
    const fault = `OTLP: ${bad.length} of ${records.length} ${plural} cannot be stored; the first: ${reason}`;
    yield { item: bad.length === records.length ? this.#item : this.#letterOf(bad), fault };
  }

  /** Returns an item whose payload is a request with only these records. */
  #letterOf(records: readonly FoundRecord[]): WholeItem {
    const payload = requestWith(this.#encoding, this.#payload, records);
    return { ...this.#item, index: this.#item.index + LETTER_INDEX, length: payload.length, payload };
  }

  /** Whether repeating resources and scopes in each record would take too many bytes. */
  *#repeatsTooMuch(records: readonly FoundRecord[]): Steps<boolean> {
    let repeated = 0;
    for (const record of records) {
      repeated += this.#outer.read(record).bytes;
      yield;
    }
    const bound = Math.max(SHARED_BYTES_MIN, SHARED_RATIO_MAX * this.#payload.length);
    return repeated > Math.min(bound, SHARED_BYTES_MAX);
  }

  /**
   * Adds a record. Returns the error if the record cannot be stored. Returns the open container if
   * it is complete, because the record did not fit into it.
   */
  #add(rows: Rows, { resource, scope, range: [start, end] }: FoundRecord): WholeItem | OtlpError | undefined {
    try {
      if (rows.bytes > ROWS_BYTES_MAX)
        throw new OtlpError(`all rows of a request may have ${ROWS_BYTES_MAX} bytes`);
      if (end - start > RECORD_BYTES_MAX) throw new OtlpError(TOO_LARGE);
      const outer = this.#outer.read({ resource, scope });
      if (outer.fault !== undefined) throw new OtlpError(outer.fault);
      const bytes = this.#payload.subarray(start, end);
      return rows.add(messageFrom(this.#encoding, OTLP[this.#type].message, bytes), outer);
    } catch (error) {
      if (error instanceof OtlpError) return error;
      throw error;
    }
  }
}

function messageFrom(encoding: Encoding, name: MessageName, bytes: Uint8Array): OtlpMessage {
  if (!encoding.isJson) return decodeMessage(name, bytes);
  const value = parsed(exactJson(bufferOf(bytes).toString()));
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new OtlpError('it is no object');
  return value as OtlpMessage;
}

/**
 * Matches the beginning of an integer that may have more digits than a double holds. The match may
 * lie within a string.
 */
const LONG_INTEGER = /[:,[\s]-?\d{16}/;
/** Matches a character of a number, outside strings of valid JSON. */
const TOKEN = /[-\d.eE+]/;

/** Returns the JSON text with quotes around long integers, so that they keep all digits. */
function exactJson(text: string): string {
  if (!LONG_INTEGER.test(text)) return text;
  const parts: string[] = [];
  let copied = 0;
  for (let at = 0; at < text.length; at++) {
    const char = text[at] as string;
    if (char === '"') {
      for (at++; at < text.length && text[at] !== '"'; at++) if (text[at] === '\\') at++;
    } else if (char === '-' || (char >= '0' && char <= '9')) {
      let end = at + 1;
      while (end < text.length && TOKEN.test(text[end] as string)) end++;
      const number = text.slice(at, end);
      if (/^-?\d{16,}$/.test(number)) {
        parts.push(text.slice(copied, at), `"${number}"`);
        copied = end;
      }
      at = end - 1;
    }
  }
  parts.push(text.slice(copied));
  return parts.join('');
}

/**
 * A record's resource and scope. `bytes`: size of their attributes as JSON. `fault`: why they
 * cannot be read.
 */
type ReadOuter = {
  found: Pick<FoundRecord, 'resource' | 'scope'>;
  resource: OtlpMessage;
  scope: OtlpMessage;
  schemaUrls: readonly [resource: string, scope: string];
  attributes: readonly SharedAttributes[];
  bytes: number;
  fault?: string;
};
type ReadOne = {
  of: Outer;
  message: OtlpMessage;
  schemaUrl: string;
  attributes?: SharedAttributes;
  fault?: string;
};

/** Reads resources and scopes. It remembers the last of each, because records come in groups. */
class OuterReader {
  readonly #encoding: Encoding;
  #resource: ReadOne | undefined;
  #scope: ReadOne | undefined;
  #both: ReadOuter | undefined;

  constructor(encoding: Encoding) {
    this.#encoding = encoding;
  }

  read(found: Pick<FoundRecord, 'resource' | 'scope'>): ReadOuter {
    const { resource: ofResource, scope: ofScope } = found;
    if (this.#both?.found.resource === ofResource && this.#both.found.scope === ofScope) return this.#both;
    if (this.#resource?.of !== ofResource) this.#resource = this.#one('resource', ofResource);
    this.#scope = this.#one('scope', ofScope);
    const [resource, scope] = [this.#resource as ReadOne, this.#scope];
    const attributes = [resource.attributes, scope.attributes].flatMap((one) => one ?? []);
    const fault = resource.fault ?? scope.fault;
    this.#both = {
      found,
      resource: resource.message,
      scope: scope.message,
      schemaUrls: [resource.schemaUrl, scope.schemaUrl],
      attributes,
      bytes: attributes.reduce((sum, { bytes }) => sum + bytes, 0),
      ...(fault !== undefined && { fault }),
    };
    return this.#both;
  }

  #one(is: 'resource' | 'scope', of: Outer): ReadOne {
    const read: ReadOne = { of, message: {}, schemaUrl: '' };
    const name = is === 'resource' ? 'Resource' : 'InstrumentationScope';
    try {
      if ((of.own?.length ?? 0) > RECORD_BYTES_MAX) throw new OtlpError(TOO_LARGE);
      if (of.own && !isNull(of.own)) read.message = messageFrom(this.#encoding, name, of.own);
      if (of.schemaUrl) read.schemaUrl = this.#text(of.schemaUrl);
      const attributesOf = is === 'resource' ? resourceAttributes : scopeAttributes;
      read.attributes = attributesOf(read.message, read.schemaUrl);
    } catch (error) {
      if (!(error instanceof OtlpError)) throw error;
      read.fault = `its ${is} cannot be read: ${error.message}`;
    }
    return read;
  }

  #text(bytes: Uint8Array): string {
    const text = bufferOf(bytes).toString();
    const value: unknown = this.#encoding.isJson ? (parsed(text) ?? '') : text;
    if (typeof value !== 'string') throw new OtlpError('schemaUrl is no text');
    return value;
  }
}

const NULL = Buffer.from('null');
const isNull = (bytes: Uint8Array): boolean => NULL.equals(bytes);

interface Rows {
  /** Bytes of the items so far; a container counts once it is complete. */
  readonly bytes: number;
  /**
   * Adds a record.
   * @returns the item that is now complete, because this record begins another one; undefined when
   * none is
   * @throws OtlpError
   */
  add(message: OtlpMessage, outer: ReadOuter): WholeItem | undefined;
  /** Returns the last item; undefined when no record was added since the last complete one. */
  end(): WholeItem | undefined;
}

/** Gathers spans or logs in containers. */
class ContainerRows implements Rows {
  readonly #item: WholeItem;
  readonly #type: OtlpType;
  /** Whether shared attributes are in the containers, and not in each element. */
  readonly #isShared: boolean;
  #elements: string[] = [];
  #elementChars = 0;
  /**
   * OTLP resource and scope of the container that is being filled. Set only if `#isShared`; else
   * each element has its own.
   */
  #outer: ReadOuter | undefined;
  #shared = '';
  /**
   * `#of`: the resource and scope of the last record. `#from`: those of their attributes that fill
   * columns; each element repeats them.
   */
  #from: readonly SharedAttributes[] = [];
  #of: ReadOuter | undefined;
  #elementsMax = ELEMENTS_MAX;
  #made = 0;
  bytes = 0;

  constructor(item: WholeItem, type: OtlpType, isShared: boolean) {
    this.#item = item;
    this.#type = type;
    this.#isShared = isShared;
  }

  add(message: OtlpMessage, outer: ReadOuter): WholeItem | undefined {
    if (this.#isShared && this.#of !== outer) {
      this.#of = outer;
      this.#from = outer.attributes.map((one) => one.some(OF_COLUMNS, OF_COLUMN_CHARS_MAX));
    }
    const from = this.#isShared ? this.#from : outer.attributes;
    const element = this.#type === 'otlp_traces' ? spanElement(message, from) : logElement(message, from);
    const isOther = this.#isShared && this.#outer !== outer;
    const complete = isOther || this.#isFullWith(element) ? this.end() : undefined;
    if (isOther) this.#share(outer);
    this.#elements.push(element);
    this.#elementChars += element.length;
    return complete;
  }

  #isFullWith({ length }: string): boolean {
    return this.#elements.length >= this.#elementsMax || this.#elementChars + length > CONTAINER_BYTES_MAX;
  }

  #share(outer: ReadOuter): void {
    this.#outer = outer;
    this.#shared = outer.attributes
      .map(({ text }) => text)
      .filter(Boolean)
      .join();
    const fitting = Math.floor(SPLIT_REPEATED_BYTES / (ROW_OWN_BYTES + outer.bytes));
    this.#elementsMax = Math.min(ELEMENTS_MAX, Math.max(ELEMENTS_MIN, fitting));
  }

  end(): WholeItem | undefined {
    if (this.#elements.length === 0) return undefined;
    const shared = this.#isShared ? `"attributes":{${this.#shared}},` : '';
    const payload = Buffer.from(`{"version":2,${shared}"items":[${this.#elements.join()}]}`);
    this.#elements = [];
    this.#elementChars = 0;
    this.bytes += payload.length + CONTAINER_OWN_BYTES;
    const { header, index } = this.#item;
    const { type } = OTLP[this.#type];
    return { index: index + this.#made++, type, header, length: payload.length, payload, fromOtlp: true };
  }
}

/**
 * Gathers metrics in one item, which is the request as OTLP/JSON. The item's header says `json`,
 * because a replay of a dead letter reads the payload by the header.
 */
class MetricRows implements Rows {
  readonly #item: WholeItem;
  readonly #pieces: Buffer[] = [];
  #outer: ReadOuter | undefined;
  bytes = 0;

  constructor(item: WholeItem) {
    this.#item = item;
  }

  add(message: OtlpMessage, outer: ReadOuter): undefined {
    const before = this.#outer;
    this.#outer = outer;
    if (before === outer) this.#push(',');
    else if (before && before.found.resource === outer.found.resource)
      this.#push(`${scopeEnd(before)},${scopeStart(outer)}`);
    else
      this.#push(
        `${before ? `${scopeEnd(before)}${resourceEnd(before)},` : ''}${resourceStart(outer)}${scopeStart(outer)}`,
      );
    this.#push(JSON.stringify(message));
  }

  #push(text: string): void {
    const piece = Buffer.from(text);
    this.#pieces.push(piece);
    this.bytes += piece.length;
  }

  end(): WholeItem | undefined {
    if (!this.#outer) return undefined;
    const start = Buffer.from('{"resourceMetrics":[');
    const end = Buffer.from(`${scopeEnd(this.#outer)}${resourceEnd(this.#outer)}]}`);
    const payload = Buffer.concat([start, ...this.#pieces, end]);
    const header = Buffer.from(otlpHeader('otlp_metrics', 'json'));
    return { ...this.#item, header, length: payload.length, payload, fromOtlp: true };
  }
}

const schemaUrlMember = (url: string): string => (url === '' ? '' : `,"schemaUrl":${JSON.stringify(url)}`);
const resourceStart = ({ resource }: ReadOuter): string =>
  `{"resource":${JSON.stringify(resource)},"scopeMetrics":[`;
const resourceEnd = ({ schemaUrls }: ReadOuter): string => `]${schemaUrlMember(schemaUrls[0])}}`;
const scopeStart = ({ scope }: ReadOuter): string => `{"scope":${JSON.stringify(scope)},"metrics":[`;
const scopeEnd = ({ schemaUrls }: ReadOuter): string => `]${schemaUrlMember(schemaUrls[1])}}`;
