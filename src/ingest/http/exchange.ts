/**
 * One request on its socket: body in, one answer out, or gone.
 *
 * The clocks of a request, here and elsewhere, and what happens at the end of each:
 *
 *     60 s for the client's body        from the head to the last byte, not while we pause the
 *     (BODY_MS_MAX), after 10 s also    socket: the connection is cut, after the answer where the
 *     4,000 bytes/s over any 10 s       body was refused
 *     120 s of pauses                   while we pause the socket: 503
 *     (BODY_PAUSED_MS_MAX)
 *     2 s for the answer                from the last byte, a heartbeat's from its publish: 503 if
 *     (ANSWER_MS_MAX)                   nothing can have been queued, else 500; 500 also where the
 *                                       disk is why. The admission between does not look at it
 *     1 s in the InflationQueue         503, or 429 where the limit says so
 *     (INFLATION_WAIT_MS_MAX)
 *     700 ms for a reply of Redis       limit/failure-policy.ts. A request may wait for several
 *     (REDIS_REPLY_MS_MAX)              calls: the one under way, its own, the one after a
 *                                       checkpoint, and another one for a late token. It waits as
 *                                       long for a connection in place of one that was cut; on a
 *                                       single server a late and a cut call take 1 s together
 *     1.75 s for a month's checkpoint   500, or 503 where the broker is away; in development the
 *     (CHECKPOINT_READ_MS_MAX)          request passes
 *     800 ms for an attempt to publish  another attempt with the same id, up to the earliest
 *     (PUBLISH_ATTEMPT_MS)              deadline in the frame
 *     1.5 s without the broker          503 for what was never sent, and the position is taken
 *     (BROKER_AWAY_MS_MAX)              back; what was sent is sent again after a reconnect
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
import { COMMON_HEADERS } from './answers/cors.ts';
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
  /** An argument that is given counts, `undefined` too: as a length of 2^63. */
  endWithoutBody(reportedLength?: number, closeConnection?: boolean): unknown;
  /** The other end of the connection. */
  getRemoteAddressAsText(): ArrayBuffer;
  pause(): void;
  resume(): void;
  close(): unknown;
}

/**
 * Who ends the connection after the answer. The library does it without telling the client, which
 * HTTP asks for.
 */
export type CloseMode = 'no' | 'by us' | 'by the library';

/** Facts about an exchange from the head of its request. */
export type ExchangeHead = {
  readonly closeMode: CloseMode;
  /** Its Content-Length is 0. */
  readonly isEmpty: boolean;
  /** X-Request-Id of the client or a proxy; '' when there is none that is fit to be repeated. */
  readonly requestId: string;
};
const NOTHING = new ArrayBuffer(0);

const CLOSE_LINE = '\r\nConnection: close';

/** Who takes the body of a request. None of these is called after the answer or after `gone`. */
export interface BodyReader {
  /** The chunk dies when the call returns. `isWhole`: it is the whole body. */
  feed(chunk: Uint8Array, isWhole: boolean): void;
  end(): void;
  /**
   * The client has been paused for BODY_PAUSED_MS_MAX: to be refused now, since it is not its
   * fault.
   */
  overdue(): void;
  /**
   * The body comes in more pieces than its bytes explain: to be refused now, for each costs as much
   * as a large one.
   */
  inTinyPieces(): void;
  /** The client went away, or was cut because its body was too slow. */
  gone(why: 'aborted' | 'too_slow'): void;
}

/**
 * The life of one HTTP request on its socket: body in, one answer out, or gone.
 *
 * The answer waits until the body has arrived whole, up to REFUSED_DRAIN_BYTES_MAX: an answer that
 * is followed by a close while bytes are still arriving can reach the client as a reset, and
 * clients that write before they read never see it. The price is that a refusal of a large upload
 * costs its bandwidth; it costs no memory, since the bytes are dropped.
 *
 * A body has two clocks. The client's counts the time in which we waited for bytes: BODY_MS_MAX and
 * the minimum rate are about that one, and a client that breaks them is cut. While the socket is
 * paused ours runs instead: a client that sends as fast as we let it is never too slow, and is told
 * 503 when we have paused it for BODY_PAUSED_MS_MAX.
 *
 * An answer that closes the connection goes out from a timer, never while uWebSockets.js hands on
 * what one poll brought: uWebSockets.js would go on with what follows in the same packet, another
 * request or chunk, and has then crashed the process. Nor from a setImmediate: uWebSockets.js never
 * frees a connection that is closed there (DECISIONS 6). While an answer is due, uWebSockets.js
 * closes the connection instead of taking another request.
 *
 * Phases: `open` → `answered` (the answer is on the socket) or `gone`, with `closing` before them
 * when the answer closes. An answer that waits for the body is `#waiting` in phase `open`.
 */
export class Exchange {
  readonly #socket: ResponseSocket;
  readonly #exchanges: OpenExchanges;
  readonly #closeMode: CloseMode;
  #phase: 'open' | 'closing' | 'answered' | 'gone' = 'open';
  #reader: BodyReader | undefined;
  #waiting: Answer | undefined;
  #bodyComplete = false;
  /** Monotonic ms; undefined: not paused. */
  #pausedAt: number | undefined;
  /** Paused in all, up to the last resume. */
  #pausedMs = 0;
  readonly startedAt: number;
  /** Goes out with the answer; '' : none. */
  requestId: string;
  /** In {@link OpenExchanges.reading}. */
  place: number | undefined;
  /** Body bytes as transmitted. */
  bytesRead = 0;
  /** Pieces of the body so far: uWebSockets.js hands on each chunk of a chunked body by itself. */
  #pieces = 0;
  /** `bytesRead` at each sweep after the grace, for the minimum rate; the newest last. */
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
    // The library does not say that such a body has ended when its head came in several segments.
    if (head.isEmpty)
      setImmediate(() => {
        if (!this.#bodyComplete) this.#receive(NOTHING, true);
      });
  }

  /** The other end of the connection; only before the answer. */
  get peer(): string {
    return Buffer.from(this.#socket.getRemoteAddressAsText()).toString();
  }

  /** Hands the body to `reader` from now on; must be called in the turn of the request's head. */
  read(reader: BodyReader): void {
    this.#reader = reader;
  }

  /**
   * Sends the answer, now or when the body has been drained. Does nothing when the client is gone.
   */
  answer(answer: Answer): void {
    if (this.#phase === 'gone') return;
    assert(this.#phase === 'open' && !this.#waiting, 'an exchange is answered once');
    this.#reader = undefined;
    if (this.#pausedAt !== undefined) this.setPaused(false);
    if (this.#bodyComplete) return this.#send(answer, false);
    this.#waiting = answer;
    // Bodies that never come must not keep others out; one that is whole in this turn is drained.
    if (this.#exchanges.isCrowded) setImmediate(() => this.#stopWaiting());
  }

  #stopWaiting(): void {
    if (this.#waiting && this.#phase === 'open') this.#send(this.#waiting, true);
  }

  /**
   * Answers without waiting for the body and closes: for a message whose end cannot be trusted.
   */
  answerAndClose(answer: Answer): void {
    assert(this.#phase === 'open', 'an exchange is answered once');
    this.#send(answer, true);
  }

  /**
   * Pauses or resumes the socket, as the reader of the body asks. Once the whole body has come
   * there is nothing left to pause. A socket that was paused before is still resumed: otherwise the
   * next request on the connection would never be read.
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

  /** uWebSockets.js starts the time-out of a body anew when its socket is resumed. */
  #rearmTimeout(): void {
    this.#socket.pause();
    this.#socket.resume();
  }

  #cut(): void {
    if (this.#waiting) return this.#send(this.#waiting, true);
    this.#lost('too_slow');
    this.#socket.close();
  }

  /** @param waited ms on the client's clock */
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
      // feed may have ended in an answer, which then waits for the rest or has gone out
      if (isLast && this.#reader === reader) this.#exchanges.endAfterPoll(this);
    }
    this.#drained();
  }

  /**
   * For {@link OpenExchanges}: the body has arrived whole, and nothing came with it that ends the
   * connection.
   */
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

  /** Never an answer without a body: the library would give its 204 a Content-Length. */
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
    // The library tells the client of a close only when we ask for it.
    const byLibrary = this.#closeMode === 'by the library';
    if (byLibrary) headers += CLOSE_LINE;
    if (this.requestId !== '') headers += requestIdLine(this.requestId);
    const asks = closes && !byLibrary;
    socket.cork(() => {
      // The library writes 200 OK by itself, and each crossing into it costs.
      if (answer.status !== '200 OK') socket.writeStatus(answer.status);
      // One call for all headers, as headerLines tells: a crossing costs more than the bytes.
      socket.writeHeader(COMMON_HEADERS.name, COMMON_HEADERS.value + headers);
      if (answer.body !== '') socket.end(answer.body, asks);
      else if (asks) socket.endWithoutBody(0, true);
      else socket.endWithoutBody(); // A 204 must not carry a Content-Length.
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
