/**
 * One message as the broker delivered it: its content, its place in its stream, and the answers
 * that the broker expects.
 */
import type { Msg } from '@nats-io/transport-node';
import { assert } from '../lib/assert.ts';
import { BROKER_REPLY_MS_MAX } from '../limits.ts';
import { type ReplayFacts, replayFacts } from '../stream/dead-letter-format.ts';
import { TRACE_HEADER } from '../stream/frame.ts';
import type { NatsLink } from '../stream/nats.ts';

const ACK = Buffer.from('+ACK');
const NAK = Buffer.from('-NAK');
const WORKING = Buffer.from('+WPI');
const NANOS_PER_MS = 1e6;
const NO_BYTES = new Uint8Array();
const NO_TRACES: readonly string[] = [];

export class Delivery {
  readonly #link: NatsLink;
  readonly #reply: string;
  #data: Uint8Array;
  readonly subject: string;
  readonly stream: string;
  readonly sequence: number;
  /** How often the message has been delivered; 1 at the first time. */
  readonly count: number;
  /** When the broker stored the message, Unix milliseconds. */
  readonly storedAt: number;
  /** Number of messages that the consumer had not been given yet, when this one was delivered. */
  readonly pending: number;
  /**
   * The sink knows the frame by this id, which stays the same when the frame is published or
   * delivered again.
   */
  readonly frameId: string;
  /** Traces of the frame's sampled entries, as stream/frame.ts describes them. */
  readonly traces: readonly string[];
  /** Facts of a replayed dead letter; undefined for other frames. */
  readonly replay: ReplayFacts | undefined;

  /**
   * Reads the place from the reply subject:
   * `$JS.ACK[.<domain>.<account>].<stream>.<consumer>.<delivered>.<stream seq>.<consumer
   * seq>.<nanoseconds>.<pending>[.<random>]`
   */
  constructor(msg: Msg, data: Uint8Array, link: NatsLink) {
    const tokens = (msg.reply ?? '').split('.');
    const at = tokens.length === 9 ? 2 : 4;
    assert(tokens[0] === '$JS' && tokens[1] === 'ACK' && tokens.length >= 9, 'a JetStream delivery');
    this.#link = link;
    this.#reply = msg.reply ?? '';
    this.#data = data;
    this.subject = msg.subject;
    this.stream = tokens[at] ?? '';
    this.count = Number(tokens[at + 2]);
    this.sequence = Number(tokens[at + 3]);
    this.storedAt = Math.floor(Number(tokens[at + 5]) / NANOS_PER_MS);
    this.pending = Number(tokens[at + 6]);
    this.frameId = msg.headers?.get('Nats-Msg-Id') || `${this.stream}:${this.sequence}`;
    this.replay = replayFacts(msg.headers);
    this.traces = msg.headers?.has(TRACE_HEADER) ? msg.headers.values(TRACE_HEADER) : NO_TRACES;
  }

  /** The frame's bytes. They are valid until the frame is settled or forgotten. */
  get data(): Uint8Array {
    return this.#data;
  }

  /**
   * Releases the bytes, which are a view of a block of memory. The frame can still be acknowledged
   * or given back.
   */
  forget(): void {
    this.#data = NO_BYTES;
  }

  /**
   * Acknowledges without waiting. If the acknowledgement is lost, the frame is delivered again and
   * the sink recognises it.
   */
  ack(): void {
    this.#send(ACK);
  }

  /**
   * Acknowledges and waits for the broker's confirmation.
   * @throws when the broker does not confirm in time
   */
  async ackConfirmed(): Promise<void> {
    await this.#link.connection.request(this.#reply, ACK, { timeout: BROKER_REPLY_MS_MAX });
  }

  /** Whether the stream has the message no more, because another processor has acknowledged it. */
  async isGone(): Promise<boolean> {
    const { streams } = await this.#link.manager();
    return (await streams.getMessage(this.stream, { seq: this.sequence })) === null;
  }

  /** Asks the broker to deliver the message again at once. */
  giveBack(): void {
    this.#send(NAK);
  }

  /** Tells the broker that the work goes on: the time until the next delivery begins anew. */
  working(): void {
    this.#send(WORKING);
  }

  #send(answer: Uint8Array): void {
    const { connection } = this.#link;
    if (!connection.isClosed()) connection.publish(this.#reply, answer);
  }
}
