const RFC_3339 = /^(\d{4}-\d\d-\d\d)[Tt ]((?:[01]\d|2[0-3]):\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:?\d\d)?$/;
const UNIX_SECONDS = /^\d{1,11}(\.\d+)?$/;
/** Last moment that a Date can hold, Unix milliseconds (ECMA-262, time values). */
export const DATE_MS_MAX = 8.64e15;

/**
 * Writes Unix milliseconds in RFC 3339, in UTC with milliseconds.
 * @param ms at most {@link DATE_MS_MAX}
 */
export const rfc3339 = (ms: number): string => new Date(ms).toISOString();

/** A moment in Unix milliseconds, and the same moment as {@link rfc3339} writes it. */
export type Moment = Readonly<{ ms: number; text: string }>;

/** The form of a {@link rfc3339} text for years of four digits. Most SDKs send this form. */
const SHAPE = '0000-00-00T00:00:00.000Z';
const ZERO = 0x30;
const NINE = 0x39;
const DAYS_OF_MONTHS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/** Number of days in a month, where 1 is January; 0 when there is no such month. */
function daysOf(year: number, month: number): number {
  const isLeap = year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0);
  return month === 2 && isLeap ? 29 : (DAYS_OF_MONTHS[month - 1] ?? 0);
}

/** The method is looked up once rather than for each character, as in the MessagePack writer. */
const { charCodeAt } = String.prototype;

function hasShape(text: string): boolean {
  if (text.length !== SHAPE.length) return false;
  for (let at = 0; at < SHAPE.length; at++) {
    const code = charCodeAt.call(text, at);
    const wanted = SHAPE.charCodeAt(at);
    if (wanted === ZERO ? code < ZERO || code > NINE : code !== wanted) return false;
  }
  return true;
}

function digits(text: string, from: number, to: number): number {
  let value = 0;
  for (let at = from; at < to; at++) value = value * 10 + charCodeAt.call(text, at) - ZERO;
  return value;
}

/**
 * Reads a text that has exactly the form of {@link rfc3339}. Returns undefined for any other text,
 * which may still be a timestamp in another form.
 */
function asWritten(text: string): Moment | undefined {
  if (!hasShape(text)) return undefined;
  const year = digits(text, 0, 4);
  const month = digits(text, 5, 7);
  const day = digits(text, 8, 10);
  const hour = digits(text, 11, 13);
  const minute = digits(text, 14, 16);
  const second = digits(text, 17, 19);
  const isDay = year >= 1000 && day >= 1 && day <= daysOf(year, month);
  if (!isDay || hour > 23 || minute > 59 || second > 59) return undefined;
  return { ms: Date.UTC(year, month - 1, day, hour, minute, second, digits(text, 20, 23)), text };
}

/** The last result of {@link rfc3339OfReceipt}. */
let latest = { ms: 0, text: rfc3339(0) };

/**
 * Does the same as {@link rfc3339}, and keeps the last result: the envelopes of one frame came
 * within a few milliseconds, so the same moment is often written again.
 */
export function rfc3339OfReceipt(ms: number): string {
  if (ms !== latest.ms) latest = { ms, text: rfc3339(ms) };
  return latest.text;
}

/**
 * Splits an RFC 3339 text into whole seconds, as Unix milliseconds, and the digits after the
 * decimal point. Returns undefined for any other text.
 */
function rfc3339Parts(text: string): { ms: number; fraction: string } | undefined {
  const [whole, day, time, fraction = '', zone = 'Z'] = RFC_3339.exec(text) ?? [];
  // Date.parse takes the 30th of February for the 2nd of March.
  if (!whole || digits(text, 8, 10) > daysOf(digits(text, 0, 4), digits(text, 5, 7))) return undefined;
  const ms = Date.parse(`${day}T${time}${zone.toUpperCase()}`);
  return Number.isNaN(ms) ? undefined : { ms, fraction };
}

const digitsOf = (fraction: string, count: number): number =>
  Number(fraction.slice(0, count).padEnd(count, '0'));

/** Unix microseconds of an RFC 3339 text; undefined for other texts. No zone means UTC. */
export function rfc3339Micros(text: string): number | undefined {
  const { ms, fraction } = rfc3339Parts(text) ?? {};
  return ms === undefined || fraction === undefined ? undefined : ms * 1000 + digitsOf(fraction, 6);
}

function unixMs(text: string): number | undefined {
  if (UNIX_SECONDS.test(text)) return Math.floor(Number(text) * 1000);
  const { ms, fraction } = rfc3339Parts(text) ?? {};
  return ms === undefined || fraction === undefined ? undefined : ms + digitsOf(fraction, 3);
}

/**
 * Reads a client's timestamp, which is RFC 3339 or Unix seconds. A text without a zone is in UTC.
 * @returns undefined when the text is neither
 */
export function moment(text: string): Moment | undefined {
  const written = asWritten(text);
  if (written) return written;
  const ms = unixMs(text);
  return ms === undefined ? undefined : { ms, text: rfc3339(ms) };
}
