/**
 * How much work projects make for the processors, so that one project's work does not become the
 * others' wait.
 *
 * Frames are processed in the order in which they came, and one may hold entries of several
 * projects. So what is queued cannot be put into another order; what comes can be refused. An entry
 * is a debt of its project, in milliseconds of a processor's time, and each millisecond pays off
 * one. Two bounds follow:
 *
 *     at a worker      a project that owes more than WORK_FREE_MS gets 503, so that no burst is
 *                      queued that takes longer. Where it is the only project there is no bound
 *     at a processor   an item is a debt of twice its work, by its size once it is inflated. It is
 *                      not timed: another project's slices, or a machine that stands still, are
 *                      not its doing. While what the processor has in hand is older than
 *                      WORK_BEHIND_MS, it names each project that owed more than WORK_HEAVY_MS
 *                      when the frame was stored. All workers refuse a named project
 *                      for WORK_REST_MS, and its work costs it twice as much from then on.
 *                      The price falls while nobody names it
 *
 * The first bound does not know processors. The second one makes up for slow ones, and for many
 * workers. A processor that was away is behind, too, and names nobody whose work takes less than
 * half of its time.
 *
 * An entry that takes long by itself, such as a scrubbed recording, would break both bounds: it is
 * processed beside its stream, and others pass it ({@link isHeavy}, processor/heavy-frames.ts).
 */
import type { Clock } from '../lib/clock.ts';
import { Debts } from '../lib/debts.ts';
import type { ItemType } from '../lib/item-types.ts';
import {
  HEAVY_ENTRY_MS,
  HEAVY_OWES_MS,
  RECORDING_BYTES_MAX,
  WORK_FREE_MS,
  WORK_PRICE_HALVED_MS,
  WORK_PRICE_MAX,
  WORK_REST_MS,
  WORKERS_SHARING_FREE_MAX,
} from '../limits.ts';
import type { Privacy } from './frame.ts';
import type { NatsLink } from './nats.ts';

/** A processor names a project here. A plain subject: a lost message is followed by another. */
export const HEAVY_SUBJECT = 'sluice.heavy';

/** Milliseconds of a slow core's time. Scrubbing: of a text that it changes everywhere. */
const ITEM_MS = 0.01;
const PLAIN_MS_PER_BYTE = 10 / (1024 * 1024);
const SCRUBBED_MS_PER_BYTE = 120 / (1024 * 1024);
/** A recording is compressed: ingest does not know what it inflates to. The usual, and the most. */
const RECORDING_SWELLS = 8;
const RECORDING_SWELLS_MAX = 1_032;

const isScrubbed = (privacy: Privacy | undefined): boolean =>
  privacy !== undefined && privacy.scrub.length + privacy.names.length > 0;

/** The work on an item's JSON, about; without `privacy` that of storing it alone. */
export const workOn = (bytes: number, privacy?: Privacy): number =>
  ITEM_MS + bytes * (isScrubbed(privacy) ? SCRUBBED_MS_PER_BYTE : PLAIN_MS_PER_BYTE);

type QueuedItem = { type: ItemType; length: number };
type QueuedWork = { items: readonly QueuedItem[]; privacy?: Privacy | undefined };

function workWith({ items, privacy }: QueuedWork, swells: number): number {
  let ms = 0;
  for (const { type, length } of items) {
    const isRecording = type === 'replay_recording';
    ms += workOn(isRecording ? Math.min(RECORDING_BYTES_MAX, length * swells) : length, privacy);
  }
  return ms;
}

/**
 * Whether the work on an entry may take so long that others would wait for it: its frame holds no
 * other entry, and the processor decodes it beside its stream. What a recording without scrubbing
 * inflates to beyond the usual has a bound of its own (inflation-budgets.ts).
 */
export const isHeavy = (entry: QueuedWork): boolean =>
  workWith(entry, isScrubbed(entry.privacy) ? RECORDING_SWELLS_MAX : RECORDING_SWELLS) > HEAVY_ENTRY_MS;

/** The work on an entry for which others wait, as ingest sees it. */
export const workOf = (entry: QueuedWork): number =>
  Math.min(isHeavy(entry) ? HEAVY_OWES_MS : HEAVY_ENTRY_MS, workWith(entry, RECORDING_SWELLS));

export type WorkSharesOptions = {
  link: NatsLink;
  clock: Pick<Clock, 'monotonic'>;
  /** Workers of this machine. */
  workers: number;
  /** Whether there is another project. */
  isShared: () => boolean;
};

/** `price`: what a millisecond of estimated work costs the project, from `at` on, monotonic ms. */
type Named = { price: number; at: number };

/** A worker's side. */
export class WorkShares {
  readonly #clock: Pick<Clock, 'monotonic'>;
  readonly #freeMs: number;
  readonly #isShared: () => boolean;
  readonly #debts = new Debts();
  readonly #named = new Map<string, Named>();

  constructor({ link, clock, workers, isShared }: WorkSharesOptions) {
    this.#clock = clock;
    this.#freeMs = WORK_FREE_MS / Math.min(workers, WORKERS_SHARING_FREE_MAX);
    this.#isShared = isShared;
    link.subscribe(HEAVY_SUBJECT, ({ data }) => this.#rest(Buffer.from(data).toString()));
  }

  /** Whether the project may queue more. */
  allows(projectId: string): boolean {
    return this.#debts.of(projectId, this.#clock.monotonic()) <= this.#freeMs || !this.#isShared();
  }

  /** @param ms of {@link workOf} @returns what the project owes for it: see {@link takeBack} */
  add(projectId: string, ms: number): number {
    const now = this.#clock.monotonic();
    const owed = ms * this.#priceOf(projectId, now);
    this.#debts.add(projectId, owed, now);
    return owed;
  }

  /** The entry is not queued after all. */
  takeBack(projectId: string, owed: number): void {
    this.#debts.add(projectId, -owed, this.#clock.monotonic());
  }

  /** Lets a named project rest. Its price doubles, unless it was named a moment ago. */
  #rest(projectId: string): void {
    const now = this.#clock.monotonic();
    const before = this.#named.get(projectId);
    const isAgain = before !== undefined && now - before.at < 3 * WORK_REST_MS;
    const price = Math.min(WORK_PRICE_MAX, this.#priceOf(projectId, now) * (isAgain ? 1 : 2));
    this.#named.set(projectId, { price, at: now });
    const owes = this.#debts.of(projectId, now);
    this.#debts.add(projectId, Math.max(0, this.#freeMs + WORK_REST_MS - owes), now);
  }

  #priceOf(projectId: string, now: number): number {
    const named = this.#named.get(projectId);
    if (!named) return 1;
    const price = named.price / 2 ** Math.floor((now - named.at) / WORK_PRICE_HALVED_MS);
    if (price > 1) return price;
    this.#named.delete(projectId);
    return 1;
  }
}
