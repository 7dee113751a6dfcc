/**
 * One request on its socket: body in, one answer out, or gone.
 *
 * The clocks of a request in all modules, when each runs, and what happens at its end:
 *
 * - BODY_MS_MAX, 60 s: from the head to the last body byte, without the time in which the worker
 *   pauses the socket. After 10 s the body must also bring 4,000 bytes/s over any 10 s. A slower
 *   client is cut; if its body was refused, the answer is sent first.
 * - BODY_PAUSED_MS_MAX, 120 s: while the worker pauses the socket. Then 503.
 * - ANSWER_MS_MAX, 2 s: from the last body byte, or the start of a heartbeat's publish. Then 503
 *   when nothing can have been queued (500 where the disk is the cause), else 500. The admission
 *   does not look at this clock.
 * - INFLATION_WAIT_MS_MAX, 1 s: in the InflationQueue. Then 503, or 429 where the limit refuses.
 * - REDIS_REPLY_MS_MAX, 700 ms: for each reply of Redis (limit/failure-policy.ts). A request may
 *   wait several times.
 * - CHECKPOINT_READ_MS_MAX, 1.75 s: for a month's checkpoint. Then 500, or 503 where the broker is
 *   away; in development the request passes.
 * - PUBLISH_ATTEMPT_MS, 800 ms: for an attempt to publish. Then another attempt with the same id,
 *   up to the earliest deadline in the frame.
 * - BROKER_AWAY_MS_MAX, 1.5 s: without the broker. Then 503 for entries that were never sent, whose
 *   positions are taken back. Sent ones are sent again after a reconnect.
 */
import { assert } from '../../lib/assert.ts';
import {
  BODY_GRACE_MS,
  BODY_MS_MAX,
  BODY_PAUSED_MS_MAX,
  BODY_PIECE_BYTES_MIN,
  BODY_PIECES_FREE,
  BODY_RATE_BYTES_PER_SEC,
  BODY_RATE_WINDOW_MS,
  BODY_REARM_MS,
  REFUSED_DRAIN_BYTES_MAX,
  REFUSED_DRAIN_PIECES_RATIO,
} from '../../limits.ts';
import { COMMON_HEADERS, FIRST_HEADER } from './answers/cors.ts';
import { type Answer, requestIdLine } from './answers/outcome.ts';
import { type OpenExchanges, SWEEP_MS } from './open-exchanges.ts';

/** The part of a uWebSockets.js response that an exchange needs. */
export interface ResponseSocket {
  onAborted(handler: () => void): unknown;
  onData(handler: (chunk: ArrayBuffer, isLast: boolean) => void): unknown;
  cork(callback: () => void): unknown;
  writeStatus(status: string): unknown;
  writeHeader(name: string, value: string): unknown;
  end(body: string, closeConnection?: boolean): unknown;
  /** Do not pass `undefined` as the length: uWebSockets.js would take it for 2^63. */
  endWithoutBody(reportedLength?: number, closeConnection?: boolean): unknown;
  /** Address of the other end of the connection. */
  getRemoteAddressAsText(): ArrayBuffer;
  pause(): void;
  resume(): void;
  close(): unknown;
}

/**
 * Whether the connection ends after the answer, and who ends it. HTTP asks a server to announce the
 * end to the client. uWebSockets.js does not do so when it ends the connection by itself.
 */
export type CloseMode = 'no' | 'by us' | 'by the library';

/** Facts that an exchange needs from the head of its request. */
export type ExchangeHead = {
  readonly closeMode: CloseMode;
  /** Whether the Content-Length is 0. */
  readonly isEmpty: boolean;
  /**
   * X-Request-Id of the client or a proxy; '' when there is none, or when it must not be repeated
   * in the answer.
   */
  readonly requestId: string;
};
const NOTHING = new ArrayBuffer(0);

const CLOSE_LINE = '\r\nConnection: close';

/** Takes the body of a request. No method is called after the answer or after `gone`. */
export interface BodyReader {
  /** Takes a chunk, which is valid only during the call. `isWhole`: the chunk is the whole body. */
  feed(chunk: Uint8Array, isWhole: boolean): void;
  end(): void;
  /**
   * Called when the client has been paused for BODY_PAUSED_MS_MAX. The reader must refuse the
   * request now, as an overload, since the client is not at fault.
   */
  overdue(): void;
  /**
   * Called when the body comes in too many pieces for its size. The reader must refuse the request
   * now, because each small piece costs as much as a large one.
   */
  inTinyPieces(): void;
  /** Called when the client went away, or was cut because its body was too slow. */
  gone(why: 'aborted' | 'too_slow'): void;
}

/**
 * The life of one HTTP request on its socket: body in, one answer out, or gone.
 *
 * The answer waits until the body has arrived whole, up to REFUSED_DRAIN_BYTES_MAX. If the
 * connection were closed while bytes are still arriving, the client might see a reset instead of
 * the answer. The bytes of a refused body are dropped.
 *
 * A body has two clocks. The client's clock counts the time in which the worker waits for bytes.
 * BODY_MS_MAX and the minimum rate are about this clock, and a client that breaks them is cut.
 * While the socket is paused, the worker's clock runs instead. When it reaches BODY_PAUSED_MS_MAX,
 * the client gets 503.
 *
 * An answer that closes the connection is sent from a timer. During a poll of the sockets,
 * uWebSockets.js would go on with what follows in the same packet (another request or chunk), which
 * has crashed the process. In a setImmediate, it would never free the closed connection (DECISIONS
 * 6).
 *
 * Phases: `open` → `answered` (the answer is on the socket) or `gone`. An answer that closes the
 * connection passes through `closing` first. An answer that waits for the body is `#waiting` in
 * phase `open`.
 */
export class Exchange {
  readonly #socket: ResponseSocket;
  readonly #exchanges: OpenExchanges;
  readonly #closeMode: CloseMode;
  #phase: 'open' | 'closing' | 'answered' | 'gone' = 'open';
  #reader: BodyReader | undefined;
  #waiting: Answer | undefined;
  #bodyComplete = false;
  /** When the socket was paused, monotonic ms; undefined: not paused. */
  #pausedAt: number | undefined;
  /** Total time of all pauses up to the last resume, in ms. */
  #pausedMs = 0;
  readonly startedAt: number;
  /** Sent with the answer; '': none. */
  requestId: string;
  /** Index in {@link OpenExchanges.reading}. */
  place: number | undefined;
  /** Body bytes received, as transmitted. */
  bytesRead = 0;
  /**
   * Number of pieces received. uWebSockets.js hands on each chunk of a chunked body by itself, and
   * each piece costs CPU, so a body of too many tiny pieces is refused (`#piecesMax`).
   */
  #pieces = 0;
  /**
   * `bytesRead` at each sweep once BODY_GRACE_MS have passed, the newest last. The minimum rate is
   * checked with these samples.
   */
  #pace: number[] | undefined;

  constructor(socket: ResponseSocket, exchanges: OpenExchanges, head: ExchangeHead) {
    this.#socket = socket;
    this.#exchanges = exchanges;
    this.#closeMode = head.closeMode;
    this.requestId = head.requestId;
    this.startedAt = exchanges.now();
    exchanges.enter(this);
    socket.onAborted(() => this.#lost('aborted'));
    socket.onData((chunk, isLast) => this.#receive(chunk, isLast));
    // When a head came in several segments, uWebSockets.js does not report the end of an empty
    // body, so it is reported here.
    if (head.isEmpty)
      setImmediate(() => {
        if (!this.#bodyComplete) this.#receive(NOTHING, true);
      });
  }

  /** Address of the other end of the connection; available only before the answer. */
  get peer(): string {
    return Buffer.from(this.#socket.getRemoteAddressAsText()).toString();
  }

  /**
   * Passes the body to `reader` from now on. Call it in the turn in which the request's head
   * arrived.
   */
  read(reader: BodyReader): void {
    this.#reader = reader;
  }

  /**
   * Sends the answer, now or once the body has been drained. Does nothing when the client is gone.
   */
  answer(answer: Answer): void {
    if (this.#phase === 'gone') return;
    assert(this.#phase === 'open' && !this.#waiting, 'an exchange is answered once');
    this.#reader = undefined;
    if (this.#pausedAt !== undefined) this.setPaused(false);
    if (this.#bodyComplete) return this.#send(answer, false);
    this.#waiting = answer;
    // While the worker is crowded (half of REQUESTS_IN_FLIGHT_MAX is exceeded), answers do not wait
    // for bodies that may never come. Bodies that become whole in this turn are still drained.
    if (this.#exchanges.isCrowded) setImmediate(() => this.#stopWaiting());
  }

  #stopWaiting(): void {
    if (this.#waiting && this.#phase === 'open') this.#send(this.#waiting, true);
  }

  /**
   * Answers without waiting for the body, then closes. This is for messages whose end cannot be
   * trusted.
   */
  answerAndClose(answer: Answer): void {
    assert(this.#phase === 'open', 'an exchange is answered once');
    this.#send(answer, true);
  }

  /**
   * Pauses or resumes the socket when the body's reader asks for it. Once the whole body has come,
   * the socket is only resumed, since otherwise the next request on the connection would never be
   * read.
   */
  setPaused(paused: boolean): void {
    const before = this.#pausedAt;
    if (this.#phase !== 'open' || paused === (before !== undefined)) return;
    if (paused && this.#bodyComplete) return;
    this.#pace = undefined;
    const now = this.#exchanges.now();
    this.#pausedAt = paused ? now : undefined;
    if (before === undefined) return void this.#socket.pause();
    this.#pausedMs += now - before;
    this.#socket.resume();
  }

  checkPace(now: number): void {
    const age = now - this.startedAt;
    if (age < BODY_REARM_MS || this.#phase === 'closing') return;
    const isPaused = this.#pausedAt !== undefined;
    const pausedMs = this.#pausedMs + now - (this.#pausedAt ?? now);
    if (isPaused && pausedMs > BODY_PAUSED_MS_MAX) this.#reader?.overdue();
    else if (age - pausedMs > BODY_MS_MAX || (!isPaused && this.#tooSlow(age - pausedMs))) this.#cut();
    else if (!isPaused) this.#rearmTimeout();
  }

  /** Restarts the body's time-out in uWebSockets.js, which begins anew when a socket is resumed. */
  #rearmTimeout(): void {
    this.#socket.pause();
    this.#socket.resume();
  }

  #cut(): void {
    if (this.#waiting) return this.#send(this.#waiting, true);
    this.#lost('too_slow');
    this.#socket.close();
  }

  /**
   * Whether the body is below the minimum rate.
   * @param waited ms on the client's clock
   */
  #tooSlow(waited: number): boolean {
    if (waited < BODY_GRACE_MS) return false;
    this.#pace ??= [];
    const samples = this.#pace.push(this.bytesRead);
    if (samples <= BODY_RATE_WINDOW_MS / SWEEP_MS) return false;
    const past = this.#pace.shift() ?? 0;
    return this.bytesRead - past < BODY_RATE_BYTES_PER_SEC * (BODY_RATE_WINDOW_MS / 1000);
  }

  #receive(chunk: ArrayBuffer, isLast: boolean): void {
    if (this.#phase !== 'open') return;
    this.bytesRead += chunk.byteLength;
    this.#pieces++;
    if (isLast) {
      this.#bodyComplete = true;
      this.#exchanges.bodyEnded(this);
    }
    const reader = this.#reader;
    if (reader && this.#pieces > this.#piecesMax) reader.inTinyPieces();
    else if (reader) {
      if (chunk.byteLength > 0) reader.feed(new Uint8Array(chunk), isLast && this.#pieces === 1);
      // `feed` may have led to an answer; then there is no reader to be told of the end
      if (isLast && this.#reader === reader) this.#exchanges.endAfterPoll(this);
    }
    this.#drained();
  }

  /** Called by {@link OpenExchanges} when the body is whole and the connection is still open. */
  end(): void {
    this.#reader?.end();
  }

  get #piecesMax(): number {
    return BODY_PIECES_FREE + this.bytesRead / BODY_PIECE_BYTES_MIN;
  }

  #drained(): void {
    const waiting = this.#waiting;
    if (!waiting || this.#phase !== 'open') return;
    if (this.#bodyComplete) this.#send(waiting, false);
    else if (
      this.bytesRead > REFUSED_DRAIN_BYTES_MAX ||
      this.#pieces > REFUSED_DRAIN_PIECES_RATIO * this.#piecesMax
    )
      this.#send(waiting, true);
  }

  #send(answer: Answer, close: boolean): void {
    if (close || this.#closeMode !== 'no' || this.#exchanges.allAnswersClose || this.#isOneInMany(answer))
      this.#writeLater(answer);
    else this.#write(answer, false);
  }

  /**
   * Whether this answer is the one in ANSWERS_PER_CLOSE that closes its connection. An answer
   * without a body never is, because uWebSockets.js would give its 204 a Content-Length.
   */
  #isOneInMany({ body }: Answer): boolean {
    return body !== '' && this.#exchanges.nextAnswerCloses();
  }

  #writeLater(answer: Answer): void {
    this.#phase = 'closing';
    setTimeout(() => {
      if (this.#phase === 'closing') this.#write(answer, true);
    }, 0);
  }

  #write(answer: Answer, closes: boolean): void {
    this.#phase = 'answered';
    this.#exchanges.leave(this);
    const socket = this.#socket;
    let { headers } = answer;
    // uWebSockets.js announces a close to the client only when the caller asks for the close. A
    // close by the library's own decision is announced here.
    const byLibrary = this.#closeMode === 'by the library';
    if (byLibrary) headers += CLOSE_LINE;
    if (this.requestId !== '') headers += requestIdLine(this.requestId);
    const asks = closes && !byLibrary;
    socket.cork(() => {
      // uWebSockets.js writes 200 OK by itself, and a call that is left out saves time.
      if (answer.status !== '200 OK') socket.writeStatus(answer.status);
      // One call for all headers, as headerLines explains: a call costs more than the bytes.
      const common = answer.isProtobuf ? COMMON_HEADERS.protobuf : COMMON_HEADERS.json;
      socket.writeHeader(FIRST_HEADER, common + headers);
      // An empty protobuf message counts as a body, of 0 bytes.
      if (answer.body !== '' || answer.isProtobuf) socket.end(answer.body, asks);
      else if (asks) socket.endWithoutBody(0, true);
      else socket.endWithoutBody(); // a 204 must not carry a Content-Length
    });
  }

  #lost(why: 'aborted' | 'too_slow'): void {
    if (this.#phase !== 'open' && this.#phase !== 'closing') return;
    this.#phase = 'gone';
    this.#exchanges.leave(this);
    const reader = this.#reader;
    this.#reader = undefined;
    reader?.gone(why);
  }
}
