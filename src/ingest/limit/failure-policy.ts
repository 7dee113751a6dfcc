/**
 * The policy for a Redis that fails, in one place. redis.ts and the request path carry it
 * out; nothing else decides.
 *
 * Late. A reply comes within 700 ms. Requests wait and go on. A token that came after 250 ms is
 * asked for once more, and leased for longer while replies are slow. Each 200 is counted once;
 * where the waits add up to more than the answer's 2 s it is 503, and the position is taken back.
 *
 * Cut. The connection breaks, or the server is read-only ({@link isCut}). Requests wait for a
 * connection, up to 700 ms, and what was under way is asked anew by other calls. What the lost
 * calls took is wasted.
 *
 * Away. Redis says that it does not do its work ({@link AWAY}), sends no reply within `replyMs`, or
 * there is no connection for that long. All requests that wait, and all that come until a PING is
 * answered, are answered at once as {@link WHILE_AWAY} says; in a cluster only those of the keys
 * concerned. A server that is out of memory or short of replicas answers PINGs, so there one batch
 * in 250 ms tries again. No call is sent again: it may have run.
 *
 * A bug. A script fails for another reason ({@link isScriptFault}). The requests of this call are
 * answered in the same way, the error is logged, and other projects go on.
 *
 * Back. Requests are decided by the scripts again. When the cache of scripts was flushed, nothing
 * has run and the source is sent (NOSCRIPT). When Redis comes back empty, or has lost its last
 * writes in a failover, a window admits up to one more limit, which is counted as state lost. A
 * month without a count (MISSING) goes on from its checkpoint. Either leaves a note, and the
 * processor raises counts to what its tally says (management/lost-counts.ts).
 */

/**
 * What a request is answered while Redis is away. `admit`: let through, without rate and usage
 * headers, and logged.
 */
type WhileAway = { rateToken: 'refuse' | 'admit'; quota: 'fail' | 'admit'; heartbeat: 'refuse' | 'admit' };

/** By SLUICE_ENV. Tokens already leased stay valid until their lease ends, in both. */
export const WHILE_AWAY = {
  production: { rateToken: 'refuse', quota: 'fail', heartbeat: 'refuse' },
  development: { rateToken: 'admit', quota: 'admit', heartbeat: 'admit' },
} as const satisfies Record<string, WhileAway>;
export type AwayPolicy = (typeof WHILE_AWAY)[keyof typeof WHILE_AWAY];

/**
 * Codes of the replies that mean that Redis is away: it is out of memory, a replica, a replica
 * without its master, reading its files, a cluster with a hole, busy with a script, unable to
 * persist, short of replicas, or does not let us in. Redis before 7 wraps the code of a command
 * that a script calls into an ERR, so a code counts wherever it is.
 */
const AWAY =
  /\b(OOM|READONLY|MASTERDOWN|LOADING|CLUSTERDOWN|BUSY|MISCONF|NOREPLICAS|NOAUTH|NOPERM|WRONGPASS)\b/;
/**
 * Nothing has run, and another server may be the primary by now: a cut ({@link isCut}). READONLY is
 * among AWAY, too, so that it is no fault of a script.
 */
const DEMOTED = /\bREADONLY\b/;
/** A broken assertion, or a key that is none of ours. */
const SCRIPT_FAULT = /^(ERR|WRONGTYPE)\b/;

/** True when the connection broke under a call, or brings no further: another one may do better. */
export function isCut({ name, message }: Error): boolean {
  return name === 'ReplyError' ? DEMOTED.test(message) : !/timed out|timeout/i.test(message);
}

/**
 * True for an error that the script itself made. Everything else that a call rejects with means
 * that Redis is away.
 */
export function isScriptFault({ name, message }: Error): boolean {
  return name === 'ReplyError' && SCRIPT_FAULT.test(message) && !AWAY.test(message);
}
