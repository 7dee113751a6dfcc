/**
 * The breaker of a cluster, key by key: one node that is away must not stop the projects of the others, and which node has a key
 * changes during a failover. A key whose call failed is refused without asking for a while; then one call tries again.
 */

/** Keys remembered at most; beyond them all are forgotten, which costs one failed call each. */
const KEYS_MAX = 10_000;

export class AwayKeys {
  /** Key → monotonic ms until which it is away. */
  readonly #until = new Map<string, number>();

  mark(key: string, until: number): void {
    if (this.#until.size >= KEYS_MAX) this.#until.clear();
    this.#until.set(key, until);
  }

  has(key: string, now: number): boolean {
    const until = this.#until.get(key);
    if (until === undefined) return false;
    if (now < until) return true;
    this.#until.delete(key);
    return false;
  }
}
