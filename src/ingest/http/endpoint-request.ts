import { AssertionError, assert } from '../../lib/assert.ts';
import type { Clock } from '../../lib/clock.ts';
import type { ByteSource } from '../../lib/files/byte-source.ts';
import type { Log } from '../../lib/log.ts';
import type { Replica } from '../../projects/replica.ts';
import type { Publisher } from '../../stream/publish/publisher.ts';
import type { UploadBudget } from '../envelope/upload.ts';
import type { Admission } from '../limit/admission.ts';
import type { AwayPolicy } from '../limit/failure-policy.ts';
import type { HeartbeatLimiter } from '../limit/heartbeat-limiter.ts';
import type { UnsupportedHint } from './answers/limit-headers.ts';
import {
  type Answer,
  type Answers,
  newErrorId,
  type Outcome,
  type Refused,
  withReason,
} from './answers/outcome.ts';
import type { TrustedProxies } from './client-address.ts';
import type { BodyReader, Exchange } from './exchange.ts';
import type { EndpointName, RequestMetrics } from './metrics/request-metrics.ts';
import type { FinishedRequest, RequestRecord } from './record.ts';
import type { RequestHead } from './request-head.ts';

/** The services that the endpoints call. ingest/worker.ts makes them. */
export type RequestServices = {
  readonly replica: Replica;
  readonly admission: Pick<Admission, 'knownRefusal' | 'admit' | 'refund'>;
  readonly heartbeatLimiter: HeartbeatLimiter;
  readonly publisher: Pick<Publisher, 'available' | 'hasRoomFor' | 'publish'>;
  readonly budget: UploadBudget;
  readonly metrics: RequestMetrics;
  readonly clock: Clock;
  readonly log: Log;
  /** How requests are treated while Redis, which has the limits and the months' counts, is away. */
  readonly whileAway: AwayPolicy;
  readonly unsupportedHint: UnsupportedHint;
  /** Undefined: clients' addresses are not filled in. */
  readonly trustedProxies: TrustedProxies | undefined;
  /** Reads those fields of a spooled payload that filters look at, as JSON. */
  pickSpooled(payload: ByteSource): Promise<Uint8Array>;
  readonly record: Pick<RequestRecord, 'note'>;
};

export type Endpoint = { readonly name: EndpointName; readonly answers: Answers };

export const TINY_PIECES = 'the body comes in too many small pieces';

/** Reason of a 413. */
export const exceeds = (bytesMax: number): string => `the body exceeds ${bytesMax} bytes`;

/** A request of any endpoint. It has exactly one outcome, whatever happens. */
export abstract class EndpointRequest implements BodyReader {
  protected readonly services: RequestServices;
  protected readonly exchange: Exchange;
  /**
   * Whether the request goes on when its client is lost. An ingest request sets this before the
   * admission of items that it wants to store, a heartbeat before its publish.
   */
  protected committed = false;
  protected finished = false;
  /** Why the body was refused, or why nothing was stored. */
  protected reason: string | undefined;
  readonly #endpoint: Endpoint;
  #timer: NodeJS.Timeout | undefined;

  constructor(services: RequestServices, exchange: Exchange, endpoint: Endpoint) {
    this.services = services;
    this.exchange = exchange;
    this.#endpoint = endpoint;
  }

  start(head: RequestHead): void {
    this.guard(() => this.serve(head));
  }

  /**
   * Begins the request. `head` may not be read after this method returns. After each wait the
   * request may have ended: check `finished`.
   */
  protected abstract serve(head: RequestHead): void;
  abstract feed(chunk: Uint8Array, isWhole: boolean): void;
  abstract end(): void;
  /** Facts that are recorded about this request, beside its outcome. */
  protected abstract summary(): FinishedRequest;

  overdue(): void {
    this.refuse('overloaded');
  }

  inTinyPieces(): void {
    this.refuseBody('invalid', TINY_PIECES);
  }

  /** @param reason from a closed set, without any text of a client */
  protected refuseBody(kind: 'invalid' | 'too_large' | 'unsupported', reason: string): void {
    if (this.finished) return;
    this.reason = reason;
    this.services.metrics.refuseBody(reason);
    const answer = withReason(this.#endpoint.answers.refusals[kind], reason);
    this.finish(kind === 'unsupported' ? 'invalid' : kind, answer);
  }

  protected refuse(outcome: Refused): void {
    this.finish(outcome, this.#endpoint.answers.refusals[outcome]);
  }

  gone(why: 'aborted' | 'too_slow'): void {
    if (!this.committed) this.finish(why);
  }

  /**
   * Ends the request with its outcome.
   * @param answer undefined: there is no client left to answer
   */
  protected finish(outcome: Outcome, answer?: Answer): void {
    if (this.finished) return;
    this.finished = true;
    clearTimeout(this.#timer);
    this.services.record.note(this.#endpoint.name, outcome, this.summary());
    if (answer) this.exchange.answer(answer);
  }

  /** Runs `step` after `ms`, unless the request ends before or the timer is replaced or stopped. */
  protected runAfter(ms: number, step: () => void): void {
    clearTimeout(this.#timer);
    if (!this.finished) this.#timer = setTimeout(step, ms);
  }

  protected stopTimer(): void {
    clearTimeout(this.#timer);
  }

  /**
   * Ends the request as failed: with a 500 (OTLP: 503) and an errorId, which is in the log as well.
   * A request without an id gets the errorId as its id.
   */
  protected fail(reason: string, cause?: unknown): void {
    if (this.finished) return;
    const errorId = newErrorId();
    const { access } = this.summary();
    this.exchange.requestId ||= errorId;
    const { requestId } = this.exchange;
    this.services.log.error(
      { errorId, requestId, endpoint: this.#endpoint.name, project: access?.project.id, err: cause },
      reason,
    );
    this.finish('failed', this.#endpoint.answers.failed(errorId));
  }

  /** Runs `step`. An unexpected error fails this request; a broken invariant ends the worker. */
  protected guard(step: () => void): void {
    try {
      step();
    } catch (error) {
      this.#unforeseen(error);
    }
  }

  /** Does the same as {@link guard} for a step that is under way and returned a promise. */
  protected watch(step: Promise<unknown>): void {
    step.catch((error) => this.#unforeseen(error));
  }

  #unforeseen(error: unknown): void {
    if (error instanceof AssertionError) throw error;
    assert(!this.finished, `after the outcome: ${error}`);
    this.fail('unforeseen error', error);
  }
}
