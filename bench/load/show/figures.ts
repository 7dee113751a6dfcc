/** Figures as people read them. */

/** Three significant digits, thousands apart. */
export function number(value: number): string {
  if (!Number.isFinite(value)) return '-';
  const digits = Math.abs(value) >= 100 || value === 0 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
