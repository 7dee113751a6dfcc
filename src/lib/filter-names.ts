/** The inbound filters that a project can turn on. */
export const FILTERS = ['browser-extension', 'localhost', 'crawler'] as const;
export type FilterName = (typeof FILTERS)[number];
