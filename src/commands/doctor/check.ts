/** One finding of `sluice doctor`. */
export type Check = {
  state: 'ok' | 'warn' | 'fail';
  /** What was looked at. */
  what: string;
  /** What was found. */
  found: string;
  /** What to do about it; absent when nothing is wrong. */
  mend?: string;
};

export const ok = (what: string, found: string): Check => ({ state: 'ok', what, found });
export const warn = (what: string, found: string, mend: string): Check => ({
  state: 'warn',
  what,
  found,
  mend,
});
export const fail = (what: string, found: string, mend: string): Check => ({
  state: 'fail',
  what,
  found,
  mend,
});

const CLOCK_WARN_MS = 1_000;
const CLOCK_FAIL_MS = 10_000;

/** Compares another clock with ours. */
export function checkClock(what: string, otherMs: number, oursMs: number): Check {
  const apart = Math.abs(otherMs - oursMs);
  const found = `${(apart / 1000).toFixed(apart < 100 ? 3 : 1)} s apart from this machine`;
  const mend = 'Keep all clocks in step with NTP (chrony, systemd-timesyncd).';
  if (apart >= CLOCK_FAIL_MS) return fail(what, found, mend);
  return apart >= CLOCK_WARN_MS ? warn(what, found, mend) : ok(what, found);
}
