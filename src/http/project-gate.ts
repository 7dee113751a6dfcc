import { type CompiledFilters, compileFilters } from '../filter/inbound.ts';
import type { QuotaSubject } from '../limit/quota-counter.ts';
import type { RateSubject } from '../limit/rate-limiter.ts';
import type { LedgerSubject } from '../registry/outcome-ledger.ts';
import type { RegisteredProject, Replica } from '../registry/replica.ts';
import type { BoardSubject } from './project-board.ts';

/** A project as the request path needs it: compiled once per revision of its record. */
export type ProjectGate = {
  readonly id: string;
  readonly key: string;
  /** Undefined: no per-minute limit applies (spec part 8, rule 2). */
  readonly rate: RateSubject | undefined;
  readonly quota: QuotaSubject;
  readonly filters: CompiledFilters;
  /** Whether a filter looks at headers of the request itself; reading them costs, so only then. */
  readonly readsHead: boolean;
} & LedgerSubject &
  BoardSubject;

function compile({ project, revision, rateLimit }: RegisteredProject): ProjectGate {
  const { id, key, quota, overage, filters, allowedOrigins } = project;
  return {
    id,
    key,
    rate:
      rateLimit === undefined ? undefined : { projectId: id, limit: rateLimit, revision, state: undefined },
    quota: { projectId: id, quota, overage, noted: undefined },
    filters: compileFilters({ filters, allowedOrigins }),
    readsHead: filters.includes('crawler') || allowedOrigins.length > 0,
    fresh: undefined,
    figures: undefined,
  };
}

export class ProjectGates {
  readonly #replica: Replica;

  constructor(replica: Replica) {
    this.#replica = replica;
  }

  find(idOrAlias: string): ProjectGate | undefined {
    const registered = this.#replica.findProject(idOrAlias);
    if (!registered) return undefined;
    registered.compiled ??= compile(registered);
    return registered.compiled as ProjectGate;
  }
}
