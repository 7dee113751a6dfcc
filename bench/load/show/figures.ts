/** Formats figures for people. */

/**
 * Formats a number with about three significant digits and with commas between thousands; `-` when
 * there is no number.
 */
export function number(value: number | null): string {
  if (value === null || !Number.isFinite(value)) return '-';
  const digits = Math.abs(value) >= 100 || value === 0 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/**
 * Matches characters that control a terminal or change the direction of text. Line breaks and tabs
 * do not match.
 */
const STEERING = /[^\P{Cc}\n\t]|\p{Cf}|[\u2028\u2029]|\p{Cs}/gu;

/**
 * Escapes characters that control a terminal. They may come from a server or a file whose text is
 * printed.
 */
export const harmless = (text: string): string =>
  text.replace(STEERING, (found) => `\\u${(found.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`);
