/** The inbound filters that a project can turn on. */
export const FILTER_NAMES = ['browser-extension', 'localhost', 'crawler'] as const;
export type FilterName = (typeof FILTER_NAMES)[number];
