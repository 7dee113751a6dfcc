/** The tables: what the sink writes into each, and what the database makes of it. */

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

const COMMON: readonly Column[] = [
  ['project_id', 'String'],
  ['day', 'Date'],
  ['row_key', KEY],
  ['event_id', 'String'],
  ['item_index', 'UInt32'],
  ['received_at', MOMENT],
  ['sent_at', `Nullable(${MOMENT})`],
  ['sdk', 'LowCardinality(Nullable(String))'],
  ['item_header', 'String'],
];
const PAYLOAD: Column = ['payload', 'String'];
const TYPE: Column = ['type', 'LowCardinality(String)'];
const partOf = (index: string): Column[] => [
  [index, 'Nullable(UInt16)'],
  ['container', 'Nullable(String)'],
];

/** The columns that the sink writes, in the order of its rows. */
export const WRITTEN: Readonly<Record<TableName, readonly Column[]>> = {
  events: [...COMMON, PAYLOAD],
  transactions: [...COMMON, PAYLOAD],
  spans: [...COMMON, ...partOf('span_index'), PAYLOAD],
  logs: [...COMMON, ...partOf('log_index'), PAYLOAD],
  replays: [
    ...COMMON,
    TYPE,
    PAYLOAD,
    ['payload_base64', 'Nullable(String)'],
    ['payload_encoding', 'LowCardinality(Nullable(String))'],
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

/** Tables with a partition for each day, whose rows SLUICE_RETENTION removes. */
export const RETAINED = [
  'events',
  'transactions',
  'spans',
  'logs',
  'replays',
  'extras',
  'heartbeats',
] as const satisfies readonly TableName[];
