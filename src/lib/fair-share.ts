/**
 * Fair shares of what all projects use together.
 *
 * One rule: once a resource is half full, a project that holds more than its share gets no more of
 * it, and the others go on. A share is the resource divided by the projects that use it now and the
 * next one to come. Without that one a single project could take all of it before another asks. So
 * no request of a project begins once it has half; bodies under way may take three quarters of the
 * memory.
 *
 * Eight resources have the rule: of a worker its memory for bodies, requests in flight, spool,
 * places for large uploads, bytes that the InflationQueue inflates to, spooled bytes of bodies that
 * were inflated in the loop, and bytes in flight to the streams; of all workers the chunks stream,
 * for which the broker counts (stream/publish/part-shares.ts). Three things are no resources and
 * have bounds of another kind: bodies that swell (InflationQueue) and work for the processors
 * (stream/work.ts) are debts that time pays, and dead letters go when there are too many.
 */

/** What one project holds of each resource. */
export class ResourcesInUse {
  /** Bytes between a publish and its acknowledgement. */
  inFlight = 0;
  /** Requests whose body is awaited, or whose envelope is not stored yet. */
  requests = 0;
  /** Bytes of memory of its uploads. */
  held = 0;
  /** Bytes of spool files. */
  spool = 0;
  /** Uploads that are spooled or inflated in pieces. */
  uploads = 0;
  /** Bytes of spooled bodies that were whole, and inflated in the loop. */
  unpaced = 0;
  /** Bytes of small bodies that are being inflated or wait for it, by what they inflate to. */
  inflating = 0;
  /**
   * No resource: the next small bodies that are not inflated in the loop
   * (ingest/envelope/upload.ts).
   */
  distrusted = 0;
  /** Bytes of parts in the chunks stream, of all workers: in objects that part-shares.ts makes. */
  chunks = 0;

  isHeld(): boolean {
    const { requests, held, spool, uploads, unpaced, inflating, chunks } = this;
    return this.inFlight + requests + held + spool + uploads + unpaced + inflating + chunks > 0;
  }
}

/** Of those that wait, the oldest of the project that has the least at work. */
export function nextInTurn<T>(waiting: readonly T[], atWork: (one: T) => number): T | undefined {
  let next: T | undefined;
  let least = Infinity;
  for (const one of waiting) {
    const amount = atWork(one);
    if (amount < least) [next, least] = [one, amount];
    if (least === 0) break;
  }
  return next;
}

type Resource = Exclude<keyof ResourcesInUse, 'isHeld' | 'distrusted'>;

export class FairShare {
  readonly #resource: Resource;
  readonly #max: number;
  #total = 0;
  #users = 0;

  constructor(resource: Resource, max: number) {
    this.#resource = resource;
    this.#max = max;
  }

  /** Held by all projects. */
  get total(): number {
    return this.#total;
  }

  /** @param delta negative to give back */
  add(inUse: ResourcesInUse, delta: number): void {
    const before = inUse[this.#resource];
    const after = before + delta;
    inUse[this.#resource] = after;
    this.#total += delta;
    if (before === 0 && after > 0) this.#users++;
    else if (before > 0 && after === 0) this.#users--;
  }

  /** False: the resource is at least half full, and the project holds more than its share. */
  allows(inUse: ResourcesInUse): boolean {
    return 2 * this.#total < this.#max || inUse[this.#resource] * (this.#users + 1) <= this.#max;
  }
}
