/**
 * What is done when Redis fails (spec part 7, last rule; contract part 2, Redis away): the policy,
 * in one place. redis.ts and the request path carry it out; nothing else decides.
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
 * `away`: what waits is answered as above at once, and so is what comes, until a PING succeeds; in
 * a cluster for the keys concerned. `bug`: the call's requests are answered as above, and it is
 * logged as an error: Redis is fine, the script or its data is not. `resumed`: nobody is refused;
 * the row says what follows.
 */
type Verdict = 'away' | 'bug' | 'resumed';
type Row = {
  fault: string;
  /** The error reply; undefined: no error of a call shows it. */
  reply: RegExp | undefined;
  verdict: Verdict;
  /** What follows beyond the verdict. */
  then: string;
};

const row = (fault: string, reply: RegExp | undefined, verdict: Verdict, then: string): Row => ({
  fault,
  reply,
  verdict,
  then,
});
const none = undefined;

/**
 * Redis before 7 wraps the code of a command that a script calls into an ERR: the first row that
 * fits decides.
 */
export const REDIS_FAULTS: readonly Row[] = [
  row('out of memory', /\bOOM\b/, 'away', 'PINGs are answered: one turn in 250 ms tries again'),
  row('a replica', /\bREADONLY\b/, 'away', 'a failed-over master: the new one is connected to'),
  row('a replica without master', /\bMASTERDOWN\b/, 'away', 'PINGs fail too'),
  row('reading its files', /\bLOADING\b/, 'away', 'PINGs fail too'),
  row('a cluster with a hole', /\bCLUSTERDOWN\b/, 'away', 'each key by itself'),
  row('busy with a script', /\bBUSY\b/, 'away', 'PINGs fail too'),
  row('cannot persist', /\bMISCONF\b/, 'away', 'PINGs fail too'),
  row('short of replicas', /\bNOREPLICAS\b/, 'away', 'PINGs are answered: one turn in 250 ms tries again'),
  row('does not let us in', /\b(NOAUTH|NOPERM|WRONGPASS)\b/, 'away', 'until the password is right'),
  row('a broken assertion or a foreign key', /^(ERR|WRONGTYPE)\b/, 'bug', 'the other projects go on'),
  row('slow: no reply in 700 ms', none, 'away', 'never asked again: the call may have run'),
  row('down: the connection broke', none, 'away', 'one attempt to connect per worker in a jittered 250 ms'),
  row('script cache flushed', none, 'resumed', 'NOSCRIPT: nothing has run, the source is sent'),
  row('restarted empty: rate window', none, 'resumed', 'admits up to one more limit; counted as state lost'),
  row(
    'restarted empty: quota',
    none,
    'resumed',
    'MISSING: counts on from the checkpoint; usage reconcile corrects it',
  ),
  row('failed over: last writes gone', none, 'resumed', 'as restarted empty, for those writes'),
];

/**
 * True for an error that the script itself made. Everything else that a call rejects with means
 * that Redis is away.
 */
export function isScriptFault(error: Error): boolean {
  if (error.name !== 'ReplyError') return false;
  return REDIS_FAULTS.find(({ reply }) => reply?.test(error.message))?.verdict === 'bug';
}
