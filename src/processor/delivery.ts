/**
 * One message as the broker handed it to us: what it carries, where it is in its stream, and the
 * answers that it wants.
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
  /** 1 for the first time. */
  readonly count: number;
  /** When the broker stored it, Unix milliseconds. */
  readonly storedAt: number;
  /** The same each time that this frame is stored or delivered: the sink knows frames by it. */
  readonly frameId: string;
  /** Of sampled entries, as stream/frame.ts says. */
  readonly traces: readonly string[];
  /** Facts of a dead letter that somebody replayed. */
  readonly replay: ReplayFacts | undefined;

  /**
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
    this.frameId = msg.headers?.get('Nats-Msg-Id') || `${this.stream}:${this.sequence}`;
    this.replay = replayFacts(msg.headers);
    this.traces = msg.headers?.has(TRACE_HEADER) ? msg.headers.values(TRACE_HEADER) : NO_TRACES;
  }

  /** The frame's bytes, until it is settled or forgotten. */
  get data(): Uint8Array {
    return this.#data;
  }

  /** Lets go of the bytes, which are a view of a block of memory; the answers stay possible. */
  forget(): void {
    this.#data = NO_BYTES;
  }

  /** Fire and forget: a lost one means another delivery, which the sink recognises. */
  ack(): void {
    this.#send(ACK);
  }

  /** @throws when the broker does not confirm in time */
  async ackConfirmed(): Promise<void> {
    await this.#link.connection.request(this.#reply, ACK, { timeout: BROKER_REPLY_MS_MAX });
  }

  /** Whether the stream has it no more: another processor has acknowledged it. */
  async isGone(): Promise<boolean> {
    const { streams } = await this.#link.manager();
    return (await streams.getMessage(this.stream, { seq: this.sequence })) === null;
  }

  /** Asks the broker to deliver it again at once. */
  giveBack(): void {
    this.#send(NAK);
  }

  /** Still at it: the time until the next delivery begins anew. */
  working(): void {
    this.#send(WORKING);
  }

  #send(answer: Uint8Array): void {
    const { connection } = this.#link;
    if (!connection.isClosed()) connection.publish(this.#reply, answer);
  }
}
