/** Exposes a worker's counters as metrics. */

import {
  byLabel,
  counter,
  gauge,
  histogram,
  type MetricsSnapshot,
  type Sample,
} from '../../../lib/metrics/metrics.ts';
import type { Publisher } from '../../../stream/publish/publisher.ts';
import type { UploadBudget } from '../../envelope/upload.ts';
import type { LimitRedis } from '../../limit/redis.ts';
import type { RequestMetrics } from './request-metrics.ts';

type WorkerFigures = {
  requests: RequestMetrics;
  inFlight: number;
  budget: UploadBudget;
  redis: LimitRedis;
  stateLost: number;
  countersRestored: number;
  /** Undefined until the worker has loaded the registry. */
  publisher: Publisher | undefined;
};

const byReason = ({ reasons }: RequestMetrics): Sample[] =>
  Object.entries(reasons).map(([name, count]) => {
    const [outcome = '', ...reason] = name.split(' ');
    return [{ outcome, reason: reason.join(' ') }, count];
  });

export function exposeMetrics(figures: WorkerFigures): MetricsSnapshot {
  const { requests, redis, publisher, budget } = figures;
  const outcomes = Object.entries(requests.outcomes).flatMap(([endpoint, counts]) =>
    Object.entries(counts).map(([outcome, count]): Sample => [{ endpoint, outcome }, count]),
  );
  const snapshot = [
    counter('sluice_requests_total', 'Requests by what became of them', outcomes),
    counter(
      'sluice_http_other_total',
      'Answers outside the endpoints',
      byLabel('status', requests.otherStatuses),
    ),
    histogram(
      'sluice_request_duration_seconds',
      'From the head of a request to its outcome',
      requests.duration,
    ),
    counter('sluice_items_total', 'Items of accepted envelopes', byLabel('type', requests.items)),
    counter(
      'sluice_items_skipped_total',
      'Items of types that are not stored, in envelopes that were answered 200',
      byLabel('type', requests.skipped),
    ),
    counter(
      'sluice_items_rate_limited_total',
      'Items dropped over the limit of their category',
      byLabel('type', requests.rateLimited),
    ),
    counter(
      'sluice_refused_bodies_total',
      'Requests that were refused for their body or head, by the reason that X-Sentry-Error gives',
      byLabel('reason', requests.refusedBodies),
    ),
    counter(
      'sluice_refusals_total',
      'Requests of projects that were refused, filtered or empty, by outcome and reason',
      byReason(requests),
    ),
    counter('sluice_bytes_total', 'Body bytes that came before the outcome, as transmitted', [
      [{}, requests.bytes],
    ]),
    counter(
      'sluice_redis_calls_total',
      'Commands sent that carry calls of a script; ' +
        'one may carry those of many projects, and counts for each script in it',
      byLabel('script', redis.stats.calls),
    ),
    histogram('sluice_redis_call_duration_seconds', 'Round trip of a script call', redis.stats.duration),
    counter(
      'sluice_limiter_state_lost_total',
      'How often a rate window lacked tokens that were taken from it: lost by Redis, or expired early by a step of its clock',
      [[{}, figures.stateLost]],
    ),
    counter(
      'sluice_counters_restored_total',
      'Counts of a month that Redis had lost, and that went on from a checkpoint',
      [[{}, figures.countersRestored]],
    ),
    gauge('sluice_inflight_requests', 'Requests between their first byte and their answer', [
      [{}, figures.inFlight],
    ]),
    gauge('sluice_buffered_bytes', 'Bytes of envelopes held in memory', [[{}, budget.heldBytes]]),
    gauge('sluice_spooled_bytes', 'Bytes of envelopes in spool files', [[{}, budget.spooledBytes]]),
  ];
  if (!publisher) return snapshot;
  const { stats, connections } = publisher;
  return [
    ...snapshot,
    gauge(
      'sluice_nats_connected',
      'Workers whose connection to NATS is there, by what it carries',
      Object.entries(connections).map(([connection, is]): Sample => [{ connection }, Number(is)]),
    ),
    counter('sluice_publishes_total', 'Messages published', byLabel('stream', stats.publishes)),
    histogram('sluice_publish_duration_seconds', 'From a publish to its acknowledgement', stats.duration),
    histogram('sluice_frame_envelopes', 'Envelopes per frame', stats.frameEntries),
  ];
}
