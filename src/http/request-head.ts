import type { CompiledFilters, RequestFacts } from '../filter/inbound.ts';

/** The head of a request; only valid in the turn in which it arrived. */
export interface RequestHead {
  getHeader(lowerCaseName: string): string;
  /** Without the question mark; undefined when the URL has none. */
  getQuery(): string | undefined;
  getParameter(index: number): string;
}

export const NO_FACTS: RequestFacts = { origin: '', referer: '', userAgent: '' };

/** Only what a filter asks for: each header that is read costs. */
export function readFacts(head: RequestHead, filters: CompiledFilters): RequestFacts {
  if (!filters.readsHead) return NO_FACTS;
  return {
    origin: head.getHeader('origin'),
    referer: head.getHeader('referer'),
    userAgent: head.getHeader('user-agent'),
  };
}
