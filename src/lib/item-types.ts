/**
 * Item types that are stored: those of spec part 2, and containers of spans (contract part 2, Item types). A frame names a type by its place
 * in this list, so a new one is added at the end.
 */
export const ITEM_TYPES = [
  'event',
  'transaction',
  'log',
  'replay_event',
  'replay_recording',
  'span',
] as const;
export type ItemType = (typeof ITEM_TYPES)[number];

const KNOWN: ReadonlySet<string> = new Set(ITEM_TYPES);
export const isItemType = (type: string): type is ItemType => KNOWN.has(type);
