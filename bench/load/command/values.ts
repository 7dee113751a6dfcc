/** Parses values of the command line. Each error names its option. */

/** Thrown when the command line is wrong. The exit status is 2. */
export class UsageError extends Error {
  override name = 'UsageError';
}

const MULTIPLES: Readonly<Record<string, number>> = { k: 1e3, M: 1e6 };

/** Parses a number. `1k` means 1,000 and `2.5M` means 2,500,000. */
function numberOf(text: string): number {
  const [, digits = text, multiple] = /^(\d+(?:\.\d+)?)([kM])$/.exec(text) ?? [];
  return Number(digits) * (multiple === undefined ? 1 : (MULTIPLES[multiple] as number));
}

export function numeric(name: string, text: string, least = 0): number {
  const value = numberOf(text);
  if (text.trim() === '' || !Number.isFinite(value) || value < least)
    throw new UsageError(`--${name}: a number from ${least}, not ${text}`);
  return value;
}

export function whole(
  name: string,
  text: string,
  { least = 0, most = Number.MAX_SAFE_INTEGER } = {},
): number {
  const value = numberOf(text);
  if (!/^\d/.test(text) || !Number.isInteger(value) || value < least || value > most) {
    const range = most === Number.MAX_SAFE_INTEGER ? `from ${least}` : `from ${least} to ${most}`;
    throw new UsageError(`--${name}: a whole number ${range}, not ${text}`);
  }
  return value;
}

const UNITS_MS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, '': 1_000 };

/**
 * Parses a duration such as `500ms`, `30s`, `1m30s` or `1h`. A number without a unit means seconds.
 * @returns milliseconds
 */
export function duration(name: string, text: string): number {
  if (!/^(\d+(\.\d+)?|(\d+(\.\d+)?(ms|s|m|h))+)$/.test(text))
    throw new UsageError(`--${name}: a time such as 500ms, 30s or 1m30s, not ${text}`);
  return [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h)?/g)].reduce(
    (sum, [, number, unit = '']) => sum + Number(number) * (UNITS_MS[unit] as number),
    0,
  );
}

/**
 * Parses a moment such as `2026-01-31T12:00:00Z`.
 * @param or text for the error: what else the option takes
 */
export function moment(name: string, text: string, or = ''): Date {
  const at = new Date(text);
  if (!/^\d{4}-\d\d-\d\dT/.test(text) || Number.isNaN(at.getTime()))
    throw new UsageError(`--${name}: a time such as 2026-01-31T12:00:00Z${or}, not ${text}`);
  return at;
}

/** Parses a part such as `1/3`: the second of three. The first is `0/3`. */
export function part(name: string, text: string): { at: number; of: number } {
  const [at = Number.NaN, of = 0] = /^\d+\/\d+$/.test(text) ? text.split('/').map(Number) : [];
  if (!(at < of)) throw new UsageError(`--${name}: 0/3, 1/3 or 2/3, not ${text}`);
  return { at, of };
}

/** Parses a share such as `30%` or `0.3`. */
export function share(name: string, text: string): number {
  const [, number, percent] = /^(\d+(?:\.\d+)?)(%?)$/.exec(text) ?? [];
  const value = percent === '%' ? Number(number) / 100 : Number(number);
  if (number === undefined || value > 1)
    throw new UsageError(`--${name}: a share such as 30% or 0.3, not ${text}`);
  return value;
}

const SIZE_UNITS: Readonly<Record<string, number>> = { '': 1, k: 1_024, m: 1_024 * 1_024 };
const SIZE_BYTES_MAX = 20 * 1_024 * 1_024;

/**
 * Parses sizes in bytes with weights, such as `2k=70,20k=25,200k=5`. A size without a weight has
 * the weight 1.
 */
export function sizes(name: string, text: string): { bytes: number; weight: number }[] {
  return text.split(',').map((part) => {
    const [, number, unit = '', weight = '1'] = /^(\d+)([km]?)(?:=(\d+(?:\.\d+)?))?$/i.exec(part) ?? [];
    const bytes = Number(number) * (SIZE_UNITS[unit.toLowerCase()] as number);
    if (number === undefined || bytes > SIZE_BYTES_MAX || !(Number(weight) > 0))
      throw new UsageError(`--${name}: sizes up to 20m with weights, as in 2k=70,20k=25,200k=5, not ${part}`);
    return { bytes, weight: Number(weight) };
  });
}

const LINE = /^([A-Za-z0-9!#$%&'*+.^_`|~-]+):[ \t]*([^\r\n]*)$/;
const OWN_HEADERS = /^(content-length|transfer-encoding|content-encoding|host|connection)$/i;

/** Parses a header such as `X-Real-Ip: 192.0.2.1`. */
export function header(name: string, text: string): string {
  const [, field = '', value] = LINE.exec(text) ?? [];
  if (value === undefined) throw new UsageError(`--${name}: 'NAME: VALUE', not ${text}`);
  if (OWN_HEADERS.test(field)) throw new UsageError(`--${name}: ${field} is set by the load tester itself`);
  return `${field}: ${value}`;
}

export function serverUrl(name: string, text: string): string {
  if (!URL.canParse(text) || !/^https?:$/.test(new URL(text).protocol))
    throw new UsageError(`--${name}: an http or https URL, not ${text}`);
  return text.replace(/\/+$/, '');
}
