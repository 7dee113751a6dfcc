/** Which errors of a script call mean that Redis is away, and which that the script is wrong. */

/** Replies that stand for a server that is there but does not do its work (contract part 2, Redis away). */
const AWAY_CODES =
  /\b(OOM|READONLY|LOADING|CLUSTERDOWN|BUSY|MASTERDOWN|MISCONF|NOREPLICAS|NOAUTH|NOPERM|WRONGPASS)\b/;

/**
 * True for an error that the script itself made (a broken assertion, a key of another type): a bug, and no reason to open the breaker.
 * Everything else counts as away: time-outs, broken connections, and the replies above, which Redis before 7 wraps into an ERR.
 */
export function isScriptFault(error: Error): boolean {
  if (error.name !== 'ReplyError' || AWAY_CODES.test(error.message)) return false;
  return /^(ERR|WRONGTYPE)\b/.test(error.message);
}
