import type { Clock } from '../../lib/clock.ts';
import { keyId } from '../../projects/project.ts';
import type { Access, ProjectState } from '../../projects/project-state.ts';
import type { TailFeed } from '../../stream/tail.ts';
import type { Outcome } from './answers/outcome.ts';
import type { Exchange } from './exchange.ts';
import type { PageFigures } from './metrics/page-figures.ts';
import type { RequestLog } from './metrics/request-log.ts';
import type { EndpointName, RequestMetrics } from './metrics/request-metrics.ts';

export type RefusedKey = { project: ProjectState; key: string };

/** Facts that are recorded about one finished request, beside its outcome. */
export type FinishedRequest = {
  exchange: Exchange;
  access?: Access | undefined;
  /** Position of this request in the month's usage; undefined when the request was not counted. */
  counted?: { month: string; position: number } | undefined;
  /** Why the request was refused or nothing was stored, from a closed set. */
  reason?: string | undefined;
  /** The key, when the project exists but does not accept the key now. */
  refused?: RefusedKey | undefined;
};

/** A request that was not accepted, of a known project, as `sluice tail --refused` shows it. */
export type Refusal = {
  at: string;
  project_id: string;
  outcome: Outcome;
  reason?: string | undefined;
  /** Id of the request's key. */
  key: string;
  bytes: number;
  /** Number of refusals that were left out since the last one that was shown. */
  missed?: number;
};

type RecordParts = {
  clock: Clock;
  metrics: RequestMetrics;
  pageFigures: PageFigures;
  /**
   * Statistics of ingest/usage/: when each key was last used, and each project's outcomes by hour.
   */
  keyUse: { note(access: Access): void };
  ledger: { note(project: ProjectState, outcome: Outcome, reason?: string, key?: string): void };
  /** Shows refusals to `sluice tail --refused`. */
  tail: Pick<TailFeed, 'isWatched' | 'show'>;
  /** The log of requests in development; undefined in production. */
  requestLog: RequestLog | undefined;
};

/**
 * Most refusals that one worker shows in a second. The bound keeps a flood of refused requests from
 * becoming a flood of messages.
 */
const REFUSALS_PER_SEC = 200;

/** Records the outcome of each request in all metrics, statistics and logs. */
export class RequestRecord {
  readonly #parts: RecordParts;
  /**
   * `count`: refusals since `since` (monotonic ms), shown or not. `missed`: refusals that were left
   * out since the last one that was shown.
   */
  #shown = { since: 0, count: 0, missed: 0 };

  constructor(parts: RecordParts) {
    this.#parts = parts;
  }

  note(endpoint: EndpointName, outcome: Outcome, finished: FinishedRequest): void {
    const { clock, metrics, pageFigures, keyUse, ledger, requestLog, tail } = this.#parts;
    const { exchange, access, counted, reason, refused } = finished;
    const project = access?.project ?? refused?.project;
    const seconds = (clock.monotonic() - exchange.startedAt) / 1000;
    metrics.outcomes[endpoint][outcome]++;
    metrics.duration.observe(seconds);
    metrics.bytes += exchange.bytesRead;
    if (access) keyUse.note(access);
    if (project) {
      ledger.note(project, outcome, reason, refused?.key);
      pageFigures.note(project, outcome, counted);
      if (reason !== undefined) metrics.noteReason(outcome, reason);
      if (outcome !== 'accepted' && tail.isWatched) this.#show(outcome, finished);
    }
    requestLog?.note({
      endpoint,
      outcome,
      reason: refused ? `${reason}, key ${keyId(refused.key)}` : reason,
      projectId: project?.id,
      bytes: exchange.bytesRead,
      ms: seconds * 1000,
      requestId: exchange.requestId,
    });
  }

  #show(outcome: Outcome, { exchange, access, refused, reason }: FinishedRequest): void {
    const { clock, tail } = this.#parts;
    const shown = this.#shown;
    const now = clock.monotonic();
    if (now - shown.since >= 1_000) Object.assign(shown, { since: now, count: 0 });
    if (shown.count++ >= REFUSALS_PER_SEC) {
      shown.missed++;
      return;
    }
    const refusal: Refusal = {
      at: new Date(clock.now()).toISOString(),
      project_id: `${(refused ?? access)?.project.id}`,
      outcome,
      reason,
      key: refused ? keyId(refused.key) : `${access?.keyId}`,
      bytes: exchange.bytesRead,
      ...(shown.missed > 0 && { missed: shown.missed }),
    };
    shown.missed = 0;
    tail.show('refused', Buffer.from(JSON.stringify(refusal)));
  }
}
