/**
 * A client that remembers every admission: when it asked and when it knew. The admission lies between the two, so that requests which
 * were asked AND answered within 60 seconds were all admitted within 60 seconds: more of them than the limit is a proof against the
 * limiter, whatever the network and the clocks did.
 */
import { Connection } from '../load/connection.ts';
import { endpointOf } from '../load/options.ts';
import { type Target, Workload } from '../workload.ts';

const WINDOW_MS = 60_000;
/** By how much the limiter may say that a window lasts longer: lease, rounding, whole seconds. */
const RESET_SEC_MAX = 63;
const SETTLE_MS = 3_000;

export type WitnessOptions = {
  url: string;
  target: Target;
  limit: number;
  connections: number;
  ratePerSec: number;
  durationMs: number;
  seed: number;
};
export type Testimony = {
  asked: number;
  admitted: number;
  refused: number;
  /** By status or reason, what was neither. */
  other: Record<string, number>;
  /** The most that were asked and answered within any 60 seconds: sound against the limit. */
  insideMax: number;
  /** Answers 200 in any 60 seconds: the most, and the fewest of intervals that lie wholly in the run. */
  answeredMax: number;
  answeredMin: number;
  /** Sentences about answers whose rate headers cannot be right. */
  implausible: string[];
};

export class Witness {
  readonly #options: WitnessOptions;
  readonly #connections: Connection[];
  readonly #free: Connection[];
  readonly #sentAt: number[] = [];
  readonly #answeredAt: number[] = [];
  readonly #other = new Map<string, number>();
  readonly #implausible: string[] = [];
  #startedAt = 0;
  #asked = 0;
  #refused = 0;

  constructor(options: WitnessOptions) {
    this.#options = options;
    const { url, target, seed } = options;
    const host = new URL(url).host;
    const mix = { event: 1 };
    this.#workload = new Workload({ seed, mix, encoding: 'none', targets: [target], host, keepAlive: true });
    this.#connections = Array.from({ length: options.connections }, () => this.#connection());
    // In turn, so that every worker gets its share.
    this.#free = [...this.#connections];
  }
  readonly #workload: Workload;

  #connection(): Connection {
    return new Connection({
      endpoint: endpointOf(this.#options.url),
      keepAlive: true,
      requestBytes: this.#workload.requestBytesMax,
      events: {
        onAnswer: (connection, status, answer) => this.#onAnswer(connection, status, answer),
        onFailure: (connection, reason) => {
          this.#count(reason);
          this.#free.push(connection);
        },
      },
    });
  }

  async run(): Promise<Testimony> {
    const { durationMs } = this.#options;
    this.#startedAt = performance.now();
    const timer = setInterval(() => this.#sendDue(), 1);
    await new Promise((resolve) => setTimeout(resolve, durationMs));
    clearInterval(timer);
    for (const end = performance.now() + SETTLE_MS; performance.now() < end; ) {
      if (!this.#connections.some(({ underWay }) => underWay)) break;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    for (const connection of this.#connections) connection.close();
    return this.#testify(this.#startedAt + durationMs);
  }

  #sendDue(): void {
    const now = performance.now();
    const due = ((now - this.#startedAt) * this.#options.ratePerSec) / 1000;
    while (this.#asked < due) {
      const connection = this.#free.shift();
      if (!connection) return;
      connection.sentAt = performance.now();
      connection.send(this.#workload.draw(), this.#asked++);
    }
  }

  #onAnswer(connection: Connection, status: number, answer: Buffer): void {
    const now = performance.now();
    this.#free.push(connection);
    if (status === 200) {
      this.#sentAt.push(connection.sentAt);
      this.#answeredAt.push(now);
    } else if (status === 429) this.#refused++;
    else this.#count(`status ${status}`);
    if (status === 200 || status === 429) this.#check(status, answer.toString('latin1'));
  }

  #check(status: 200 | 429, text: string): void {
    if (this.#implausible.length >= 10) return;
    const field = (name: string): number =>
      Number(new RegExp(`\r\n${name}: (\\d+)\r\n`, 'i').exec(text)?.[1]);
    const remaining = field('x-ratelimit-remaining');
    const ahead = field('x-ratelimit-reset') - Date.now() / 1000;
    const remainingFits =
      status === 200 ? remaining >= 0 && remaining < this.#options.limit : remaining === 0;
    if (!remainingFits) this.#implausible.push(`${status} with X-RateLimit-Remaining ${remaining}`);
    if (!(ahead > -2 && ahead < RESET_SEC_MAX))
      this.#implausible.push(`${status} with X-RateLimit-Reset ${ahead.toFixed(1)} s ahead`);
    if (status === 429 && field('retry-after') !== 60) this.#implausible.push('429 without Retry-After: 60');
  }

  #count(what: string): void {
    this.#other.set(what, (this.#other.get(what) ?? 0) + 1);
  }

  #testify(endsAt: number): Testimony {
    const sent = Float64Array.from(this.#sentAt).sort();
    const answered = Float64Array.from(this.#answeredAt).sort();
    let [insideMax, answeredMax] = [0, 0];
    // Nothing is under way for a minute, so what was sent before has been answered before the end.
    for (const from of sent)
      insideMax = Math.max(insideMax, below(answered, from + WINDOW_MS) - below(sent, from));
    let answeredMin = Number.POSITIVE_INFINITY;
    for (const from of answered) {
      const count = below(answered, from + WINDOW_MS) - below(answered, from);
      answeredMax = Math.max(answeredMax, count);
      if (from + WINDOW_MS <= endsAt) answeredMin = Math.min(answeredMin, count);
    }
    return {
      asked: this.#asked,
      admitted: sent.length,
      refused: this.#refused,
      other: Object.fromEntries(this.#other),
      insideMax,
      answeredMax,
      answeredMin: Number.isFinite(answeredMin) ? answeredMin : answeredMax,
      implausible: this.#implausible,
    };
  }
}

/** How many of the sorted values are smaller. */
export function below(sorted: Float64Array, value: number): number {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] as number) < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
