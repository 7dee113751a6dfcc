import type { Clock } from '../../lib/clock.ts';
import type { Access, ProjectState } from '../../projects/project-state.ts';
import type { Outcome } from './answers/outcome.ts';
import type { Exchange } from './exchange.ts';
import type { PageFigures } from './metrics/page-figures.ts';
import type { RequestLog } from './metrics/request-log.ts';
import type { EndpointName, RequestMetrics } from './metrics/request-metrics.ts';

/** Facts that one finished request leaves behind, beside its outcome. */
export type FinishedRequest = {
  exchange: Exchange;
  access?: Access | undefined;
  /** Position of this request in the month's usage, when it was counted. */
  counted?: { month: string; position: number } | undefined;
  /** Why the body was refused or stored nothing. */
  reason?: string | undefined;
};

type RecordParts = {
  clock: Pick<Clock, 'monotonic'>;
  metrics: RequestMetrics;
  pageFigures: PageFigures;
  /** ingest/usage/: when each key was used last, and the outcomes of each project by hour. */
  keyUse: { note(access: Access): void };
  ledger: { note(project: ProjectState, outcome: Outcome): void };
  /** Undefined in production. */
  requestLog: RequestLog | undefined;
};

/** Where the one outcome of each request is written down. */
export class RequestRecord {
  readonly #parts: RecordParts;

  constructor(parts: RecordParts) {
    this.#parts = parts;
  }

  note(endpoint: EndpointName, outcome: Outcome, finished: FinishedRequest): void {
    const { clock, metrics, pageFigures, keyUse, ledger, requestLog } = this.#parts;
    const { exchange, access, counted, reason } = finished;
    const project = access?.project;
    const seconds = (clock.monotonic() - exchange.startedAt) / 1000;
    metrics.outcomes[endpoint][outcome]++;
    metrics.duration.observe(seconds);
    metrics.bytes += exchange.bytesRead;
    if (access && project) {
      keyUse.note(access);
      ledger.note(project, outcome);
      pageFigures.note(project, outcome, counted);
    }
    requestLog?.note({
      endpoint,
      outcome,
      reason,
      projectId: project?.id,
      bytes: exchange.bytesRead,
      ms: seconds * 1000,
      requestId: exchange.requestId,
    });
  }
}
