/** A row of doctor's table (checks.ts), and how it becomes a finding. */
import { reasonOf } from '../../management/failure.ts';

/** One finding of `sluice doctor`. */
export type Finding = {
  state: 'ok' | 'warn' | 'fail';
  /** The thing that was looked at. */
  what: string;
  /** The state that it was found in. */
  found: string;
  /** How to fix it; absent when nothing is wrong. */
  fix?: string;
};

export type Check = {
  what: string;
  found: string;
  /** Whether something is wrong. A text is told in place of `found`. */
  fail?: string | boolean;
  warn?: string | boolean | undefined;
  fix?: string;
};

export function findingOf({ what, found, fail, warn, fix = '' }: Check): Finding {
  const wrong = fail || warn;
  if (!wrong) return { state: 'ok', what, found };
  return { state: fail ? 'fail' : 'warn', what, found: wrong === true ? found : wrong, fix };
}

/** Checks of an answer; when there is none, one that tells the reason. */
export async function asking(
  { what, fix, state = 'fail' }: { what: string; fix: string; state?: 'warn' | 'fail' },
  ask: () => Check[] | Promise<Check[]>,
): Promise<Check[]> {
  try {
    return await ask();
  } catch (error) {
    return [{ what, found: reasonOf(error), [state]: true, fix }];
  }
}
