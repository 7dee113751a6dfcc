/** Item types that are stored (spec part 2); every other type is skipped. */
export const ITEM_TYPES = ['event', 'transaction', 'log', 'replay_event', 'replay_recording'] as const;
export type ItemType = (typeof ITEM_TYPES)[number];

const KNOWN: ReadonlySet<string> = new Set(ITEM_TYPES);
export const isItemType = (type: string): type is ItemType => KNOWN.has(type);
