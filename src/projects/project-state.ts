import { type CompiledFilters, compileFilters } from '../filter/inbound.ts';
import type { ProjectWindow } from '../limit/lease.ts';
import { type Project, type ProjectPrivacy, privacyOf } from './project.ts';

/**
 * Requests of one project at this worker since it was started, for the page; `month` empty: no
 * position is known.
 */
export type ProjectFigures = {
  requests: number;
  accepted: number;
  /** Removed by an inbound filter. */
  filtered: number;
  /** Over the per-minute limit or the quota. */
  limited: number;
  month: string;
  position: number;
};

/**
 * All that one process keeps of a project, from the moment at which it reads the record until the
 * project is deleted. A changed record goes into the same object, so a request under way sees it
 * too.
 *
 * One object for all stages, although each field has one owner: with ten thousand active projects
 * each further object is one more that is in no cache of the processor's.
 */
export class ProjectState {
  readonly id: string;
  /** The registry's: {@link update} sets these together. */
  record: Project;
  /**
   * Grows with every change of the record, also when the bucket is deleted and made again. The
   * newest wins.
   */
  revision: number;
  /** Requests a minute; undefined: no per-minute limit applies (spec part 8, rule 2). */
  limit: number | undefined;
  privacy: ProjectPrivacy | undefined;
  #filters: CompiledFilters | undefined = undefined;
  isDeleted = false;

  /** limit/admission.ts: undefined until the first request, and after a minute without one. */
  window: ProjectWindow | undefined = undefined;

  /**
   * usage/checkpoints.ts: the figure that is not written yet; `checkpointMonth` empty: there is
   * none.
   */
  checkpointMonth = '';
  checkpointCount = 0;

  /**
   * usage/outcomes.ts: requests since they were last gathered; `isGathered` while the ledger lists
   * it.
   */
  isGathered = false;
  freshAccepted = 0;
  freshOthers: Record<string, number> | undefined = undefined;

  /** http/metrics/page-figures.ts; null: the page has no room for this project. */
  figures: ProjectFigures | null | undefined = undefined;

  constructor(record: Project, revision: number, limit: number | undefined) {
    this.id = record.id;
    this.record = record;
    this.revision = revision;
    this.limit = limit;
    this.privacy = privacyOf(record);
  }

  update(record: Project, revision: number, limit: number | undefined): void {
    this.record = record;
    this.revision = revision;
    this.limit = limit;
    this.privacy = privacyOf(record);
    this.#filters = undefined;
  }

  /** Compiled at the first request: most of many projects are idle. */
  get filters(): CompiledFilters {
    this.#filters ??= compileFilters(this.record);
    return this.#filters;
  }

  /** Accepted requests of a month at most; undefined: none, or counting goes on past it. */
  get quotaCap(): number | undefined {
    return this.record.overage ? undefined : this.record.quota;
  }

  /**
   * What is counted and not written yet, or will be by a request under way, is not the next one's
   * of this id.
   */
  markDeleted(): void {
    this.isDeleted = true;
    this.checkpointCount = 0;
    this.freshAccepted = 0;
    this.freshOthers = undefined;
  }
}
