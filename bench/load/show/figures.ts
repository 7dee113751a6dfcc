/** Figures as people read them. */

/** Three significant digits, thousands apart; `-` where there is nothing to measure. */
export function number(value: number | null): string {
  if (value === null || !Number.isFinite(value)) return '-';
  const digits = Math.abs(value) >= 100 || value === 0 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** Characters that steer a terminal or turn the text on it around; line breaks and tabs are left. */
const STEERING = /[^\P{Cc}\n\t]|\p{Cf}|[\u2028\u2029]|\p{Cs}/gu;

/** Escapes what would steer the terminal: a server's or a file's text may be part of what is printed. */
export const harmless = (text: string): string =>
  text.replace(STEERING, (found) => `\\u${(found.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`);
