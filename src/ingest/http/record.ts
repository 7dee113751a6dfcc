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

/** Facts that one finished request leaves behind, beside its outcome. */
export type FinishedRequest = {
  exchange: Exchange;
  access?: Access | undefined;
  /** Position of this request in the month's usage, when it was counted. */
  counted?: { month: string; position: number } | undefined;
  /** Why it was refused or stored nothing, of a closed set. */
  reason?: string | undefined;
  /** Its key is none that a project accepts now. */
  refused?: RefusedKey | undefined;
};

/** A request of a project of which nothing is stored, as `sluice tail --refused` shows it. */
export type Refusal = {
  at: string;
  project_id: string;
  outcome: Outcome;
  reason?: string | undefined;
  /** The id of its key. */
  key: string;
  bytes: number;
  /** How many more were not shown since the one before. */
  missed?: number;
};

type RecordParts = {
  clock: Clock;
  metrics: RequestMetrics;
  pageFigures: PageFigures;
  /** ingest/usage/: when each key was used last, and the outcomes of each project by hour. */
  keyUse: { note(access: Access): void };
  ledger: { note(project: ProjectState, outcome: Outcome, reason?: string, keyId?: string): void };
  /** Who watches refusals. */
  tail: Pick<TailFeed, 'isWatched' | 'show'>;
  /** Undefined in production. */
  requestLog: RequestLog | undefined;
};

/** Refusals that one worker shows in a second: a flood of them stays one of requests. */
const REFUSALS_PER_SEC = 200;

/** Where the one outcome of each request is written down. */
export class RequestRecord {
  readonly #parts: RecordParts;
  /** Refusals that were shown since a monotonic ms, and not shown. */
  #shown = { since: 0, count: 0, missed: 0 };

  constructor(parts: RecordParts) {
    this.#parts = parts;
  }

  note(endpoint: EndpointName, outcome: Outcome, finished: FinishedRequest): void {
    const { clock, metrics, pageFigures, keyUse, ledger, requestLog, tail } = this.#parts;
    const { exchange, access, counted, reason, refused } = finished;
    const project = access?.project ?? refused?.project;
    const keyOf = refused && keyId(refused.key);
    const seconds = (clock.monotonic() - exchange.startedAt) / 1000;
    metrics.outcomes[endpoint][outcome]++;
    metrics.duration.observe(seconds);
    metrics.bytes += exchange.bytesRead;
    if (access) keyUse.note(access);
    if (project) {
      ledger.note(project, outcome, reason, keyOf);
      pageFigures.note(project, outcome, counted);
      if (reason !== undefined) metrics.noteReason(outcome, reason);
      if (outcome !== 'accepted' && tail.isWatched) this.#show(outcome, finished);
    }
    requestLog?.note({
      endpoint,
      outcome,
      reason: keyOf === undefined ? reason : `${reason}, key ${keyOf}`,
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
