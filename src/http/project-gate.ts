import { type CompiledFilters, compileFilters } from '../filter/inbound.ts';
import type { QuotaSubject } from '../limit/quota-counter.ts';
import type { RateSubject } from '../limit/rate-limiter.ts';
import type { LedgerSubject } from '../registry/outcome-ledger.ts';
import type { Registered, Registration } from '../registry/project-view.ts';
import type { BoardSubject } from './project-board.ts';

/**
 * A project as the request path needs it: compiled once per revision of its record, with what each part of that path keeps of the project. One
 * object for all of them.
 */
export type ProjectGate = {
  readonly id: string;
  readonly key: string;
  /** Requests a minute; undefined: no per-minute limit applies (spec part 8, rule 2). */
  readonly limit: number | undefined;
  readonly filters: CompiledFilters;
  /** Whether a filter looks at headers of the request itself; reading them costs, so only then. */
  readonly readsHead: boolean;
} & Registered &
  Omit<RateSubject, 'limit'> &
  QuotaSubject &
  LedgerSubject &
  BoardSubject;

export const isLimited = (gate: ProjectGate): gate is ProjectGate & RateSubject => gate.limit !== undefined;

export function gateOf({ project, revision, rateLimit }: Registration): ProjectGate {
  const { id, key, quota, overage, filters, allowedOrigins } = project;
  return {
    project,
    id,
    key,
    limit: rateLimit,
    revision,
    window: undefined,
    quota,
    overage,
    gatheredAt: 0,
    notedBy: undefined,
    notedMonth: '',
    notedCount: 0,
    filters: compileFilters({ filters, allowedOrigins }),
    readsHead: filters.includes('crawler') || allowedOrigins.length > 0,
    freshIn: undefined,
    freshAccepted: 0,
    freshOthers: undefined,
    watched: undefined,
  };
}
