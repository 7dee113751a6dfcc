/** Arguments and results of admit.lua, by name. */
import type { WindowLimit } from '../../projects/project-state.ts';
import type { ScriptReply } from './redis.ts';
import type { ScriptArg } from './redis-batch.ts';
import type { Ask, WindowReply } from './scope-cache.ts';
import { quotaKey, rateKey } from './scripts.ts';

export type AdmitCall = {
  /**
   * One letter for each request that waits, in arrival order: `t` needs a token, `b` a token and a
   * position, `c` a position only.
   */
  wishes: string;
  /** Tokens a minute; undefined: no limit applies, and `ask` is undefined, too. */
  limit?: number | undefined;
  ask?: Ask | undefined;
  /**
   * Limits of further windows. Each token must find room in these, too. Set only together with
   * `ask`.
   */
  further?: readonly WindowLimit[];
  /** Requests a month; undefined: there is no quota, or overage is enabled. */
  quota?: number | undefined;
  /** The month (YYYY-MM) and the count to go on from when Redis has no count for it. */
  start?: { month: string; count: number };
  /**
   * Present time for the script (Unix ms), in tests; undefined: the script reads Redis's own clock.
   */
  now?: number | undefined;
};

/**
 * Returns KEYS of admit.lua. The script needs a window's key even in a call without `ask`, which
 * takes no tokens.
 */
export function admitKeys(
  projectId: string,
  window = '',
  further: readonly WindowLimit[] = [],
): [string, ...string[]] {
  const keys: [string, ...string[]] = [quotaKey(projectId), rateKey(projectId, window)];
  for (const { name } of further) keys.push(rateKey(projectId, name));
  return keys;
}

/** Returns ARGV of admit.lua. */
export function admitArgs({ wishes, limit, ask, further, quota, start, now }: AdmitCall): ScriptArg[] {
  const known = ask?.known;
  const args: ScriptArg[] = [
    now ?? '',
    wishes,
    limit ?? '',
    ask?.revision ?? '',
    ask?.reserve ?? '',
    ask?.needMs ?? '',
    known?.gen ?? '',
    known?.seq ?? '',
    known?.emptyAt ?? '',
    quota ?? -1,
    start?.month ?? '',
    start?.count ?? '',
  ];
  if (ask && further) for (const window of further) args.push(window.limit);
  if (ask) for (const { bucket, unused, used } of ask.settled) args.push(bucket, unused, used);
  return args;
}

/**
 * Result for the month. `counted`: of the requests that the call was to count, the first `counted`
 * hold the positions from `before + 1` on. `missing`: Redis has no count for the month. `failed`:
 * the script could not count.
 */
export type MonthReply =
  | { kind: 'counted'; month: string; before: number; counted: number }
  | { kind: 'missing'; month: string }
  | { kind: 'failed'; error: string };

/** Parses a reply into its two parts. A part is undefined when it was not asked for. */
export function parseReply(reply: NonNullable<ScriptReply>): {
  window: (WindowReply & { lost: boolean }) | undefined;
  month: MonthReply | undefined;
} {
  const [window, month] = reply as [number[], [] | [string] | [string, number, number]];
  return {
    window: window.length > 0 ? parseWindow(window) : undefined,
    month: month.length > 0 ? parseMonth(month as [string] | [string, number, number]) : undefined,
  };
}

/** Reads the list by index: array destructuring would go through an iterator, which is slower. */
function parseWindow(integers: readonly number[]): WindowReply & { lost: boolean } {
  const at = (index: number): number => integers[index] as number;
  return {
    granted: at(0),
    needBucket: at(1),
    reserve: at(2),
    reserveBucket: at(3),
    booked: at(4),
    limit: at(5),
    revision: at(6),
    now: at(7),
    emptyAt: at(8),
    admitsAt: at(9),
    gen: at(10),
    seq: at(11),
    lost: at(12) === 1,
    scarce: at(13) === 1,
    refusingWindow: at(14),
  };
}

function parseMonth([month, before, counted]: [string] | [string, number, number]): MonthReply {
  if (before === undefined || counted === undefined) return { kind: 'failed', error: month };
  return before < 0 ? { kind: 'missing', month } : { kind: 'counted', month, before, counted };
}
