/** The type of a row in doctor's table (checks.ts), and the finding that is made of it. */
import { reasonOf } from '../operation-error.ts';

export type Finding = {
  state: 'ok' | 'warn' | 'fail';
  /** Name of the checked thing. */
  what: string;
  /** State of the checked thing. */
  found: string;
  /** Advice how to fix it; absent when nothing is wrong. */
  fix?: string;
};

export type Check = {
  what: string;
  found: string;
  /** Whether the check fails. A text means that it fails, and is shown in place of `found`. */
  fail?: string | boolean;
  warn?: string | boolean | undefined;
  fix?: string;
};

export function findingOf({ what, found, fail, warn, fix = '' }: Check): Finding {
  const wrong = fail || warn;
  if (!wrong) return { state: 'ok', what, found };
  return { state: fail ? 'fail' : 'warn', what, found: wrong === true ? found : wrong, fix };
}

/** Returns the checks that `ask` makes. If `ask` throws, returns one check with the reason. */
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
