import { randomBytes } from 'node:crypto';
import type { Msg, MsgHdrs } from '@nats-io/transport-node';
import type { Clock } from '../../lib/clock.ts';
import { remove } from '../../lib/in-flight.ts';
import type { Log } from '../../lib/log.ts';
import { Distribution, SECONDS_BOUNDS } from '../../lib/metrics/distribution.ts';
import { BROKER_AWAY_MS_MAX, UNSENT_BYTES_MAX } from '../../limits.ts';
import type { NatsLink } from '../nats.ts';
import { recordHeaders } from '../record-size.ts';
import { readAck } from './ack.ts';
import { type Outgoing, Publication, type SendResult, type Wire } from './publication.ts';

/**
 * The message id ends with the number. The reply subject of an attempt ends with the number and
 * that of the attempt.
 */
type Numbered = { number: number; publication: Publication };

const LOG_INTERVAL_MS = 1_000;
/** Nobody has asked a stream for this long: whether it has no leader is open again. */
const LEADERLESS_FORGET_MS = 1_000;
/** Keeps the ids of this process apart from those of any other, before and after it. */
const BOOT_ID_BYTES = 9;

/**
 * Publishes messages to streams and matches the answers: one subscription for all, a counter in the
 * reply subject. The client's own `js.publish` makes a promise chain, a timer and an id per
 * message, and throws the attempt away when it times out (twice the CPU: bench/HISTORY.md).
 */
export class Sender implements Wire {
  readonly publishes: Record<string, number>;
  /** Seconds from the first attempt to the acknowledgement. */
  readonly duration: Distribution;
  readonly #link: NatsLink;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #inbox: string;
  readonly #bootId = randomBytes(BOOT_ID_BYTES).toString('base64url');
  readonly #publications: Numbered[] = [];
  /** Streams that nobody answers for, since when, and when last. */
  readonly #leaderless = new Map<string, { since: number; last: number }>();
  #counter = 0;
  #unreported = 0;
  #reportedAt = Number.NEGATIVE_INFINITY;

  /** @param like has the figures in which this one's are counted, too */
  constructor({ link, clock, log, like }: { link: NatsLink; clock: Clock; log: Log; like?: Sender }) {
    this.publishes = like?.publishes ?? {};
    this.duration = like?.duration ?? new Distribution(SECONDS_BOUNDS);
    this.#link = link;
    this.#inbox = link.inbox();
    this.#clock = clock;
    this.#log = log;
    link.subscribe(`${this.#inbox}.*.*`, (msg) => this.#receiveSafely(msg));
    link.onReconnect(() => this.#each((publication) => publication.send()));
    link.onAway(() => this.#each((publication) => publication.away()));
  }

  get connected(): boolean {
    return this.#link.connected;
  }

  /** False while the broker is away, or UNSENT_BYTES_MAX wait for it. */
  get hasRoom(): boolean {
    return !this.#link.isAway && this.#link.unsentBytes < UNSENT_BYTES_MAX;
  }

  /** Not connected, but not for long. */
  get isReconnecting(): boolean {
    return !this.#link.connected && !this.#link.isAway;
  }

  /** Bytes that one message may have, as the server says. */
  get maxPayload(): number {
    return this.#link.maxPayload;
  }

  monotonic(): number {
    return this.#clock.monotonic();
  }

  /**
   * @param done is called exactly once, at the latest at the message's deadline; perhaps before
   * this returns
   */
  send(message: Outgoing, done: (sent: SendResult) => void): void {
    const number = ++this.#counter;
    const startedAt = this.monotonic();
    const headers = recordHeaders(`${this.#bootId}.${number}`, message);
    const outgoing = { message, headers, replyTo: `${this.#inbox}.${number}` };
    const publication = new Publication(this, outgoing, (sent) => {
      remove(this.#publications, numbered);
      if (sent.result === 'stored') this.#leaderless.delete(message.stream);
      if (sent.result === 'stored') this.duration.observe((this.monotonic() - startedAt) / 1000);
      else this.#report(message.stream, sent);
      done(sent);
    });
    const numbered = { number, publication };
    this.#publications.push(numbered);
    this.publishes[message.stream] = (this.publishes[message.stream] ?? 0) + 1;
    publication.send();
  }

  /** Makes one attempt. @returns false when nothing can be sent at this moment */
  transmit({ subject, data }: Outgoing, messageHeaders: MsgHdrs, replyTo: string): boolean {
    if (!this.#link.connected || !this.hasRoom) return false;
    try {
      this.#link.connection.publish(subject, data, { headers: messageHeaders, reply: replyTo });
      return true;
    } catch (error) {
      // Closed or draining, or another server of the cluster takes less than the message's size.
      this.#log.warn({ err: error, subject }, 'nats: cannot send');
      return false;
    }
  }

  /** Notes that nobody answers for the stream. @returns whether that has been so for too long */
  isLeaderless(stream: string): boolean {
    const now = this.monotonic();
    const before = this.#leaderless.get(stream);
    const isSame = before !== undefined && now - before.last < LEADERLESS_FORGET_MS;
    const since = isSame ? before.since : now;
    this.#leaderless.set(stream, { since, last: now });
    return now - since >= BROKER_AWAY_MS_MAX;
  }

  /**
   * The client takes an exception here for the end of the connection and swallows it. A bug must
   * end the process instead.
   */
  #receiveSafely(msg: Msg): void {
    try {
      this.#receive(msg);
    } catch (bug) {
      setImmediate(() => {
        throw bug;
      });
    }
  }

  #receive(msg: Msg): void {
    const dot = msg.subject.lastIndexOf('.');
    const number = Number(msg.subject.slice(this.#inbox.length + 1, dot));
    const answered = this.#publications.find((one) => one.number === number);
    answered?.publication.answered(Number(msg.subject.slice(dot + 1)), readAck(msg));
  }

  #each(step: (publication: Publication) => void): void {
    for (const { publication } of [...this.#publications]) step(publication);
  }

  /** A line a second at most: a broker that is away fails hundreds of messages at once. */
  #report(stream: string, failure: Exclude<SendResult, { result: 'stored' }>): void {
    this.#unreported++;
    if (this.monotonic() - this.#reportedAt < LOG_INTERVAL_MS) return;
    const { result, reason } = failure;
    this.#log.warn({ stream, result, reason, messages: this.#unreported }, 'stream: not acknowledged');
    this.#reportedAt = this.monotonic();
    this.#unreported = 0;
  }
}
