/** Types of the items in frames: those that envelopes hold, and three for OTLP requests. */

/**
 * All item types that a frame may hold. A frame names a type by its position in this list, so a new
 * type goes to the end. Processors must be updated before ingest: a processor that does not know
 * the type of an item makes the item a dead letter.
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
  'otlp_traces',
  'otlp_logs',
  'otlp_metrics',
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
  'otlp_traces',
  'otlp_logs',
] as const satisfies readonly ItemType[];
type StandardType = (typeof STANDARD_TYPES)[number];
export type ExtraType = Exclude<ItemType, StandardType>;

const STANDARD: ReadonlySet<string> = new Set(STANDARD_TYPES);
/** Types that are stored, unchanged, only where SLUICE_STORE_TYPES names them. */
export const EXTRA_TYPES = ITEM_TYPES.filter((type): type is ExtraType => !STANDARD.has(type));
const EXTRA: ReadonlySet<string> = new Set(EXTRA_TYPES);
export const isExtraType = (type: string): type is ExtraType => EXTRA.has(type);

/** Whether the payload of a type is a container of elements with attributes. */
export const isContainerType = (type: ItemType): boolean =>
  type === 'log' || type === 'span' || type === 'trace_metric';

/** Whether items of a type are files. Files are stored byte for byte, even when they are JSON. */
export const isFile = (type: ItemType): boolean => type === 'attachment' || type === 'replay_video';

/** Labels under which skipped items are counted: a closed set, whatever types clients send. */
export type SkippedType = ExtraType | 'statsd' | 'other';
export const SKIPPED_TYPES: readonly SkippedType[] = [...EXTRA_TYPES, 'statsd', 'other'];

const SKIPPED: ReadonlySet<string> = new Set(SKIPPED_TYPES);
const isSkippedType = (type: string): type is SkippedType => SKIPPED.has(type);
export const skippedType = (type: string): SkippedType => (isSkippedType(type) ? type : 'other');

/** Types whose payload is a whole OTLP request. No envelope may hold them. */
const OTLP_TYPES = ['otlp_traces', 'otlp_logs', 'otlp_metrics'] as const satisfies readonly ItemType[];
export type OtlpType = (typeof OTLP_TYPES)[number];
const OTLP: ReadonlySet<string> = new Set(OTLP_TYPES);
export const isOtlp = (type: ItemType): type is OtlpType => OTLP.has(type);

/**
 * Types of items that are stored when an envelope brings them: the standard types and `extra`,
 * without the types of OTLP requests, which no envelope may hold.
 */
export const storedTypes = (extra: readonly ExtraType[]): ReadonlySet<string> =>
  new Set<string>([...STANDARD_TYPES, ...extra].filter((type) => !OTLP.has(type)));

/** Categories of items that a project can limit one by one. */
export const CATEGORIES = ['errors', 'transactions', 'spans', 'logs', 'replays'] as const;
export type Category = (typeof CATEGORIES)[number];

const CATEGORY_OF: Readonly<Partial<Record<ItemType, Category>>> = {
  event: 'errors',
  transaction: 'transactions',
  span: 'spans',
  log: 'logs',
  otlp_traces: 'spans',
  otlp_logs: 'logs',
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

/** The bit of a category. A set of categories is the sum of its bits. */
export const categoryBit = (category: Category): number => BITS[category];
/** The bit of a type's category; 0 for a type without a category, as most of EXTRA_TYPES are. */
export const typeBit = (type: ItemType): number => BIT_OF[type] ?? 0;
export const categoriesIn = (bits: number): Category[] =>
  CATEGORIES.filter((category) => (bits & BITS[category]) !== 0);
