/**
 * Policy for a Redis that is late, cut off or away. redis.ts and the request path carry it out.
 *
 * *Late*: a reply takes long, but comes within 700 ms. Requests wait for it, then go on. A token
 * whose reply took more than 250 ms is asked for once more, and leases are longer while replies are
 * slow. A request that has waited for more than 2 s in all, the longest time of an answer, gets
 * 503, and its position is given back.
 *
 * *Cut*: the connection breaks, or the server is read-only ({@link isCut}). Requests wait up to 700
 * ms for a new connection. A request whose call was lost makes a new call. The lost one is not sent
 * again, because it may have run: the tokens and positions that it took are wasted. On a single
 * server (not a cluster), a late reply and a cut together take at most a second.
 *
 * *Away*: Redis says that it does not do its work ({@link AWAY}), sends no reply within 700 ms
 * (`replyMs`), or cannot be connected to for that long. All requests that wait, and all that come
 * before Redis answers a PING, are answered at once as {@link WHILE_AWAY} says; in a cluster only
 * the requests that need the keys concerned. A server that is out of memory or short of replicas
 * answers PINGs. Such a server gets one batch of calls every 250 ms as a trial.
 *
 * *A bug*: a script fails for another reason ({@link isScriptFault}). Requests of the failed call
 * are answered as {@link WHILE_AWAY} says, the error is logged, and other projects go on.
 *
 * *Back*: the scripts decide again. NOSCRIPT says that the cache of scripts was flushed and nothing
 * has run, so the source is sent. A Redis that comes back empty, or lost its last writes in a
 * failover, may admit a whole limit once more within a window; this is counted as state lost. A
 * month without a count (the reply MISSING) goes on from its checkpoint. Both losses leave a note,
 * and the processor raises the counts to its tally (management/lost-counts.ts).
 */

/**
 * Treatment of a request while Redis is away, by what the request needs of Redis. `refuse` answers
 * 429. `fail` answers 500, or 503 where the broker is away, too. `admit` lets the request through,
 * without rate and usage headers, and logs it.
 */
type WhileAway = { rateToken: 'refuse' | 'admit'; quota: 'fail' | 'admit'; heartbeat: 'refuse' | 'admit' };

/** Policies by SLUICE_ENV. In both, tokens already leased stay valid until their lease ends. */
export const WHILE_AWAY = {
  production: { rateToken: 'refuse', quota: 'fail', heartbeat: 'refuse' },
  development: { rateToken: 'admit', quota: 'admit', heartbeat: 'admit' },
} as const satisfies Record<string, WhileAway>;
export type AwayPolicy = (typeof WHILE_AWAY)[keyof typeof WHILE_AWAY];

/**
 * Codes of replies that mean that Redis is away: it cannot read or write now, or does not let us
 * in. Redis before 7 wraps the code of a command that a script calls into an ERR, so a code counts
 * anywhere in the message.
 */
const AWAY =
  /\b(OOM|READONLY|MASTERDOWN|LOADING|CLUSTERDOWN|BUSY|MISCONF|NOREPLICAS|NOAUTH|NOPERM|WRONGPASS)\b/;
/**
 * Code of a server that has become a replica. The call has not run, and another server may be the
 * primary by now, so the reply counts as a cut ({@link isCut}). READONLY is among AWAY, too, so
 * that it does not count as a fault of a script.
 */
const DEMOTED = /\bREADONLY\b/;
/**
 * An error that begins like this is a bug: a broken assertion of the script, or a key whose value
 * has another type.
 */
const SCRIPT_FAULT = /^(ERR|WRONGTYPE)\b/;

/**
 * True for an error of a call whose connection broke, or leads to a server that is now a replica. A
 * new connection may lead to a server that serves.
 */
export function isCut({ name, message }: Error): boolean {
  return name === 'ReplyError' ? DEMOTED.test(message) : !/timed out|timeout/i.test(message);
}

/**
 * True for an error that the script itself made. Every other error of a call means that Redis is
 * cut off or away.
 */
export function isScriptFault({ name, message }: Error): boolean {
  return name === 'ReplyError' && SCRIPT_FAULT.test(message) && !AWAY.test(message);
}
