/** Messages between primary and workers over IPC. */

import type { MetricsSnapshot } from '../lib/metrics/metrics.ts';
import type { ProjectRow } from './http/metrics/page-figures.ts';
import type { RequestLines } from './http/metrics/request-log.ts';

export type Readiness = {
  status: 'ready' | 'not ready';
  checks: { redis: 'ok' | 'away'; nats: 'ok' | 'away'; registry: 'ok' | 'loading' | 'missing' };
};

export type FromWorker =
  | { kind: 'listening' }
  | {
      kind: 'beat';
      readiness: Readiness;
      snapshot: MetricsSnapshot;
      projects?: ProjectRow[];
      /** CPU, memory and the like, when the primary asked. */
      process?: MetricsSnapshot;
    }
  | ({ kind: 'requests' } & RequestLines);

/** `beat`: with the figures of the process, which has this name. */
export type ToWorker = { kind: 'stop' } | { kind: 'beat'; projects: boolean; name: string };
