import { type CompiledFilters, compileFilters } from '../filter/inbound.ts';
import type { Clock } from '../lib/clock.ts';
import { ProjectUse } from '../lib/fair-share.ts';
import type { ProjectWindow } from '../limit/lease.ts';
import { keyId, keyWindow } from './keys.ts';
import type { Project, ProjectKey } from './project.ts';

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

/** A sliding window of a minute. `name` tells a project's windows apart; its own has none. */
export type WindowLimit = { readonly name: string; readonly limit: number };

/**
 * Whom the admission gives tokens: a project, or a part of it with a limit of its own. Each token
 * of a part is booked in all its windows, the project's among them. So parts share no tokens with
 * the project, and none of them looks at the windows of others.
 */
export interface Subject {
  readonly project: ProjectState;
  /** Of the record that says so. */
  readonly revision: number;
  /** Of the first window, which the X-RateLimit headers describe; undefined: there is none. */
  readonly limit: number | undefined;
  readonly windowName: string;
  readonly further: readonly WindowLimit[];
  /** limit/admission.ts: undefined until the first request, and after a minute without one. */
  window: ProjectWindow | undefined;
}

/** What a request with a valid key is served as; a project with one plain key is it itself. */
export interface Access {
  readonly project: ProjectState;
  readonly keyId: string;
  /** Whose limits hold for all requests with this key. */
  readonly subject: Subject;
  /** usage/key-use.ts: a request of this hour has been noted. */
  isUseNoted: boolean;
}

const NO_WINDOWS: readonly WindowLimit[] = [];

/**
 * All that one process keeps of a project, from the project's first request until it is deleted or
 * unused for long. A changed record goes into the same object, so a request under way sees it too.
 *
 * One object for all stages, although each field has one owner: with ten thousand active projects
 * each further object is one more that is in no cache of the processor's.
 */
export class ProjectState implements Subject, Access {
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
  #filters: CompiledFilters | undefined = undefined;
  /** The only key, when nothing more is said of it; undefined: see `#keys`. */
  #plainKey: string | undefined;
  #keys: readonly KeyState[] | undefined = undefined;
  #use: ProjectUse | undefined = undefined;
  isDeleted = false;
  /** projects/project-view.ts: looked up since the last sweep. */
  isUsed = true;

  window: ProjectWindow | undefined = undefined;
  isUseNoted = false;

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
    this.#plainKey = plainKeyOf(record);
  }

  update(record: Project, revision: number, limit: number | undefined): void {
    this.record = record;
    this.revision = revision;
    this.limit = limit;
    this.#filters = undefined;
    this.#plainKey = plainKeyOf(record);
    this.#keys = undefined;
    this.isUseNoted = false;
  }

  get project(): ProjectState {
    return this;
  }

  get subject(): Subject {
    return this;
  }

  get keyId(): string {
    return keyId(this.record.key);
  }

  get windowName(): string {
    return '';
  }

  get further(): readonly WindowLimit[] {
    return NO_WINDOWS;
  }

  /** Undefined: the key is none of this project, or not in force, or the project is disabled. */
  access(key: string, clock: Pick<Clock, 'now'>): Access | undefined {
    if (this.#plainKey !== undefined) return key === this.#plainKey ? this : undefined;
    const { keys, enabled } = this.record;
    if (!keys || enabled === false || this.isDeleted) return undefined;
    this.#keys ??= keys.map((one) => new KeyState(this, one));
    for (const one of this.#keys) if (one.key === key) return one.isValid(clock) ? one : undefined;
    return undefined;
  }

  /** Compiled at the first request that is authenticated. */
  get filters(): CompiledFilters {
    this.#filters ??= compileFilters(this.record);
    return this.#filters;
  }

  /** What it holds of the shared resources; made at the first request, like the filters. */
  get use(): ProjectUse {
    this.#use ??= new ProjectUse();
    return this.#use;
  }

  /** Accepted requests of a month at most; undefined: none, or counting goes on past it. */
  get quotaCap(): number | undefined {
    return this.record.overage ? undefined : this.record.quota;
  }

  /** Whether a stage has something that a new object would not have. */
  get isKept(): boolean {
    const { window, checkpointMonth, isGathered, figures } = this;
    if (window !== undefined || checkpointMonth !== '' || isGathered || figures != null) return true;
    if (this.#use?.isHeld()) return true;
    return this.#keys?.some((key) => key.window !== undefined) ?? false;
  }

  /**
   * What is counted and not written yet, or will be by a request under way, is not the next one's
   * of this id.
   */
  markDeleted(): void {
    this.isDeleted = true;
    this.#plainKey = undefined;
    this.checkpointCount = 0;
    this.freshAccepted = 0;
    this.freshOthers = undefined;
  }
}

const plainKeyOf = ({ key, keys, enabled }: Project): string | undefined =>
  keys || enabled === false ? undefined : key;

/** One of several keys, until the record changes. */
class KeyState implements Access, Subject {
  readonly project: ProjectState;
  readonly revision: number;
  readonly key: string;
  readonly keyId: string;
  readonly limit: number | undefined;
  readonly further: readonly WindowLimit[];
  window: ProjectWindow | undefined = undefined;
  isUseNoted = false;
  readonly #isEnabled: boolean;
  /** Unix ms. */
  readonly #expiresAt: number;

  constructor(project: ProjectState, { key, enabled, expires, rateLimit }: ProjectKey) {
    this.project = project;
    this.revision = project.revision;
    this.key = key;
    this.keyId = keyId(key);
    this.limit = rateLimit;
    this.further = project.limit === undefined ? NO_WINDOWS : [{ name: '', limit: project.limit }];
    this.#isEnabled = enabled;
    this.#expiresAt = expires === undefined ? Number.POSITIVE_INFINITY : Date.parse(expires);
  }

  isValid(clock: Pick<Clock, 'now'>): boolean {
    if (!this.#isEnabled) return false;
    return this.#expiresAt === Number.POSITIVE_INFINITY || clock.now() < this.#expiresAt;
  }

  get subject(): Subject {
    return this.limit === undefined ? this.project : this;
  }

  get windowName(): string {
    return keyWindow(this.key);
  }
}
