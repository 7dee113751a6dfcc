const RFC_3339 = /^(\d{4}-\d\d-\d\d)[Tt ]((?:[01]\d|2[0-3]):\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:?\d\d)?$/;
const UNIX_SECONDS = /^\d{1,11}(\.\d+)?$/;
/** Largest moment that a Date can hold, Unix milliseconds (ECMA-262, time values). */
export const DATE_MS_MAX = 8.64e15;

/**
 * Unix milliseconds as RFC 3339 in UTC with milliseconds. The moment must not be beyond {@link
 * DATE_MS_MAX}.
 */
export const rfc3339 = (ms: number): string => new Date(ms).toISOString();

/** A moment, and the same as {@link rfc3339} gives it. */
export type Moment = Readonly<{ ms: number; text: string }>;

/** The form that {@link rfc3339} gives to years with four digits, and that most SDKs send. */
const SHAPE = '0000-00-00T00:00:00.000Z';
const ZERO = 0x30;
const NINE = 0x39;
const DAYS_OF_MONTHS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/** The days of a month, from 1; 0 when there is no such month. */
function daysOf(year: number, month: number): number {
  const isLeap = year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0);
  return month === 2 && isLeap ? 29 : (DAYS_OF_MONTHS[month - 1] ?? 0);
}

/** As in the MessagePack writer: looked up once, not for each character. */
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
 * The moment of a text that is as {@link rfc3339} would write it; undefined when it may be another.
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

/** The moment that was asked for last. */
let latest = { ms: 0, text: rfc3339(0) };

/** The same for moments that repeat: the envelopes of a frame came within a few milliseconds. */
export function rfc3339OfReceipt(ms: number): string {
  if (ms !== latest.ms) latest = { ms, text: rfc3339(ms) };
  return latest.text;
}

/** An RFC 3339 text: whole seconds in Unix milliseconds, and the digits behind them. */
function rfc3339Parts(text: string): { ms: number; fraction: string } | undefined {
  const [whole, day, time, fraction = '', zone = 'Z'] = RFC_3339.exec(text) ?? [];
  // Date.parse takes the 30th of February for the 2nd of March.
  if (!whole || digits(text, 8, 10) > daysOf(digits(text, 0, 4), digits(text, 5, 7))) return undefined;
  const ms = Date.parse(`${day}T${time}${zone.toUpperCase()}`);
  return Number.isNaN(ms) ? undefined : { ms, fraction };
}

const digitsOf = (fraction: string, count: number): number =>
  Number(fraction.slice(0, count).padEnd(count, '0'));

/** Unix microseconds of an RFC 3339 text, one without a zone in UTC; undefined when it is none. */
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
 * A client's timestamp, RFC 3339 or Unix seconds; one without a zone counts as UTC.
 * @returns undefined when it is neither
 */
export function moment(text: string): Moment | undefined {
  const written = asWritten(text);
  if (written) return written;
  const ms = unixMs(text);
  return ms === undefined ? undefined : { ms, text: rfc3339(ms) };
}
