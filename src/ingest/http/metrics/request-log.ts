import type { Outcome } from '../answers/outcome.ts';
import type { EndpointName } from './request-metrics.ts';

const FLUSH_MS = 100;
/**
 * Lines a second that are printed for all workers together. When there are more requests, a summary
 * replaces the remaining lines. So a worker passes on at most this many lines at a time.
 */
export const LINES_PER_SEC_MAX = 20;

/**
 * The requests that finished since the last flush: lines about a few of them, the number of all,
 * and numbers by outcome.
 */
export type RequestLines = { lines: string[]; total: number; outcomes: Record<string, number> };

type LoggedRequest = {
  endpoint: EndpointName;
  outcome: Outcome;
  /** Why the body was refused, or why nothing was stored. */
  reason: string | undefined;
  projectId: string | undefined;
  bytes: number;
  ms: number;
  /** '' when the request has no id. */
  requestId: string;
};

/**
 * Logs the outcome of each request, in development only. Lines are gathered for FLUSH_MS and passed
 * on together.
 */
export class RequestLog {
  readonly #emit: (lines: RequestLines) => void;
  #pending: RequestLines = { lines: [], total: 0, outcomes: {} };
  #timer: NodeJS.Timeout | undefined;

  constructor(emit: (lines: RequestLines) => void) {
    this.#emit = emit;
  }

  note(request: LoggedRequest): void {
    const pending = this.#pending;
    pending.total++;
    pending.outcomes[request.outcome] = (pending.outcomes[request.outcome] ?? 0) + 1;
    if (pending.lines.length < LINES_PER_SEC_MAX) {
      const { endpoint, outcome, reason, projectId, bytes, ms, requestId } = request;
      const subject = projectId === undefined ? endpoint : `${endpoint} project ${projectId}`;
      const name = requestId === '' ? '' : ` ${requestId}`;
      const why = reason === undefined ? '' : ` (${reason})`;
      const cost = `${bytes} B ${ms.toFixed(1)} ms`;
      pending.lines.push(`${new Date().toISOString()} ${subject} ${outcome}${why} ${cost}${name}`);
    }
    this.#timer ??= setTimeout(() => this.flush(), FLUSH_MS);
  }

  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#pending.total > 0) this.#emit(this.#pending);
    this.#pending = { lines: [], total: 0, outcomes: {} };
  }
}
