import type { Clock } from '../lib/clock.ts';
import {
  CATEGORIES,
  type Category,
  categoriesIn,
  categoryBit,
  type ItemType,
  typeBit,
} from '../lib/item-types.ts';
import { Slotted } from '../lib/slots.ts';
import {
  keyId,
  keysOf,
  keyWindow,
  type Project,
  type ProjectKey,
  type ProjectPrivacy,
  privacyOf,
  validUntil,
} from './project.ts';

/** A sliding window of a minute. `name` tells a project's windows apart; its own has none. */
export type WindowLimit = { readonly name: string; readonly limit: number };

/**
 * What one admission takes a token for: a project, a key of it with a limit of its own, or either
 * of them for items of limited categories. A token is booked in all windows of its scope. The
 * project's is among them, unless the request has a token of it already. A worker holds tokens for
 * each scope apart: they serve no other.
 */
export interface RateScope extends Slotted {
  readonly project: ProjectState;
  /** Of the project's record that these limits are from. */
  readonly revision: number;
  /** Of the first window, which the X-RateLimit headers describe; undefined: there is none. */
  readonly limit: number | undefined;
  readonly windowName: string;
  readonly further: readonly WindowLimit[];
  /** Whether the first window is one of a project or key: those of categories have no headers. */
  readonly hasOwnWindow: boolean;
  /**
   * Of a refusal by the window with this number (as admit.lua says it): the category that refuses;
   * undefined: the project or the key does.
   */
  refusingCategory(windowNumber: number): Category | undefined;
}

/**
 * The result of authentication. A project with one plain key is its own Access and its own
 * RateScope.
 */
export interface Access {
  readonly project: ProjectState;
  readonly keyId: string;
  /** Whose limits hold for all requests with this key. */
  readonly scope: RateScope;
  /** ingest/usage/key-use.ts: a request of this hour has been noted. */
  isKeyUseNoted: boolean;
}

/** Why a key of a project that exists is refused; the client is not told. */
export type KeyRefusal = 'disabled-project' | 'unknown-key' | 'disabled-key' | 'expired-key';

const NO_WINDOWS: readonly WindowLimit[] = [];

/**
 * A project at one worker: its record, its keys and the scopes of its limits, from its first
 * request until it is deleted or unused for long. What a stage knows of the project is in a slot of
 * that stage. A changed record goes into the same object, so a request under way sees it too.
 */
export class ProjectState extends Slotted implements RateScope, Access {
  readonly id: string;
  /** The registry's record. {@link update} sets it together with what is made of it. */
  record: Project;
  /**
   * Version of the record. It grows with every change, and goes on growing when the bucket is
   * deleted and made again. The record with the largest revision wins.
   */
  revision: number;
  /** Requests a minute; undefined: no per-minute limit applies. */
  limit: number | undefined;
  privacy: ProjectPrivacy | undefined;
  /** The only key, when nothing more is said of it; undefined: see `#keys`. */
  #plainKey: string | undefined;
  #keys: readonly KeyState[] | undefined = undefined;
  /** Categories that have a limit, as {@link categoryBit}s; mostly 0. */
  limitedCategories: number;
  /** By the name of the scope and the categories; made when first asked for. */
  #categoryScopes: Map<string, WindowedScope> | undefined = undefined;
  isDeleted = false;
  /** projects/project-view.ts: looked up since the last sweep. */
  wasLookedUp = true;

  isKeyUseNoted = false;

  constructor(record: Project, revision: number, limit: number | undefined) {
    super();
    this.id = record.id;
    this.record = record;
    this.revision = revision;
    this.limit = limit;
    this.#plainKey = plainKeyOf(record);
    this.limitedCategories = limitedBy(record);
    this.privacy = privacyOf(record);
  }

  update(record: Project, revision: number, limit: number | undefined): void {
    this.record = record;
    this.revision = revision;
    this.limit = limit;
    this.privacy = privacyOf(record);
    this.#plainKey = plainKeyOf(record);
    this.#keys = undefined;
    this.limitedCategories = limitedBy(record);
    this.#categoryScopes = undefined;
    this.isKeyUseNoted = false;
  }

  get project(): ProjectState {
    return this;
  }

  get scope(): RateScope {
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

  get hasOwnWindow(): boolean {
    return this.limit !== undefined;
  }

  refusingCategory(): undefined {
    return undefined;
  }

  /** Categories of these items that have a limit. */
  limitedIn(items: readonly { readonly type: ItemType }[]): number {
    if (this.limitedCategories === 0) return 0;
    let bits = 0;
    for (const { type } of items) bits |= typeBit(type);
    return bits & this.limitedCategories;
  }

  /**
   * `scope` of this project for envelopes with items of these categories. `hasToken`: the request
   * has its token of `scope` already, so that only the windows of the categories are left.
   */
  withCategories(scope: RateScope, categories: number, hasToken: boolean): RateScope {
    if (categories === 0) return scope;
    this.#categoryScopes ??= new Map();
    const name = `${hasToken ? 'has token' : scope.windowName} ${categories}`;
    let found = this.#categoryScopes.get(name);
    if (!found) {
      const { rateLimits = {} } = this.record;
      const limited = categoriesIn(categories);
      const limits = limited.map((one) => ({ name: one, limit: rateLimits[one] as number }));
      const ownWindows = hasToken ? NO_WINDOWS : windowsOf(scope);
      found = new WindowedScope(this, { ownWindows, limits, categories: limited });
      this.#categoryScopes.set(name, found);
    }
    return found;
  }

  /** Undefined: the key is none of this project, or not in force, or the project is disabled. */
  authenticate(key: string, clock: Pick<Clock, 'now'>): Access | undefined {
    if (this.#plainKey !== undefined) return key === this.#plainKey ? this : undefined;
    const { keys, enabled } = this.record;
    if (!keys || enabled === false || this.isDeleted) return undefined;
    this.#keys ??= keys.map((one) => new KeyState(this, one));
    for (const one of this.#keys) if (one.key === key) return one.isValid(clock) ? one : undefined;
    return undefined;
  }

  /** Why {@link authenticate} refuses a key. */
  refusalOf(key: string): KeyRefusal {
    if (this.record.enabled === false) return 'disabled-project';
    const found = keysOf(this.record).find((one) => one.key === key);
    if (!found) return 'unknown-key';
    return found.enabled ? 'expired-key' : 'disabled-key';
  }

  /** Accepted requests of a month at most; undefined: none, or counting goes on past it. */
  get quotaCap(): number | undefined {
    return this.record.overage ? undefined : this.record.quota;
  }

  /** Whether a stage has something that a new object would not have. */
  get mustBeKept(): boolean {
    if (this.isInUse) return true;
    const scopes = [
      ...(this.#keys ?? []).map(({ scope }) => scope),
      ...(this.#categoryScopes?.values() ?? []),
    ];
    return scopes.some(({ isInUse }) => isInUse);
  }

  /** Stages drop what they have not written: the next project of this id must not inherit it. */
  markDeleted(): void {
    this.isDeleted = true;
    this.#plainKey = undefined;
  }
}

const plainKeyOf = ({ key, keys, enabled }: Project): string | undefined =>
  keys || enabled === false ? undefined : key;

const limitedBy = ({ rateLimits }: Project): number => {
  let bits = 0;
  if (rateLimits) for (const category of CATEGORIES) if (rateLimits[category]) bits += categoryBit(category);
  return bits;
};

const windowsOf = ({ windowName: name, limit, further }: RateScope): readonly WindowLimit[] =>
  limit === undefined ? NO_WINDOWS : [{ name, limit }, ...further];

/** Another scope than the project itself, until the record changes. */
class WindowedScope extends Slotted implements RateScope {
  readonly project: ProjectState;
  readonly revision: number;
  readonly limit: number | undefined;
  readonly windowName: string;
  readonly further: readonly WindowLimit[];
  readonly hasOwnWindow: boolean;
  /** How many windows come before those of categories. */
  readonly #ownCount: number;
  readonly #categories: readonly Category[];

  constructor(
    project: ProjectState,
    of: {
      ownWindows: readonly WindowLimit[];
      limits?: readonly WindowLimit[];
      categories?: readonly Category[];
    },
  ) {
    const { ownWindows, limits = NO_WINDOWS, categories = [] } = of;
    const [first, ...further] = [...ownWindows, ...limits];
    super();
    this.project = project;
    this.revision = project.revision;
    this.limit = first?.limit;
    this.windowName = first?.name ?? '';
    this.further = further;
    this.hasOwnWindow = ownWindows.length > 0;
    this.#ownCount = ownWindows.length;
    this.#categories = categories;
  }

  refusingCategory(windowNumber: number): Category | undefined {
    return this.#categories[windowNumber - 1 - this.#ownCount];
  }
}

/** One of several keys, until the record changes. */
class KeyState implements Access {
  readonly project: ProjectState;
  readonly key: string;
  readonly keyId: string;
  readonly scope: RateScope;
  isKeyUseNoted = false;
  readonly #validUntil: number;

  constructor(project: ProjectState, record: ProjectKey) {
    const { key, rateLimit } = record;
    this.project = project;
    this.key = key;
    this.keyId = keyId(key);
    const ownWindows = rateLimit !== undefined && [
      { name: keyWindow(key), limit: rateLimit },
      ...windowsOf(project),
    ];
    this.scope = ownWindows ? new WindowedScope(project, { ownWindows }) : project;
    this.#validUntil = validUntil(record);
  }

  isValid(clock: Pick<Clock, 'now'>): boolean {
    return this.#validUntil === Infinity || clock.now() < this.#validUntil;
  }
}
