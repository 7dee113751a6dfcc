/**
 * `GET /v1/doctor`: the state of the deployment. `GET /v1/tail`: accepted items or refusals as they
 * come, one JSON object in each line. Lines that a slow reader misses are counted, not kept.
 */
import { Readable } from 'node:stream';
import { z } from 'zod';
import { type Clock, systemClock } from '../../lib/clock.ts';
import { InvalidError } from '../failure.ts';
import { SEEN_TYPES } from '../operations.ts';
import type { Sighting } from '../tail-item.ts';
import { operation } from './operation.ts';
import { noQuery } from './page.ts';

/** While this many bytes wait for a reader, no line is added. A line has about a MB at most. */
const WAITING_BYTES_MAX = 1024 * 1024;
/**
 * Most lines in a second. The API shares its process with health probes, which must not wait while
 * a flood of items is parsed.
 */
const LINES_PER_SEC = 1_000;
/** Pause between two empty lines, which show proxies and the reader that the server is alive. */
const SIGN_OF_LIFE_MS = 10_000;

export class TailLines extends Readable {
  readonly #clock: Clock;
  readonly #alive: NodeJS.Timeout;
  /** Number of lines that were sent in the second that began at `since`, monotonic ms. */
  #second = { since: Number.NEGATIVE_INFINITY, lines: 0 };
  #missed = 0;

  constructor(clock: Clock = systemClock) {
    super({ read: () => undefined, highWaterMark: WAITING_BYTES_MAX });
    this.#clock = clock;
    this.#alive = setInterval(() => this.#sign(), SIGN_OF_LIFE_MS).unref();
    this.#sign(); // the head of the answer goes out with this line
  }

  /** Adds the lines that `sighting` makes. When there is no room, counts one line as missed. */
  readonly show = (sighting: Sighting): void => {
    if (this.destroyed) return;
    if (!this.#hasRoom()) {
      this.#missed++;
      return;
    }
    for (const seen of sighting()) {
      const missed = (seen.missed ?? 0) + this.#missed;
      this.#missed = 0;
      this.#second.lines++;
      this.push(`${JSON.stringify({ ...seen, ...(missed > 0 && { missed }) })}\n`);
    }
  };

  #hasRoom(): boolean {
    const now = this.#clock.monotonic();
    if (now - this.#second.since >= 1_000) this.#second = { since: now, lines: 0 };
    return this.#second.lines < LINES_PER_SEC && this.readableLength < WAITING_BYTES_MAX;
  }

  #sign(): void {
    if (this.readableLength === 0) this.push('\n');
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    clearInterval(this.#alive);
    done(error);
  }
}

const wanted = z.strictObject({
  project: z.string().min(1).optional(),
  type: z.enum(SEEN_TYPES).optional(),
  refused: z
    .enum(['true', 'false'])
    .default('false')
    .transform((text) => text === 'true'),
});

export const tail = operation({ query: wanted }, async ({ operations, query }) => {
  if (query.refused && query.type !== undefined)
    throw new InvalidError([{ field: 'type', detail: 'refused requests have none' }]);
  const lines = new TailLines();
  const { stop } = await operations.tail(query, lines.show).catch((error: unknown) => {
    lines.destroy();
    throw error;
  });
  lines.once('close', stop);
  return { lines };
});

export const doctor = operation({ query: noQuery }, async ({ operations }) => {
  const checks = await operations.examine();
  return { json: { ok: !checks.some(({ state }) => state === 'fail'), checks } };
});
