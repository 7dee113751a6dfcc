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

type WindowResult = readonly [
  granted: number,
  bucket: number,
  excess: number,
  excessBucket: number,
  booked: number,
  limit: number,
  revision: number,
  now: number,
  emptyAt: number,
  admitsAt: number,
  gen: number,
  seq: number,
  lost: number,
  scarce: number,
];

/** The result of rate-window.lua by name. */
export function parseReply(reply: readonly unknown[]): WindowReply & { lost: boolean } {
  const [
    granted,
    ,
    excess,
    excessBucket,
    booked,
    limit,
    revision,
    now,
    emptyAt,
    admitsAt,
    gen,
    seq,
    lost,
    scarce,
  ] = reply as WindowResult;
  return {
    granted,
    excess,
    excessBucket,
    booked,
    limit,
    revision,
    now,
    emptyAt,
    admitsAt,
    gen,
    seq,
    lost: lost === 1,
    scarce: scarce === 1,
  };
}
