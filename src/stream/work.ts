/**
 * Estimates how much work projects make for the processors, so that one project's work does not
 * delay the others.
 *
 * Frames are processed in the order in which they came, and one frame may hold entries of several
 * projects. So queued entries cannot be reordered, but new ones can be refused. Each entry adds to
 * its project's debt the milliseconds that it takes of a processor's time. Each millisecond that
 * passes pays off one. There are two bounds:
 *
 * - At a worker: a project that owes more than the worker's part of WORK_FREE_MS gets 503, unless
 *   the registry has only this project.
 * - At a processor: an item adds twice its work to the debt, so that a project whose work takes
 *   less than half of the processor's time never owes much. While the frames that the processor
 *   handles are older than WORK_BEHIND_MS, it names each project that owed more than WORK_HEAVY_MS
 *   when its frame was stored. All workers refuse a named project for WORK_REST_MS. They also
 *   double its *price*, the factor by which they count its work from then on. The price falls while
 *   no processor names the project.
 *
 * The work on an item is estimated from its inflated size. When scrubbing takes longer, the
 * measured time counts, but at most SCRUBBED_TIMES_MAX times the estimate: a machine that stands
 * still is not the project's fault.
 *
 * The first bound does not know how fast the processors are. The second makes up for slow
 * processors and for many workers.
 *
 * An entry that takes long by itself, such as a scrubbed recording, would delay others all the
 * same. Such an entry ({@link isHeavy}) is decoded beside the frames behind it
 * (processor/heavy-frames.ts).
 */
import type { Clock } from '../lib/clock.ts';
import { Debts } from '../lib/debts.ts';
import { type ItemType, isOtlp } from '../lib/item-types.ts';
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

/**
 * Subject on which processors tell workers which project makes the processors late. It is a plain
 * subject without a stream: if a message is lost and the project goes on, another message follows.
 */
export const HEAVY_SUBJECT = 'sluice.heavy';

/**
 * The cost of an item, of each byte that is only stored, and of each byte that is scrubbed, in
 * milliseconds of a slow core's time. The last was measured on a text with an e-mail address in
 * every string.
 */
const ITEM_MS = 0.01;
const PLAIN_MS_PER_BYTE = 10 / (1024 * 1024);
const SCRUBBED_MS_PER_BYTE = 120 / (1024 * 1024);
/**
 * The costliest texts, JSON in strings with addresses, take this many times SCRUBBED_MS_PER_BYTE.
 */
const SCRUBBED_TIMES_MAX = 2.5;
/**
 * Factors by which a recording inflates: the usual one, and the greatest that deflate allows.
 * Ingest cannot know the true factor, because the recording is compressed.
 */
const RECORDING_SWELLS = 8;
const RECORDING_SWELLS_MAX = 1_032;
/**
 * Factor by which an OTLP request is assumed to grow when it becomes rows. Requests with spans of
 * SDKs grow 5 to 15 times. processor/decode/otlp/request.ts makes no rows beyond its bounds.
 */
const OTLP_SWELLS = 16;

const isScrubbed = (privacy: Privacy | undefined): boolean =>
  privacy !== undefined && privacy.scrub.length + privacy.names.length > 0;

/**
 * Estimates the work on an item's JSON, in ms. Without `privacy` nothing is scrubbed, and the item
 * is only stored.
 * @param scrubMs how long scrubbing took, once that is known
 */
export function workOn(bytes: number, privacy?: Privacy, scrubMs = 0): number {
  if (!isScrubbed(privacy)) return ITEM_MS + bytes * PLAIN_MS_PER_BYTE;
  const ms = bytes * SCRUBBED_MS_PER_BYTE;
  return ITEM_MS + Math.max(ms, Math.min(scrubMs, ms * SCRUBBED_TIMES_MAX));
}

type QueuedItem = { type: ItemType; length: number };
type QueuedWork = { items: readonly QueuedItem[]; privacy?: Privacy | undefined };

function workWith({ items, privacy }: QueuedWork, swells: number): number {
  let ms = 0;
  for (const { type, length } of items) {
    const times = type === 'replay_recording' ? swells : isOtlp(type) ? OTLP_SWELLS : 1;
    ms += workOn(times === 1 ? length : Math.min(RECORDING_BYTES_MAX, length * times), privacy);
  }
  return ms;
}

/**
 * Whether the work on an entry may take so long that other projects would wait for it. If so, it
 * has a frame of its own, which the processor decodes beside the frames behind it. A recording that
 * is scrubbed counts with the greatest size that it may inflate to. Any other recording counts with
 * the usual size, because inflation-budgets.ts bounds how far it inflates.
 */
export const isHeavy = (entry: QueuedWork): boolean =>
  workWith(entry, isScrubbed(entry.privacy) ? RECORDING_SWELLS_MAX : RECORDING_SWELLS) > HEAVY_ENTRY_MS;

/**
 * The debt, in ms, that an entry adds to its project at ingest. A heavy entry adds at most
 * HEAVY_OWES_MS, because others wait for it much less than its decoding takes. Any other entry adds
 * at most HEAVY_ENTRY_MS.
 */
export const workOf = (entry: QueuedWork): number =>
  Math.min(isHeavy(entry) ? HEAVY_OWES_MS : HEAVY_ENTRY_MS, workWith(entry, RECORDING_SWELLS));

export type WorkSharesOptions = {
  link: NatsLink;
  clock: Pick<Clock, 'monotonic'>;
  /** Number of workers on this machine. */
  workers: number;
  /** Whether there may be more than one project. A project with an alias counts as several. */
  isShared: () => boolean;
};

/**
 * `at`: when a processor last named the project, monotonic ms. `price`: the debt, in ms, that a
 * millisecond of estimated work added at that time; it falls from then on.
 */
type Named = { price: number; at: number };

/** The worker's side: the debts of projects, and the projects that processors have named. */
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

  /** Whether the project may queue another entry. */
  allows(projectId: string): boolean {
    return this.#debts.of(projectId, this.#clock.monotonic()) <= this.#freeMs || !this.#isShared();
  }

  /**
   * Adds work to a project's debt.
   * @param ms from {@link workOf}
   * @returns the debt that was added, for {@link takeBack}
   */
  add(projectId: string, ms: number): number {
    const now = this.#clock.monotonic();
    const owed = ms * this.#priceOf(projectId, now);
    this.#debts.add(projectId, owed, now);
    return owed;
  }

  /** Takes back a debt of {@link add}, because the entry was not queued after all. */
  takeBack(projectId: string, owed: number): void {
    this.#debts.add(projectId, -owed, this.#clock.monotonic());
  }

  /**
   * Raises the debt of a project that a processor has named, so that this worker refuses it for
   * WORK_REST_MS. Its price doubles, unless a processor named it within the last 3 × WORK_REST_MS.
   */
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
