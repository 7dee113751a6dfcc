/**
 * Inbound filters (spec part 4.1, step 3): which filter, if any, removes an envelope before it
 * counts. `origin` needs no payload and comes first, then browser-extension, localhost and crawler
 * in the order of the spec. The first that matches gives its name.
 *
 * Most payloads are never parsed. A scan searches the bytes for the needles of all active filters.
 * JSON is read only where the scan finds one, or where escapes could hide one. An ordinary 1.9 KB
 * browser event costs the scan; parsing it would cost several times that.
 */
import { PARSED_WHOLE_BYTES_MAX } from '../limits.ts';
import { browserExtension } from './browser-extension.ts';
import { crawler } from './crawler.ts';
import { localhost } from './localhost.ts';
import { NeedleScan } from './needle-scan.ts';
import { type AllowedOrigins, compileOrigins, isForeign } from './origin.ts';
import { type PayloadFilter, parsePayload, type RequestFacts } from './payload.ts';
import { pickFields } from './pick-fields.ts';

export { originPatternProblem } from './origin.ts';
export type { RequestFacts } from './payload.ts';

/** The value of X-Service-Filtered. */
export type InboundFilter = PayloadFilter['name'] | 'origin';
export type FilterSettings = {
  filters: readonly PayloadFilter['name'][];
  allowedOrigins: readonly string[];
};
export type FilteredItem = { type: 'event' | 'transaction'; payload: Uint8Array };

/**
 * The filters that look at one item type, in order of precedence, and the scan for all their
 * needles.
 */
type Lane = { readonly filters: readonly PayloadFilter[]; readonly scan: NeedleScan };

export type CompiledFilters = {
  /** Undefined when the project lists none: then every origin may send. */
  readonly origins: AllowedOrigins | undefined;
  /** Undefined when no filter looks at that type. */
  readonly lanes: Readonly<Record<FilteredItem['type'], Lane | undefined>>;
};

const PAYLOAD_FILTERS: readonly PayloadFilter[] = [browserExtension, localhost, crawler];

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

/** By the names of their filters: there are few combinations and may be many projects. */
const lanes = new Map<string, Lane>();

function laneOf(filters: readonly PayloadFilter[]): Lane | undefined {
  if (filters.length === 0) return undefined;
  const names = filters.map(({ name }) => name).join();
  const known = lanes.get(names);
  if (known) return known;
  const needles = filters.flatMap((filter) => filter.needles);
  const lane = { filters, scan: new NeedleScan([...needles, ...escapesOf(needles)]) };
  lanes.set(names, lane);
  return lane;
}

/**
 * By the names of their filters. Projects with the same filters share one, so that it is in the
 * processor's caches.
 */
const withoutOrigins = new Map<string, CompiledFilters>();

function compileNamed(filters: readonly PayloadFilter[]): CompiledFilters {
  const laneFor = (type: FilteredItem['type']) =>
    laneOf(filters.filter(({ itemTypes }) => itemTypes.includes(type)));
  return { origins: undefined, lanes: { event: laneFor('event'), transaction: laneFor('transaction') } };
}

/** Compiled once per project record. */
export function compileFilters({ filters, allowedOrigins }: FilterSettings): CompiledFilters {
  const wanted = PAYLOAD_FILTERS.filter(({ name }) => filters.includes(name));
  const names = wanted.map(({ name }) => name).join();
  const compiled = withoutOrigins.get(names) ?? compileNamed(wanted);
  withoutOrigins.set(names, compiled);
  return allowedOrigins.length > 0 ? { ...compiled, origins: compileOrigins(allowedOrigins) } : compiled;
}

/** Whether the payload of the event or transaction is needed at all for a decision. */
export const needsPayload = ({ lanes }: CompiledFilters): boolean =>
  lanes.event !== undefined || lanes.transaction !== undefined;

/**
 * The first filter that matches, or undefined. A payload that is not a JSON object matches none. Of
 * a large one only the fields that filters use are read.
 * @param item the event or transaction of the envelope; without one only `origin` applies
 */
export function matchInbound(
  filters: CompiledFilters,
  request: RequestFacts,
  item: FilteredItem | undefined,
): InboundFilter | undefined {
  if (filters.origins && isForeign(filters.origins, request)) return 'origin';
  const lane = item && filters.lanes[item.type];
  if (!lane) return undefined;
  if (!lane.scan.foundIn(item.payload) && !lane.filters.some((filter) => filter.suspects(request))) {
    return undefined;
  }
  const { payload: bytes } = item;
  const payload = parsePayload(bytes.length > PARSED_WHOLE_BYTES_MAX ? pickFields(bytes) : bytes);
  return payload && lane.filters.find((filter) => filter.matches(payload, request))?.name;
}
