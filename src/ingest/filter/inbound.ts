/**
 * Inbound filters: what of an envelope is kept before it counts. `origin` and `crawler` judge the
 * envelope as a whole, `browser-extension` each event and `localhost` each event and transaction by
 * itself. A filter is one object ({@link Filter}), and {@link FILTERS} has them.
 *
 * Most payloads are never parsed. A scan searches the bytes for the needles of all active filters.
 * JSON is read only where the scan finds one, or where escapes could hide one. An ordinary 1.9 KB
 * browser event costs the scan; parsing it would cost several times that.
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
 * All filters but `origin`, which each project with a list of origins has one of. Those that judge
 * the head come first, then those that judge items, then those that judge the agent; among them in
 * the order of FILTER_NAMES.
 */
const FILTERS: Readonly<Record<FilterName, Filter>> = {
  'browser-extension': browserExtension,
  localhost,
  crawler,
};

/** A payload with a needle is parsed whole up to here; 128 KiB of brackets would take 15 ms. */
const PARSED_WHOLE_BYTES_MAX = 16 * 1024;

export type FilterSettings = {
  filters: readonly FilterName[];
  allowedOrigins: readonly string[];
};
/** An item as filters see it. */
type FilteredItem = { readonly type: string; readonly payload?: Uint8Array };

/** The filters that look at payloads of one item type, and the scan for the needles of all. */
type TypeFilters = { readonly filters: readonly Filter[]; readonly scan: NeedleScan };

/** The filters of a project. */
export type CompiledFilters = {
  readonly ofHead: readonly Filter[];
  readonly ofAgent: readonly Filter[];
  /** Undefined when no filter looks at that type. */
  readonly byType: Readonly<Record<JudgedType, TypeFilters | undefined>>;
};

/**
 * `\u0069` is a legal i. An escape could hide a needle by spelling one of its characters, so it is
 * a needle itself.
 */
function escapesOf(needles: readonly string[]): string[] {
  const text = needles.join('');
  return [...new Set(text.toLowerCase() + text.toUpperCase())].map(
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

const AGENT_HEADER = 'user-agent';
/** A payload without it names no agent, and is not parsed to find one. */
const AGENT_SCAN = new NeedleScan([AGENT_HEADER, ...escapesOf([AGENT_HEADER])]);

/** Filters of each type by their names: there are few combinations and may be many projects. */
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
 * Compiled filters by their names. Projects with the same filters share one object, so that it is
 * in the CPU's caches.
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

/** Compiled once per project record. */
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

/** How many of these items have a payload that a filter looks at. */
function countJudged(filters: CompiledFilters, items: readonly FilteredItem[]): number {
  let count = 0;
  for (const { type } of items) if (filtersFor(filters, type)) count++;
  return count;
}

/** Whether the payload of any of these items is needed for a decision. */
export const needsPayload = (filters: CompiledFilters, items: readonly FilteredItem[]): boolean =>
  countJudged(filters, items) > 0;

/**
 * The items that are kept, in order, or, when a filter leaves none of them, its name: the first
 * that matched. The same array when nothing is removed. A payload that is no JSON object matches no
 * filter.
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
 * As {@link filterItems}, one payload after the other. @param read gives what filters look at of an
 * event or transaction, as JSON
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
 * One envelope's judgement. Its User-Agent is that of the first event or transaction that names
 * one; for want of it, the request's own may count. A payload without a needle cannot name an agent
 * that is removed, but it may name another one. So beside others each that may name an agent is
 * read until one does, and each at all when the request's own would be removed; else only what has
 * a needle is read.
 */
class Judgement<T extends FilteredItem> {
  readonly #filters: CompiledFilters;
  readonly #items: T[];
  readonly #request: RequestFacts;
  #removed: Set<T> | undefined;
  /** The filter that removed the first of them. */
  #filter: InboundFilter | undefined;
  readonly #seeksAgent: boolean;
  /** The request's own agent would be removed. */
  readonly #isSuspect: boolean;
  /** Undefined until a payload was read, '' until one named an agent. */
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

  /** Whether a payload is read for its agent. */
  #mayNameAgent(bytes: Uint8Array): boolean {
    return this.#seeksAgent && !this.#agent && (this.#isSuspect || AGENT_SCAN.foundIn(bytes));
  }

  /**
   * Large payloads, and many small ones, are not parsed whole: only the fields that filters look
   * at.
   */
  #parse(bytes: Uint8Array): JsonObject | undefined {
    this.#wholeBytesLeft -= bytes.length;
    if (this.#wholeBytesLeft >= 0) return parsePayload(bytes);
    const isFirst = this.#pickedBytesLeft === PICKED_BYTES_MAX;
    const picked = pickFields(bytes);
    this.#pickedBytesLeft -= picked.length;
    // An envelope of several events with large fields is none of an SDK: what is left of it passes.
    return isFirst || this.#pickedBytesLeft >= 0 ? parsePayload(picked) : undefined;
  }
}
