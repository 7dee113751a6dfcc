/**
 * Limits each heartbeat token to five pings a second, over all workers. A ping is refused from
 * memory, or heartbeat.lua decides it. One call decides all waiting pings of a heartbeat token.
 */
import type { Clock } from '../../lib/clock.ts';
import { REDIS_REPLY_MS_MAX } from '../../limits.ts';
import type { LimitRedis, ScriptReply } from './redis.ts';
import { heartbeatKey } from './scripts.ts';

export type HeartbeatDecision = 'admitted' | 'refused' | 'unavailable';
type Ping = {
  decide(decision: HeartbeatDecision): void;
  /** When a call that asked for this ping was first lost (monotonic ms). */
  lostAt?: number;
};

type HeartbeatLimiterOptions = {
  redis: LimitRedis;
  clock: Clock;
  /**
   * Returns the present time for the script (Unix ms), in tests. Without this function, the script
   * reads Redis's own clock.
   */
  scriptNow?: () => number;
};

/**
 * Number of refusals that are remembered. When there are more, all are forgotten, and further pings
 * of these heartbeat tokens are decided by Redis.
 */
const REFUSALS_MAX = 10_000;

export class HeartbeatLimiter {
  readonly #options: HeartbeatLimiterOptions;
  #waiting = new Map<string, Ping[]>();
  /**
   * Heartbeat tokens whose pings are refused from memory, each with the end of the refusal
   * (monotonic ms).
   */
  readonly #refusedUntil = new Map<string, number>();

  constructor(options: HeartbeatLimiterOptions) {
    this.#options = options;
    options.redis.beforeFlush(() => this.#sendAsked());
  }

  /**
   * Decides one ping. Settles at once from memory, or within REDIS_REPLY_MS_MAX of the call to
   * Redis. If the connection breaks under that call, another call has as long again. Never rejects.
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

  /**
   * Lets the pings of a lost call ask again, before those that came meanwhile. The lost call may
   * have used up rights to pings; these are wasted.
   */
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
   * Remembers a refusal. The time of the refusal counts from the sending of the call: one call too
   * many is better than refusing a ping that should be admitted.
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
