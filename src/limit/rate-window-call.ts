/** What rate-window.lua takes and returns, by name. */
import type { Ask, WindowReply } from './lease-cache.ts';
import type { ScriptArg } from './redis-batch.ts';

/** ARGV of rate-window.lua. */
export function scriptArgs(ask: Ask, limit: number, now?: number): ScriptArg[] {
  const { known } = ask;
  const args: ScriptArg[] = [
    now ?? '',
    limit,
    ask.revision,
    ask.need,
    ask.excess,
    known?.gen ?? '',
    known?.seq ?? '',
    known?.emptyAt ?? '',
  ];
  for (const { bucket, unused, used } of ask.settled) args.push(bucket, unused, used);
  return args;
}

/** The result of rate-window.lua by name. By number: taking a list apart by position asks it for an iterator. */
export function parseReply(reply: readonly unknown[]): WindowReply & { lost: boolean } {
  const integers = reply as readonly number[];
  const at = (index: number): number => integers[index] as number;
  return {
    granted: at(0),
    excess: at(2),
    excessBucket: at(3),
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
  };
}
