/** What primary and workers say to each other over IPC. */
import type { ProjectRow } from '../http/metrics/page-figures.ts';
import type { RequestLines } from '../http/metrics/request-log.ts';
import type { MetricsSnapshot } from '../lib/metrics/metrics.ts';

export type Readiness = {
  status: 'ready' | 'not ready';
  checks: { redis: 'ok' | 'away'; nats: 'ok' | 'away'; registry: 'ok' | 'loading' };
};

export type FromWorker =
  | { kind: 'listening' }
  | { kind: 'beat'; readiness: Readiness; snapshot: MetricsSnapshot; projects?: ProjectRow[] }
  | ({ kind: 'requests' } & RequestLines);

/** `listen`: at once, though the worker is not ready. */
export type ToWorker = { kind: 'stop' } | { kind: 'listen' } | { kind: 'beat'; projects: boolean };
