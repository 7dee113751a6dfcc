/** Item types of the envelope convention. */

/**
 * All that a frame may hold. A frame names a type by its place in this list, so a new type goes to
 * the end, whichever kind it is. Processors are updated first: an older one makes a dead letter of
 * a type that it does not know.
 */
export const ITEM_TYPES = [
  'event',
  'transaction',
  'log',
  'replay_event',
  'replay_recording',
  'span',
  'attachment',
  'check_in',
  'session',
  'sessions',
  'feedback',
  'user_report',
  'profile',
  'profile_chunk',
  'trace_metric',
  'client_report',
  'replay_video',
  'raw_security',
] as const;
export type ItemType = (typeof ITEM_TYPES)[number];

/** Types that are always stored. */
const STANDARD_TYPES = [
  'event',
  'transaction',
  'log',
  'replay_event',
  'replay_recording',
  'span',
] as const satisfies readonly ItemType[];
type StandardType = (typeof STANDARD_TYPES)[number];
export type ExtraType = Exclude<ItemType, StandardType>;

const STANDARD: ReadonlySet<string> = new Set(STANDARD_TYPES);
/** Types that are stored as they are where SLUICE_STORE_TYPES names them. */
export const EXTRA_TYPES = ITEM_TYPES.filter((type): type is ExtraType => !STANDARD.has(type));
const EXTRA: ReadonlySet<string> = new Set(EXTRA_TYPES);
export const isExtraType = (type: string): type is ExtraType => EXTRA.has(type);

/** Types whose payload is a container of elements with attributes. */
export const isContainerType = (type: ItemType): boolean =>
  type === 'log' || type === 'span' || type === 'trace_metric';

/** Types of files, which are stored byte for byte though they may be JSON. */
export const isFile = (type: ItemType): boolean => type === 'attachment' || type === 'replay_video';

/** Names that skipped items are counted under: a closed set, whatever clients write. */
export type SkippedType = ExtraType | 'statsd' | 'other';
export const SKIPPED_TYPES: readonly SkippedType[] = [...EXTRA_TYPES, 'statsd', 'other'];

const SKIPPED: ReadonlySet<string> = new Set(SKIPPED_TYPES);
const isSkippedType = (type: string): type is SkippedType => SKIPPED.has(type);
export const skippedType = (type: string): SkippedType => (isSkippedType(type) ? type : 'other');

/** The types that are stored, with these beside those that always are. */
export const storedTypes = (extra: readonly ExtraType[]): ReadonlySet<string> =>
  new Set<string>([...STANDARD_TYPES, ...extra]);

/** Categories that a project can limit one by one. */
export const CATEGORIES = ['errors', 'transactions', 'spans', 'logs', 'replays'] as const;
export type Category = (typeof CATEGORIES)[number];

const CATEGORY_OF: Readonly<Partial<Record<ItemType, Category>>> = {
  event: 'errors',
  transaction: 'transactions',
  span: 'spans',
  log: 'logs',
  replay_event: 'replays',
  replay_recording: 'replays',
  replay_video: 'replays',
};

const BITS = Object.fromEntries(CATEGORIES.map((category, i) => [category, 1 << i])) as Record<
  Category,
  number
>;
const BIT_OF: Readonly<Record<string, number>> = Object.fromEntries(
  Object.entries(CATEGORY_OF).map(([type, category]) => [type, BITS[category]]),
);

/** Sets of categories are sums of these. */
export const categoryBit = (category: Category): number => BITS[category];
/** Bit of a type's category; 0: most types of SLUICE_STORE_TYPES have none. */
export const typeBit = (type: ItemType): number => BIT_OF[type] ?? 0;
export const categoriesIn = (bits: number): Category[] =>
  CATEGORIES.filter((category) => (bits & BITS[category]) !== 0);
