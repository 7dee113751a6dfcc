import type { Clock } from '../../lib/clock.ts';
import type { Log } from '../../lib/log.ts';
import type { Tracing } from '../../lib/tracing/tracing.ts';
import type { Access } from '../../projects/project-state.ts';
import type { Replica } from '../../projects/replica.ts';
import type { Publisher } from '../../stream/publish/publisher.ts';
import type { HeldEnvelope, HeldItem, UploadBudget } from '../envelope/upload.ts';
import type { Admission } from '../limit/admission.ts';
import type { AwayPolicy } from '../limit/failure-policy.ts';
import type { HeartbeatLimiter } from '../limit/heartbeat-limiter.ts';
import type { Outcome } from './answers/outcome.ts';
import type { UnsupportedHint } from './answers/rate-hints.ts';
import type { TrustedProxies } from './client-address.ts';
import type { Exchange } from './exchange.ts';
import type { Endpoint, RequestMetrics } from './metrics/request-metrics.ts';

/**
 * What one finished request leaves behind for metrics, the usage ledger and the development log.
 */
export type FinishedRequest = {
  exchange: Exchange;
  access?: Access | undefined;
  /** Position of this request in the month's usage, when it was counted. */
  counted?: { month: string; position: number } | undefined;
  /** Why the body was refused or stored nothing. */
  reason?: string | undefined;
};

/** Everything the two endpoints call; made by the worker's composition root. */
export type RequestServices = {
  readonly replica: Replica;
  readonly admission: Pick<Admission, 'knownRefusal' | 'admit' | 'refund'>;
  readonly heartbeatLimiter: HeartbeatLimiter;
  readonly publisher: Pick<Publisher, 'available' | 'hasRoomFor' | 'publish'>;
  readonly budget: UploadBudget;
  readonly metrics: RequestMetrics;
  readonly clock: Clock;
  readonly log: Log;
  /** What is done when the limiter or the counter is away. */
  readonly whileAway: AwayPolicy;
  readonly unsupportedHint: UnsupportedHint;
  /** Undefined: clients' addresses are not filled in. */
  readonly trustedProxies: TrustedProxies | undefined;
  /**
   * What filters look at of one item's payload, as JSON, out of the envelope's spool; one at a time
   * per worker, so that memory stays bounded.
   */
  pickSpooled(envelope: HeldEnvelope, item: HeldItem): Promise<Uint8Array>;
  /** Undefined: no request is traced. */
  readonly tracing?: Tracing | undefined;
  /** Records the one outcome of a request. */
  note(endpoint: Endpoint, outcome: Outcome, finished: FinishedRequest): void;
};
