/**
 * Five pings a second per heartbeat token, over all workers. Exact: every ping that is not refused
 * from memory is decided by the script, all waiting pings of one heartbeat token together.
 */
import type { Clock } from '../../lib/clock.ts';
import { REDIS_REPLY_MS_MAX } from '../../limits.ts';
import type { LimitRedis, ScriptReply } from './redis.ts';
import { heartbeatKey } from './scripts.ts';

export type HeartbeatDecision = 'admitted' | 'refused' | 'unavailable';
type Ping = {
  decide(decision: HeartbeatDecision): void;
  /** Monotonic ms at which a call was lost that asked for it, first. */
  lostAt?: number;
};

type HeartbeatLimiterOptions = {
  redis: LimitRedis;
  clock: Clock;
  /**
   * Unix ms that the script shall take for now, in tests; without it, it reads Redis's own clock.
   */
  scriptNow?: () => number;
};

/** Refusals remembered at most; a token beyond them asks Redis. */
const REFUSALS_MAX = 10_000;

export class HeartbeatLimiter {
  readonly #options: HeartbeatLimiterOptions;
  #waiting = new Map<string, Ping[]>();
  /** Token → monotonic ms until which it is refused without asking. */
  readonly #refusedUntil = new Map<string, number>();

  constructor(options: HeartbeatLimiterOptions) {
    this.#options = options;
    options.redis.beforeFlush(() => this.#sendAsked());
  }

  /**
   * Settles at once from memory, else within REDIS_REPLY_MS_MAX of the call to Redis; when the
   * connection breaks under that, within as long of another one. Never rejects.
   */
  admit(heartbeatToken: string): Promise<HeartbeatDecision> {
    return new Promise((resolve) => {
      const until = this.#refusedUntil.get(heartbeatToken);
      if (until !== undefined) {
        if (this.#options.clock.monotonic() < until) return resolve('refused');
        this.#refusedUntil.delete(heartbeatToken);
      }
      if (!this.#options.redis.available) return resolve('unavailable');
      const waiting = this.#waiting.get(heartbeatToken);
      if (waiting) waiting.push({ decide: resolve });
      else this.#waiting.set(heartbeatToken, [{ decide: resolve }]);
      this.#options.redis.schedule();
    });
  }

  #sendAsked(): void {
    if (this.#waiting.size === 0) return;
    const asked = this.#waiting;
    this.#waiting = new Map();
    const now = this.#options.scriptNow?.();
    for (const [token, waiting] of asked) {
      const sentAt = this.#options.clock.monotonic();
      const args = [now === undefined ? '' : now * 1000, waiting.length];
      const done = (reply: ScriptReply): void => {
        if (reply) this.#remember(token, sentAt, reply);
        waiting.forEach(({ decide }, i) => {
          decide(decisionOf(reply, i));
        });
      };
      const lost = (): void => this.#askAnew(token, waiting);
      this.#options.redis.call({ script: 'heartbeat', keys: [heartbeatKey(token)], args, done, lost });
    }
  }

  /** Before those that came meanwhile. What the lost call took is wasted. */
  #askAnew(token: string, lost: readonly Ping[]): void {
    const now = this.#options.clock.monotonic();
    const again: Ping[] = [];
    for (const ping of lost) {
      ping.lostAt ??= now;
      if (now - ping.lostAt < REDIS_REPLY_MS_MAX && this.#options.redis.available) again.push(ping);
      else ping.decide('unavailable');
    }
    if (again.length === 0) return;
    this.#waiting.set(token, [...again, ...(this.#waiting.get(token) ?? [])]);
    this.#options.redis.schedule();
  }

  /**
   * Counted from the moment of sending: rather a call too early than a ping refused that had its
   * right.
   */
  #remember(token: string, sentAt: number, reply: readonly unknown[]): void {
    const waitUs = reply[1] as number;
    if (waitUs === 0) return;
    if (this.#refusedUntil.size >= REFUSALS_MAX) this.#refusedUntil.clear();
    this.#refusedUntil.set(token, sentAt + waitUs / 1000);
  }
}

function decisionOf(reply: ScriptReply, index: number): HeartbeatDecision {
  if (!reply) return 'unavailable';
  return index < (reply[0] as number) ? 'admitted' : 'refused';
}
