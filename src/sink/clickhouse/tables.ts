/** The tables, and the columns that the sink writes into each. */
import { COLUMNS, type TypedTable } from '../columns.ts';

type Column = readonly [name: string, type: string];
export type TableName =
  | 'events'
  | 'transactions'
  | 'spans'
  | 'logs'
  | 'replays'
  | 'extras'
  | 'heartbeats'
  | 'usage'
  | 'seen_items';

const MOMENT = "DateTime64(3, 'UTC')";
const KEY = 'FixedString(16)';

/** Type of a column that has few different values, unless clients are hostile. */
const WORD = 'LowCardinality(Nullable(String))';
const KINDS = {
  text: 'Nullable(String)',
  word: WORD,
  moment: "Nullable(DateTime64(6, 'UTC'))",
  count: 'Nullable(UInt32)',
  flag: 'Nullable(Bool)',
  duration: 'Nullable(Float64)',
} as const;
/**
 * Columns for the values that the reader (sink/columns.ts) finds in payloads, and `unread`, which
 * is true when the reader could not read all of these values.
 */
const typed = (table: TypedTable): Column[] => [
  ...COLUMNS[table].map(({ name, kind }): Column => [name, KINDS[kind]]),
  ['unread', 'Bool'],
];

const COMMON: readonly Column[] = [
  ['project_id', 'String'],
  ['day', 'Date'],
  ['row_key', KEY],
  ['event_id', 'String'],
  ['item_index', 'UInt32'],
  ['received_at', MOMENT],
  ['sent_at', `Nullable(${MOMENT})`],
  ['sdk', WORD],
  ['item_header', 'String'],
];
const PAYLOAD: Column = ['payload', 'String'];
const TYPE: Column = ['type', 'LowCardinality(String)'];
const partOf = (index: string): Column[] => [
  [index, 'Nullable(UInt16)'],
  ['container', 'Nullable(String)'],
];

/** The columns that the sink writes into each table, in the order of the row's values. */
export const WRITTEN: Readonly<Record<TableName, readonly Column[]>> = {
  events: [...COMMON, PAYLOAD, ...typed('events')],
  transactions: [...COMMON, PAYLOAD, ...typed('transactions')],
  spans: [...COMMON, ...partOf('span_index'), PAYLOAD, ...typed('spans')],
  logs: [...COMMON, ...partOf('log_index'), PAYLOAD, ...typed('logs')],
  replays: [
    ...COMMON,
    TYPE,
    PAYLOAD,
    ['payload_base64', 'Nullable(String)'],
    ['payload_encoding', WORD],
    ...typed('replays'),
  ],
  extras: [...COMMON, TYPE, PAYLOAD, ['payload_base64', 'Nullable(String)']],
  heartbeats: [
    ['token', 'String'],
    ['day', 'Date'],
    ['row_key', KEY],
    ['received_at', MOMENT],
    ['body', 'Nullable(String)'],
    ['body_base64', 'Nullable(String)'],
  ],
  usage: [
    ['project_id', 'String'],
    ['month', 'LowCardinality(String)'],
    ['row_key', KEY],
    ['position', 'UInt64'],
  ],
  seen_items: [
    ['key', KEY],
    ['row_key', KEY],
    ['received_at', MOMENT],
  ],
};

/** Tables with a partition for each day. SLUICE_RETENTION removes their rows. */
export const RETAINED = [
  'events',
  'transactions',
  'spans',
  'logs',
  'replays',
  'extras',
  'heartbeats',
] as const satisfies readonly TableName[];
