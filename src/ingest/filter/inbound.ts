/**
 * Inbound filters: they decide which items of an envelope are kept, before the envelope counts.
 * `origin` and `crawler` judge the envelope as a whole, `browser-extension` judges each event, and
 * `localhost` each event and transaction. Each filter is one object ({@link Filter}); {@link
 * FILTERS} has all but `origin`.
 *
 * Most payloads are never parsed. A scan searches the bytes for the needles of all active filters.
 * A payload is parsed only when the scan finds a needle, or an escape that could hide one. An
 * ordinary browser event of 1.9 KB costs only the scan; parsing it would cost several times as
 * much.
 */
import { FILTER_NAMES, type FilterName } from '../../lib/filter-names.ts';
import { PICKED_BYTES_MAX } from '../../limits.ts';
import { browserExtension } from './browser-extension.ts';
import { crawler } from './crawler.ts';
import { localhost } from './localhost.ts';
import { NeedleScan } from './needle-scan.ts';
import { originFilter } from './origin.ts';
import {
  type Filter,
  headerOf,
  type InboundFilter,
  type JsonObject,
  type JudgedType,
  parsePayload,
  type RequestFacts,
} from './payload.ts';
import { pickFields } from './pick-fields.ts';

export { originPatternProblem } from './origin.ts';
export type { InboundFilter, RequestFacts } from './payload.ts';

/**
 * All filters but `origin`; a project with a list of origins has an `origin` filter of its own.
 * Filters that judge the head of a request are applied first, then those that judge items, then
 * those that judge the agent. Within each group the order is that of FILTER_NAMES.
 */
const FILTERS: Readonly<Record<FilterName, Filter>> = {
  'browser-extension': browserExtension,
  localhost,
  crawler,
};

/**
 * Most bytes of payloads that are parsed whole, for each envelope. Of further payloads only the
 * fields that filters look at are parsed, because 128 KiB of brackets take 15 ms.
 */
const PARSED_WHOLE_BYTES_MAX = 16 * 1024;

export type FilterSettings = {
  filters: readonly FilterName[];
  allowedOrigins: readonly string[];
};
type FilteredItem = { readonly type: string; readonly payload?: Uint8Array };

/**
 * The filters that look at payloads of one item type, and one scan for the needles of all of them.
 */
type TypeFilters = { readonly filters: readonly Filter[]; readonly scan: NeedleScan };

/** The filters of a project, by what they judge. */
export type CompiledFilters = {
  readonly ofHead: readonly Filter[];
  readonly ofAgent: readonly Filter[];
  /** Undefined when no filter looks at payloads of that type. */
  readonly byType: Readonly<Record<JudgedType, TypeFilters | undefined>>;
};

/**
 * Returns the escapes of all characters of the needles. `\u0069` is a legal i in JSON, so an escape
 * could hide a needle by spelling one of its characters. The escapes are therefore needles, too.
 */
function escapesOf(needles: readonly string[]): string[] {
  const text = needles.join('');
  return [...new Set(text.toLowerCase() + text.toUpperCase())].map(
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

const AGENT_HEADER = 'user-agent';
/**
 * Scan for the header's name. A payload without it names no agent, and is not parsed to find one.
 */
const AGENT_SCAN = new NeedleScan([AGENT_HEADER, ...escapesOf([AGENT_HEADER])]);

/**
 * Filters and scans of item types, by the names of the filters. There are few combinations, and
 * many projects may share one.
 */
const knownTypeFilters = new Map<string, TypeFilters>();

function typeFiltersOf(filters: readonly Filter[]): TypeFilters | undefined {
  if (filters.length === 0) return undefined;
  const names = filters.map(({ name }) => name).join();
  const known = knownTypeFilters.get(names);
  if (known) return known;
  const needles = filters.flatMap((filter) => filter.needles ?? []);
  const ofType = { filters, scan: new NeedleScan([...needles, ...escapesOf(needles)]) };
  knownTypeFilters.set(names, ofType);
  return ofType;
}

/**
 * Compiled filters without `origin`, by their names. Projects with the same filters share one
 * object.
 */
const withoutOrigins = new Map<string, CompiledFilters>();

function compileNamed(names: readonly FilterName[]): CompiledFilters {
  const wanted = FILTER_NAMES.filter((name) => names.includes(name)).map((name) => FILTERS[name]);
  const compileFor = (type: JudgedType) =>
    typeFiltersOf(wanted.filter(({ itemTypes }) => itemTypes?.includes(type)));
  return {
    ofHead: wanted.filter(({ judgeHead }) => judgeHead),
    ofAgent: wanted.filter(({ judgeAgent }) => judgeAgent),
    byType: { event: compileFor('event'), transaction: compileFor('transaction') },
  };
}

/** Compiles the filters of a project; called once per project record. */
export function compileFilters({ filters, allowedOrigins }: FilterSettings): CompiledFilters {
  const names = [...filters].sort();
  const compiled = withoutOrigins.get(names.join()) ?? compileNamed(names);
  withoutOrigins.set(names.join(), compiled);
  if (allowedOrigins.length === 0) return compiled;
  return { ...compiled, ofHead: [originFilter(allowedOrigins), ...compiled.ofHead] };
}

const filterOfHead = ({ ofHead }: CompiledFilters, request: RequestFacts): InboundFilter | undefined =>
  ofHead.find((filter) => filter.judgeHead?.(request))?.name;

function filtersFor({ byType }: CompiledFilters, type: string): TypeFilters | undefined {
  if (type === 'event') return byType.event;
  return type === 'transaction' ? byType.transaction : undefined;
}

/** Returns how many of these items have a payload that a filter looks at. */
function countJudged(filters: CompiledFilters, items: readonly FilteredItem[]): number {
  let count = 0;
  for (const { type } of items) if (filtersFor(filters, type)) count++;
  return count;
}

/** Whether a filter needs the payload of any of these items. */
export const needsPayload = (filters: CompiledFilters, items: readonly FilteredItem[]): boolean =>
  countJudged(filters, items) > 0;

/**
 * Filters the items of an envelope in memory. A payload that is no JSON object matches no filter.
 * @returns the items that are kept, in order (the same array when nothing is removed); or, when no
 * item is kept, the name of the filter that matched first
 */
export function filterItems<T extends FilteredItem>(
  filters: CompiledFilters,
  request: RequestFacts,
  items: T[],
): T[] | InboundFilter {
  const ofHead = filterOfHead(filters, request);
  if (ofHead) return ofHead;
  const judged = countJudged(filters, items);
  if (judged === 0) return items;
  const judgement = new Judgement(items, { filters, request, judged });
  for (const item of items) if (item.payload) judgement.judge(item, item.payload);
  return judgement.kept();
}

/**
 * Filters the items of a spooled envelope as {@link filterItems} does, one payload after the other.
 * @param read returns the fields of an event or transaction that filters look at, as JSON
 */
export async function filterSpooled<T extends FilteredItem>(
  filters: CompiledFilters,
  request: RequestFacts,
  { items, read }: { items: T[]; read(item: T): Promise<Uint8Array> },
): Promise<T[] | InboundFilter> {
  const ofHead = filterOfHead(filters, request);
  if (ofHead) return ofHead;
  const judgement = new Judgement(items, { filters, request, judged: countJudged(filters, items) });
  for (const item of items) if (filtersFor(filters, item.type)) judgement.judge(item, await read(item));
  return judgement.kept();
}

/**
 * The judgement of one envelope. The envelope's User-Agent is that of the first event or
 * transaction that names one; when none does, the request's own may count.
 *
 * A payload with a needle is always parsed. A payload without a needle cannot name an agent for
 * which the envelope is removed, but it may name another agent, which then counts for the whole
 * envelope. So a payload without a needle is also parsed in two cases, as long as no payload has
 * named an agent:
 *
 * - A filter would remove the envelope for the request's own agent. Then every payload is parsed.
 * - The envelope has several judged payloads. Then each payload that may name an agent is parsed.
 */
class Judgement<T extends FilteredItem> {
  readonly #filters: CompiledFilters;
  readonly #items: T[];
  readonly #request: RequestFacts;
  #removed: Set<T> | undefined;
  /** The filter that removed the first of the removed items. */
  #filter: InboundFilter | undefined;
  readonly #seeksAgent: boolean;
  /** Whether a filter would remove the envelope for the request's own User-Agent. */
  readonly #isSuspect: boolean;
  /**
   * The envelope's User-Agent: undefined until a payload was parsed, '' until a payload named one.
   */
  #agent: string | undefined;
  #wholeBytesLeft = PARSED_WHOLE_BYTES_MAX;
  #pickedBytesLeft = PICKED_BYTES_MAX;

  /** @param judged how many of the items have a payload that a filter looks at */
  constructor(
    items: T[],
    { filters, request, judged }: { filters: CompiledFilters; request: RequestFacts; judged: number },
  ) {
    this.#items = items;
    this.#filters = filters;
    this.#request = request;
    this.#isSuspect = this.#filterOfAgent('') !== undefined;
    this.#seeksAgent = filters.ofAgent.length > 0 && (judged > 1 || this.#isSuspect);
  }

  judge(item: T, bytes: Uint8Array): void {
    const ofType = filtersFor(this.#filters, item.type);
    if (!ofType || !(this.#mayNameAgent(bytes) || ofType.scan.foundIn(bytes))) return;
    const payload = this.#parse(bytes);
    if (!payload) return;
    if (this.#filters.ofAgent.length > 0) this.#agent ||= headerOf(payload, AGENT_HEADER);
    const filter = ofType.filters.find(({ judgeItem }) => judgeItem?.(payload));
    if (!filter) return;
    this.#filter ??= filter.name;
    this.#removed ??= new Set();
    this.#removed.add(item);
  }

  kept(): T[] | InboundFilter {
    const removed = this.#removed;
    const kept = removed ? this.#items.filter((item) => !removed.has(item)) : this.#items;
    if (kept.length === 0 && this.#filter) return this.#filter;
    return (this.#agent !== undefined && this.#filterOfAgent(this.#agent)) || kept;
  }

  #filterOfAgent(agent: string): InboundFilter | undefined {
    return this.#filters.ofAgent.find((filter) => filter.judgeAgent?.(agent, this.#request))?.name;
  }

  /** Whether a payload must be parsed because it may name the agent. */
  #mayNameAgent(bytes: Uint8Array): boolean {
    return this.#seeksAgent && !this.#agent && (this.#isSuspect || AGENT_SCAN.foundIn(bytes));
  }

  /**
   * Parses a payload whole. Of a large payload, or one behind many small ones, only the fields that
   * filters look at are parsed. Returns undefined for a payload that is no JSON object or passes
   * unfiltered.
   */
  #parse(bytes: Uint8Array): JsonObject | undefined {
    this.#wholeBytesLeft -= bytes.length;
    if (this.#wholeBytesLeft >= 0) return parsePayload(bytes);
    const isFirst = this.#pickedBytesLeft === PICKED_BYTES_MAX;
    const picked = pickFields(bytes);
    this.#pickedBytesLeft -= picked.length;
    // No SDK sends an envelope of several events with large fields, so the rest of such an envelope
    // passes unfiltered.
    return isFirst || this.#pickedBytesLeft >= 0 ? parsePayload(picked) : undefined;
  }
}
