/**
 * A heartbeat ping, step by step: Is the heartbeat token known? Has the publisher room? Does the
 * limit admit the ping (decided while the body arrives)? Has the body at most 10 KiB? Then the ping
 * is published and answered.
 */

import { ANSWER_MS_MAX } from '../../limits.ts';
import type { PublishResult } from '../../stream/publish/publisher.ts';
import type { HeartbeatDecision } from '../limit/heartbeat-limiter.ts';
import { HEARTBEAT_ANSWERS } from './answers/outcome.ts';
import { type Endpoint, EndpointRequest, exceeds, type RequestServices } from './endpoint-request.ts';
import type { Exchange } from './exchange.ts';
import type { FinishedRequest } from './record.ts';
import type { RequestHead } from './request-head.ts';

const HEARTBEAT_BODY_BYTES_MAX = 10 * 1024;

export const HEARTBEAT: Endpoint = { name: 'heartbeat', answers: HEARTBEAT_ANSWERS };

export class HeartbeatRequest extends EndpointRequest {
  #pieces: Uint8Array[] = [];
  #bytes = 0;
  #onBody: (() => void) | undefined;

  constructor(services: RequestServices, exchange: Exchange) {
    super(services, exchange, HEARTBEAT);
  }

  protected override serve(head: RequestHead): void {
    this.watch(this.#serve(head.getParameter(0)));
  }

  async #serve(token: string): Promise<void> {
    if (!this.services.replica.hasHeartbeat(token)) return this.refuse('unknown_token');
    if (!this.services.publisher.available) return this.refuse('overloaded');
    const body = this.#readBody();
    const isAdmitted = this.#passOrRefuse(await this.services.heartbeatLimiter.admit(token));
    if (!isAdmitted) return;
    await body;
    if (this.finished) return;
    if (this.#bytes > HEARTBEAT_BODY_BYTES_MAX)
      return this.refuseBody('too_large', exceeds(HEARTBEAT_BODY_BYTES_MAX));
    this.committed = true;
    this.#onPublished(await this.#publish(token));
  }

  #passOrRefuse(decision: HeartbeatDecision): boolean {
    if (this.finished) return false;
    if (decision === 'refused') this.refuse('rate_limited');
    if (decision === 'unavailable') {
      if (this.services.whileAway.heartbeat === 'refuse') this.refuse('limiter_unavailable');
      else this.services.log.warn('heartbeat limiter unavailable: let through in development');
    }
    return !this.finished;
  }

  /** Resolves when the body is complete or too large. Never settles when the client goes away. */
  #readBody(): Promise<void> {
    return new Promise((resolve) => {
      this.#onBody = resolve;
      this.exchange.read(this);
    });
  }

  feed(chunk: Uint8Array): void {
    this.#bytes += chunk.byteLength;
    if (this.#bytes <= HEARTBEAT_BODY_BYTES_MAX) return void this.#pieces.push(chunk.slice());
    this.#pieces = [];
    this.#onBody?.(); // a body that is too large is refused before the rest has come
  }

  end(): void {
    this.#onBody?.();
  }

  #publish(token: string): Promise<PublishResult> {
    const { clock, publisher } = this.services;
    const body = this.#bytes > 0 ? Buffer.concat(this.#pieces) : undefined;
    const deadline = clock.monotonic() + ANSWER_MS_MAX;
    return new Promise((resolve) =>
      publisher.publish({ kind: 'heartbeat', token, receivedAt: clock.now(), body }, { deadline }, resolve),
    );
  }

  #onPublished(result: PublishResult): void {
    if (result === 'stored') this.finish('accepted', HEARTBEAT_ANSWERS.accepted(''));
    else if (result === 'refused') this.refuse('overloaded');
    else this.fail('no acknowledgement from the stream before the deadline');
  }

  protected override summary(): FinishedRequest {
    return { exchange: this.exchange, reason: this.reason };
  }
}
