/**
 * Publishes messages to streams and matches the replies. One subscription receives all replies, and
 * a counter in the reply subject tells which message a reply is for. The client library's
 * `js.publish` takes twice the CPU (bench/HISTORY.md), and drops a reply that comes after its
 * time-out.
 *
 * A message is sent again, with the same bytes and the same Nats-Msg-Id, until it is stored or
 * refused, or until its deadline, a few seconds later. The stream remembers ids for two minutes and
 * drops repetitions.
 *
 * A late reply to an earlier attempt counts, too. The sender is certain that a message is not
 * stored only when each attempt was answered with an error that says so. An attempt without a reply
 * may still be in some buffer, so the result stays `unknown` unless an acknowledgement comes. Each
 * attempt has its own reply subject. So two replies to one attempt, from an old and a new leader,
 * do not count as replies to two attempts.
 *
 * A message's timer bounds the wait for a reply, or the pause after a reply that does not say
 * "stored"; then the next attempt begins. After a reconnect all messages are sent again. When the
 * broker or the stream's leader has been away for BROKER_AWAY_MS_MAX, messages that are certainly
 * not stored are refused.
 */
import { randomBytes } from 'node:crypto';
import type { Msg, MsgHdrs } from '@nats-io/transport-node';
import type { Clock } from '../../lib/clock.ts';
import { remove } from '../../lib/in-flight.ts';
import type { Log } from '../../lib/log.ts';
import { Distribution, SECONDS_BOUNDS } from '../../lib/metrics/distribution.ts';
import {
  BROKER_AWAY_MS_MAX,
  PUBLISH_ANSWER_MS_MIN,
  PUBLISH_ATTEMPT_MS,
  PUBLISH_PAUSE_MS,
  UNSENT_BYTES_MAX,
} from '../../limits.ts';
import type { traceLines } from '../frame.ts';
import type { NatsLink } from '../nats.ts';
import { recordHeaders } from '../record-size.ts';

type Outgoing = {
  /** Name of the stream, for metrics and the log. */
  stream: string;
  subject: string;
  data: Uint8Array;
  /** Monotonic ms after which no further attempt is made. */
  deadline: number;
  /** Trace headers, made by {@link traceLines}. */
  traces?: readonly string[] | undefined;
};

export type SendResult =
  | { result: 'stored'; sequence: number }
  /**
   * `refused`: the message is certainly not in the stream. `unknown`: it may be there now or later.
   */
  | { result: 'refused' | 'unknown'; reason: string };

/** One message on its way into its stream. */
type Publication = {
  readonly message: Outgoing;
  /**
   * Number of the message, counted by its sender. The message's id ends with it. The reply subject
   * of an attempt ends with this number and the attempt's number.
   */
  readonly number: number;
  readonly headers: MsgHdrs;
  readonly startedAt: number;
  /** How many attempts were made. */
  sent: number;
  /** Numbers of the attempts whose reply says "not stored". */
  readonly refused: number[];
  /** The reason in the last reply. */
  reason: string;
  timer: NodeJS.Timeout | undefined;
  done(sent: SendResult): void;
};

/** Whether the message is certainly not in the stream. */
const isCertain = ({ refused, sent }: Publication): boolean => refused.length === sent;

const LOG_INTERVAL_MS = 1_000;
/**
 * Longest time between two replies "no responders" that count as one absence of the stream's
 * leader.
 */
const LEADERLESS_FORGET_MS = 1_000;
/**
 * Bytes of a random id that sets the message ids of this sender apart from those of all other
 * senders, in earlier and later processes too.
 */
const BOOT_ID_BYTES = 9;

export class Sender {
  readonly publishes: Record<string, number>;
  /** Seconds from the first attempt to the acknowledgement. */
  readonly duration: Distribution;
  readonly #link: NatsLink;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #inbox: string;
  readonly #bootId = randomBytes(BOOT_ID_BYTES).toString('base64url');
  /** Messages whose result is not known yet. */
  readonly #publications: Publication[] = [];
  /**
   * Streams for which no server responds: monotonic ms of the first and of the last reply that says
   * so.
   */
  readonly #leaderless = new Map<string, { since: number; last: number }>();
  #counter = 0;
  #unreported = 0;
  #reportedAt = Number.NEGATIVE_INFINITY;

  /** @param like a sender whose counters this sender adds to */
  constructor({ link, clock, log, like }: { link: NatsLink; clock: Clock; log: Log; like?: Sender }) {
    this.publishes = like?.publishes ?? {};
    this.duration = like?.duration ?? new Distribution(SECONDS_BOUNDS);
    this.#link = link;
    this.#inbox = link.inbox();
    this.#clock = clock;
    this.#log = log;
    link.subscribe(`${this.#inbox}.*.*`, (msg) => this.#receiveSafely(msg));
    link.onReconnect(() => {
      for (const publication of [...this.#publications])
        if (this.#publications.includes(publication)) this.#attempt(publication);
    });
    link.onAway(() => {
      // Nothing can be sent, so these messages are refused. A message that may be stored keeps
      // waiting until its deadline: the connection may come back.
      for (const publication of this.#publications.filter(isCertain))
        this.#finish(publication, { result: 'refused', reason: 'not connected' });
    });
  }

  get connected(): boolean {
    return this.#link.connected;
  }

  /** False while the broker is away, or while UNSENT_BYTES_MAX wait on the connection. */
  get hasRoom(): boolean {
    return !this.#link.isAway && this.#link.unsentBytes < UNSENT_BYTES_MAX;
  }

  /** Most bytes of one message, as the server states. */
  get maxPayload(): number {
    return this.#link.maxPayload;
  }

  monotonic(): number {
    return this.#clock.monotonic();
  }

  /**
   * Sends a message, repeatedly where needed, and reports the result.
   * @param done is called exactly once, by the message's deadline at the latest; perhaps before
   * this method returns
   */
  send(message: Outgoing, done: (sent: SendResult) => void): void {
    const number = ++this.#counter;
    const publication: Publication = {
      message,
      number,
      headers: recordHeaders(`${this.#bootId}.${number}`, message),
      startedAt: this.monotonic(),
      sent: 0,
      refused: [],
      reason: 'no acknowledgement',
      timer: undefined,
      done,
    };
    this.#publications.push(publication);
    this.publishes[message.stream] = (this.publishes[message.stream] ?? 0) + 1;
    this.#attempt(publication);
  }

  // ---- To the broker ----

  #attempt(publication: Publication): void {
    if (publication.message.deadline <= this.monotonic()) return this.#giveUp(publication);
    const isReconnecting = !this.#link.connected && !this.#link.isAway;
    if (this.#transmit(publication)) publication.sent++;
    else if (isCertain(publication) && !isReconnecting)
      return this.#finish(publication, { result: 'refused', reason: 'nothing can be sent' });
    this.#wait(publication, PUBLISH_ATTEMPT_MS);
  }

  /**
   * Makes one attempt.
   * @returns false when nothing can be sent at this moment
   */
  #transmit({ message: { subject, data }, number, headers, sent }: Publication): boolean {
    if (!this.#link.connected || !this.hasRoom) return false;
    try {
      const reply = `${this.#inbox}.${number}.${sent + 1}`;
      this.#link.connection.publish(subject, data, { headers, reply });
      return true;
    } catch (error) {
      // The connection is closed or draining, or another server of the cluster has a lower
      // max_payload.
      this.#log.warn({ err: error, subject }, 'nats: cannot send');
      return false;
    }
  }

  /**
   * Waits before the next attempt, after a reply that does not say "stored". The next attempt must
   * have time for its reply: an attempt without a reply would turn a refusal into an unknown
   * result.
   */
  #pause(publication: Publication): void {
    this.#wait(publication, PUBLISH_PAUSE_MS, PUBLISH_ANSWER_MS_MIN);
  }

  /**
   * Starts the timer for the next attempt, or for the deadline when that comes first.
   *
   * @param room ms that the next attempt must have for its reply
   */
  #wait(publication: Publication, ms: number, room = 0): void {
    clearTimeout(publication.timer);
    const left = publication.message.deadline - this.monotonic();
    publication.timer =
      ms + room < left
        ? setTimeout(() => this.#attempt(publication), ms)
        : setTimeout(() => this.#giveUp(publication), Math.max(0, left));
  }

  // ---- From the broker ----

  /**
   * Passes a reply on. The client library would swallow an exception here and take it for the end
   * of the connection. A bug must end the process instead.
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
    const publication = this.#publications.find((one) => one.number === number);
    if (publication) this.#answered(publication, Number(msg.subject.slice(dot + 1)), readAck(msg));
  }

  /**
   * Handles a reply.
   * @param attempt number of the attempt from its reply subject, from 1
   */
  #answered(publication: Publication, attempt: number, ack: Ack): void {
    if (ack.kind === 'stored') return this.#finish(publication, { result: 'stored', sequence: ack.sequence });
    publication.reason = ack.reason;
    if (ack.kind === 'unclear') return this.#pause(publication);
    if (!publication.refused.includes(attempt)) publication.refused.push(attempt);
    const isMissing = ack.kind === 'no responders' && this.#isLeaderless(publication.message.stream);
    if (ack.kind === 'refused' || isMissing) this.#giveUp(publication);
    else this.#pause(publication);
  }

  /**
   * Notes that no server responded for the stream. @returns whether that has lasted for
   * BROKER_AWAY_MS_MAX
   */
  #isLeaderless(stream: string): boolean {
    const now = this.monotonic();
    const before = this.#leaderless.get(stream);
    const isSame = before !== undefined && now - before.last < LEADERLESS_FORGET_MS;
    const since = isSame ? before.since : now;
    this.#leaderless.set(stream, { since, last: now });
    return now - since >= BROKER_AWAY_MS_MAX;
  }

  // ---- The end ----

  #giveUp(publication: Publication): void {
    const result = isCertain(publication) ? 'refused' : 'unknown';
    this.#finish(publication, { result, reason: publication.reason });
  }

  #finish(publication: Publication, sent: SendResult): void {
    if (!remove(this.#publications, publication)) return;
    clearTimeout(publication.timer);
    const { stream } = publication.message;
    if (sent.result === 'stored') {
      this.#leaderless.delete(stream);
      this.duration.observe((this.monotonic() - publication.startedAt) / 1000);
    } else this.#report(stream, sent);
    publication.done(sent);
  }

  /**
   * Logs failures, at most a line per second: when the broker is away, hundreds of messages fail at
   * once.
   */
  #report(stream: string, failure: Exclude<SendResult, { result: 'stored' }>): void {
    this.#unreported++;
    if (this.monotonic() - this.#reportedAt < LOG_INTERVAL_MS) return;
    const { result, reason } = failure;
    this.#log.warn({ stream, result, reason, messages: this.#unreported }, 'stream: not acknowledged');
    this.#reportedAt = this.monotonic();
    this.#unreported = 0;
  }
}

// ---- The answers of a stream, and what each means for the next step ----

type Ack =
  | { kind: 'stored'; sequence: number }
  /** This attempt is not in the stream and will not be, and another attempt would fail as well. */
  | { kind: 'refused'; reason: string }
  /** This attempt is not in the stream, but a later attempt may succeed. */
  | { kind: 'again'; reason: string }
  /** No stream listens on the subject: there is none, or it has no leader at the moment. */
  | { kind: 'no responders'; reason: string }
  /**
   * The reply does not tell whether the message is stored, so the message is sent again. One such
   * error is 10158: an earlier attempt with the same message id is being stored at this moment.
   */
  | { kind: 'unclear'; reason: string };

const MEANING: Readonly<Record<number, 'refused' | 'again'>> = {
  10002: 'refused', // the account's storage is used up
  10023: 'again', // server short of resources
  10028: 'again', // memory short
  10039: 'refused', // JetStream not enabled for the account
  10047: 'refused', // the server's storage is used up
  10054: 'refused', // longer than max_msg_size: setup has closed the stream
  10109: 'refused', // sealed
  10167: 'again', // too many requests
};

/**
 * Code of "maximum bytes exceeded" and similar refusals, but also of failures to write, which may
 * pass.
 */
const STORE_FAILED = 10077;
const NO_RESPONDERS = 503;

function ofError(error: { err_code?: unknown; description?: unknown }): Ack {
  const code = Number(error.err_code);
  const reason = `${error.description} (${code})`;
  if (code === STORE_FAILED)
    return { kind: /maximum .* exceeded/.test(reason) ? 'refused' : 'unclear', reason };
  return { kind: MEANING[code] ?? 'unclear', reason };
}

function readAck(msg: Msg): Ack {
  if (msg.data.length === 0 && msg.headers?.code === NO_RESPONDERS)
    return { kind: 'no responders', reason: 'no stream listens on the subject' };
  let body: unknown;
  try {
    body = JSON.parse(msg.string());
  } catch {
    return { kind: 'unclear', reason: 'an answer that is no JSON' };
  }
  const { stream, seq, error } = (body ?? {}) as { stream?: unknown; seq?: unknown; error?: object };
  if (error) return ofError(error);
  if (typeof stream === 'string' && Number.isSafeInteger(seq) && (seq as number) > 0)
    return { kind: 'stored', sequence: seq as number };
  return { kind: 'unclear', reason: 'an answer that is no acknowledgement' };
}
