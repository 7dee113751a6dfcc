const RFC_3339 = /^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:?\d\d)?$/;
const UNIX_SECONDS = /^\d{1,11}(\.\d+)?$/;
/** Largest moment that a Date can hold, Unix milliseconds (ECMA-262, time values). */
export const DATE_MS_MAX = 8.64e15;

/** Unix milliseconds as RFC 3339 in UTC with milliseconds. The moment must not be beyond {@link DATE_MS_MAX}. */
export const rfc3339 = (ms: number): string => new Date(ms).toISOString();

/** The moment that was asked for last. */
let latest = { ms: 0, text: rfc3339(0) };

/** The same for moments that repeat: the envelopes of a frame came within a few milliseconds. */
export function rfc3339OfReceipt(ms: number): string {
  if (ms !== latest.ms) latest = { ms, text: rfc3339(ms) };
  return latest.text;
}

/**
 * A client's timestamp, RFC 3339 or Unix seconds, as Unix milliseconds; one without a zone counts as UTC.
 * @returns undefined when it is neither
 */
export function unixMs(text: string): number | undefined {
  if (UNIX_SECONDS.test(text)) return Math.floor(Number(text) * 1000);
  const match = RFC_3339.exec(text);
  if (!match) return undefined;
  const ms = Date.parse(match[2] ? text : `${text}Z`);
  return Number.isNaN(ms) ? undefined : ms;
}
