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

/**
 * A sliding window of one minute. `name` distinguishes the windows of a project; the project's own
 * window has the name ''.
 */
export type WindowLimit = { readonly name: string; readonly limit: number };

/**
 * What an admission takes one token for: a project, or a key that has a limit of its own. For items
 * of limited categories there are further scopes of the project and of each such key. A token
 * counts in all windows of its scope. The project's window is among them, unless the request
 * already has the project's token.
 */
export interface RateScope extends Slotted {
  readonly project: ProjectState;
  /** Revision of the project's record that gave these limits. */
  readonly revision: number;
  /**
   * Limit of the first window, which the X-RateLimit headers describe; undefined: there is no
   * window.
   */
  readonly limit: number | undefined;
  readonly windowName: string;
  readonly further: readonly WindowLimit[];
  /**
   * Whether the first window belongs to a project or key. Windows of categories have no headers.
   */
  readonly hasOwnWindow: boolean;
  /**
   * Returns the category whose window has this number (from 1, in the order in which admit.lua gets
   * the scope's windows); undefined when the window belongs to the project or a key.
   */
  refusingCategory(windowNumber: number): Category | undefined;
}

/**
 * The result of authentication. If a project's only key has no settings, the project's ProjectState
 * is also the Access, and its `scope`.
 */
export interface Access {
  readonly project: ProjectState;
  readonly keyId: string;
  /** The scope whose limits apply to all requests with this key. */
  readonly scope: RateScope;
  /** Whether a request of the present hour has been noted; used by ingest/usage/key-use.ts. */
  isKeyUseNoted: boolean;
}

/** Why a key is refused although its project exists. The client is not told. */
export type KeyRefusal = 'disabled-project' | 'unknown-key' | 'disabled-key' | 'expired-key';

const NO_WINDOWS: readonly WindowLimit[] = [];

/**
 * A project at one worker: its record, its keys and the scopes of its limits. The object is made at
 * the first request and lasts until the project is deleted or long unused. Each stage keeps its
 * state of the project in a slot. A changed record is put into the same object, so requests under
 * way see the change.
 */
export class ProjectState extends Slotted implements RateScope, Access {
  readonly id: string;
  /**
   * The registry's record. {@link update} sets it together with the fields that are derived from
   * it.
   */
  record: Project;
  /**
   * Version of the record: of two records, the one with the larger revision is newer. It grows with
   * every change, even when the bucket is deleted and made again.
   */
  revision: number;
  /** Requests a minute; undefined: no per-minute limit applies. */
  limit: number | undefined;
  privacy: ProjectPrivacy | undefined;
  /**
   * The project's only key. Undefined when the record has `keys` (see `#keys`), and when the
   * project is disabled or deleted.
   */
  #plainKey: string | undefined;
  #keys: readonly KeyState[] | undefined = undefined;
  /** Categories that have a limit, as the sum of their {@link categoryBit}s; mostly 0. */
  limitedCategories: number;
  /**
   * Scopes for items of limited categories, by name of the scope and categories. Each is made when
   * it is first asked for.
   */
  #categoryScopes: Map<string, WindowedScope> | undefined = undefined;
  isDeleted = false;
  /** Whether the project was looked up since the last sweep; used by project-view.ts. */
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

  /** Returns the categories of the items that have a limit, as a sum of bits. */
  limitedIn(items: readonly { readonly type: ItemType }[]): number {
    if (this.limitedCategories === 0) return 0;
    let bits = 0;
    for (const { type } of items) bits |= typeBit(type);
    return bits & this.limitedCategories;
  }

  /**
   * The scope for envelopes with items of these categories.
   * @param hasToken whether the request already has its token of `scope`; then only the windows of
   * the categories are in the result
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

  /**
   * Returns the access that the key gives; undefined when the project does not have the key, the
   * key is disabled or expired, or the project is disabled.
   */
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

  /**
   * Most accepted requests in a month; undefined when there is no quota, or requests beyond it are
   * accepted and counted.
   */
  get quotaCap(): number | undefined {
    return this.record.overage ? undefined : this.record.quota;
  }

  /** Whether a stage of ingest has state in this object that a new one would lack. */
  get mustBeKept(): boolean {
    if (this.isInUse) return true;
    const scopes = [
      ...(this.#keys ?? []).map(({ scope }) => scope),
      ...(this.#categoryScopes?.values() ?? []),
    ];
    return scopes.some(({ isInUse }) => isInUse);
  }

  /**
   * Marks the project as deleted. Stages then drop what they have not written, so that a new
   * project with this id does not inherit it.
   */
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

/** A scope other than the project itself. It is valid until the record changes. */
class WindowedScope extends Slotted implements RateScope {
  readonly project: ProjectState;
  readonly revision: number;
  readonly limit: number | undefined;
  readonly windowName: string;
  readonly further: readonly WindowLimit[];
  readonly hasOwnWindow: boolean;
  /** Number of windows before those of the categories. */
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

/** One of a project's several keys. It is valid until the record changes. */
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
