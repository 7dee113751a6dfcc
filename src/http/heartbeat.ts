/** A heartbeat ping (spec 4.2, contract part 3): known token → limit → body of at most 10 KiB → queue → answer. */
import { ANSWER_MS_MAX, HEARTBEAT_BODY_BYTES_MAX } from '../limits.ts';
import type { PublishResult } from '../stream/publisher.ts';
import { EndpointRequest } from './endpoint-request.ts';
import type { Exchange } from './exchange.ts';
import { type Answer, HEARTBEAT_REFUSALS } from './outcome.ts';
import type { FinishedRequest, RequestParts } from './parts.ts';
import type { RequestHead } from './request-head.ts';

const ACCEPTED: Answer = { status: '200 OK', headers: '', body: '{"ok":true}' };

export class HeartbeatRequest extends EndpointRequest {
  #token = '';
  #admitted = false;
  #bodyComplete = false;
  readonly #pieces: Uint8Array[] = [];
  #bytes = 0;

  constructor(parts: RequestParts, exchange: Exchange) {
    super(parts, exchange, 'heartbeat');
  }

  start(head: RequestHead): void {
    this.guard(() => {
      this.#token = head.getParameter(0);
      if (!this.parts.replica.hasHeartbeat(this.#token)) return this.#refuse('unknown_token');
      if (!this.parts.publisher.available) return this.#refuse('overloaded');
      this.exchange.read(this);
      const later = (decision: 'admitted' | 'refused' | 'unavailable') =>
        this.guard(() => this.#decided(decision));
      const decision = this.parts.heartbeatLimiter.take(this.#token, later);
      if (decision) this.#decided(decision);
    });
  }

  #decided(decision: 'admitted' | 'refused' | 'unavailable'): void {
    if (this.finished) return;
    if (decision === 'refused') return this.#refuse('rate_limited');
    if (decision === 'unavailable') {
      if (this.parts.whileAway.heartbeat === 'refuse') return this.#refuse('limiter_unavailable');
      this.parts.log.warn('heartbeat limiter unavailable: let through in development');
    }
    this.#admitted = true;
    this.#proceed();
  }

  feed(chunk: Uint8Array): void {
    this.#bytes += chunk.byteLength;
    if (this.#bytes > HEARTBEAT_BODY_BYTES_MAX) this.#pieces.length = 0;
    else this.#pieces.push(chunk.slice());
  }

  end(): void {
    this.#bodyComplete = true;
    this.guard(() => this.#proceed());
  }

  #proceed(): void {
    if (!this.#admitted || !this.#bodyComplete || this.finished) return;
    if (this.#bytes > HEARTBEAT_BODY_BYTES_MAX) return this.#refuse('too_large');
    this.committed = true;
    const { clock, publisher } = this.parts;
    const body = this.#bytes > 0 ? Buffer.concat(this.#pieces) : undefined;
    publisher.publish(
      { kind: 'heartbeat', token: this.#token, receivedAt: clock.now(), body },
      { deadline: clock.monotonic() + ANSWER_MS_MAX },
      (result) => this.guard(() => this.#published(result)),
    );
  }

  #published(result: PublishResult): void {
    if (result === 'stored') this.finish('accepted', ACCEPTED);
    else if (result === 'refused') this.#refuse('overloaded');
    else this.fail('no acknowledgement from the stream before the deadline');
  }

  #refuse(outcome: keyof typeof HEARTBEAT_REFUSALS): void {
    this.finish(outcome, HEARTBEAT_REFUSALS[outcome]);
  }

  protected override trace(): FinishedRequest {
    return { exchange: this.exchange };
  }
}
