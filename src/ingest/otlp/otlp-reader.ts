/**
 * Reads an OTLP request, in protobuf or JSON, as one item whose payload is the body as it came.
 * While the body arrives, a walk over its outer structure counts the records and refuses a body
 * that is no OTLP request. Records are decoded by the processor.
 */
import { createHash, type Hash } from 'node:crypto';
import type { OtlpType } from '../../lib/item-types.ts';
import { OTLP_LISTS, type OtlpForm, otlpHeader } from '../../lib/otlp.ts';
import { OTLP_PARTS_MAX, OTLP_RECORDS_MAX } from '../../limits.ts';
import type { Malformed } from '../envelope/header.ts';
import type { ItemReader, ItemReceiver } from '../envelope/parser.ts';
import { JsonRecords } from './json-records.ts';
import { ProtobufWalk } from './protobuf-walk.ts';

const NOTHING = Buffer.alloc(0);
const EVENT_ID_CHARS = 32;

export type OtlpRequestKind = { type: OtlpType; form: OtlpForm };

export class OtlpReader implements ItemReader {
  readonly #kind: OtlpRequestKind;
  readonly #receiver: ItemReceiver;
  readonly #walk: ProtobufWalk | JsonRecords;
  /**
   * Hash over the project, the type of the request and its body. The event id is made from the
   * hash, so a client's repetition has the same id.
   */
  readonly #hash: Hash;
  #hasBegun = false;
  #malformed: Malformed | undefined;

  constructor(kind: OtlpRequestKind, projectId: string, receiver: ItemReceiver) {
    const { type, form } = kind;
    this.#kind = kind;
    this.#receiver = receiver;
    this.#walk = form === 'protobuf' ? new ProtobufWalk() : new JsonRecords(OTLP_LISTS[type]);
    this.#hash = createHash('sha256').update(`${projectId}\n${type}\n`);
  }

  feed(chunk: Uint8Array): Malformed | undefined {
    this.#judge(this.#walk.feed(chunk));
    if (this.#malformed !== undefined) return this.#malformed;
    if (!this.#hasBegun) this.#begin();
    this.#hash.update(chunk);
    this.#receiver.payload(chunk);
    return undefined;
  }

  end(): Malformed | undefined {
    this.#judge(this.#walk.end());
    if (this.#malformed !== undefined) return this.#malformed;
    if (this.#hasBegun) this.#receiver.itemEnd();
    const eventId = this.#hash.digest('hex').slice(0, EVENT_ID_CHARS);
    this.#receiver.envelopeHeader({ eventId, hasNothing: this.#walk.records === 0 }, NOTHING);
    return undefined;
  }

  #begin(): void {
    const { type, form } = this.#kind;
    const header = Buffer.from(otlpHeader(type, form));
    this.#hasBegun = true;
    this.#receiver.itemBegin({ index: 0, type, header });
  }

  #judge(noRequest: ReturnType<JsonRecords['feed']>): void {
    const { records, parts } = this.#walk;
    if (noRequest === 'too deep') this.#malformed ??= 'the body is nested too deeply';
    else if (noRequest !== undefined) this.#malformed ??= 'the body is no OTLP request';
    else if (records > OTLP_RECORDS_MAX) this.#malformed ??= 'the body has too many records';
    else if (parts > OTLP_PARTS_MAX) this.#malformed ??= 'the body has too many fields';
  }
}
