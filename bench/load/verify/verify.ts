/**
 * `--verify`: checks that each envelope that was answered 200 is stored once and counted.
 *
 * The sink's tally says when everything has arrived; then each id is looked up. A request that was
 * answered 500 or not at all may be stored or not. If the sink cannot be read, the reads are
 * repeated until the time of `--verify-wait` is over.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { ACCEPTED, EMPTY, type Ledger, REFUSED, UNKNOWN } from './ledger.ts';
import type { StoredReader } from './stored.ts';
import type { UsageOf } from './usage.ts';

export type Verification = {
  /** Envelopes that were answered 200 with usage headers: they must be stored and counted. */
  accepted: number;
  /** Envelopes that were answered 200 without usage headers: nothing of them was to be stored. */
  empty: number;
  refused: number;
  /** Envelopes that got a 500 or no answer: they may be stored or not. */
  unknown: number;
  /** Accepted envelopes that are in the sink. */
  stored: number;
  unknownStored: number;
  lost: number;
  /**
   * Accepted envelopes by kind, for each kind that the server seems to ignore: it stored none of
   * this kind, but stored others. Only for servers other than sluice.
   */
  ignored: Record<string, number>;
  /** Surplus copies of items in the sink. */
  double: number;
  /**
   * Accepted envelopes that were not yet in the sink when the time of `--late` had passed after the
   * end, but came later.
   */
  late: number;
  /** Envelopes that were refused but are in the sink. */
  refusedStored: number;
  /**
   * Envelopes that were answered 200 without usage headers but are in the sink. A server in
   * development does this when its Redis is away.
   */
  emptyStored: number;
  /** Growth of the sink's tally during the run; undefined when the sink keeps no tally. */
  tallied: number | undefined;
  /**
   * Growth of the projects' usage during the run; undefined when it was not asked for or is
   * unknown.
   */
  usage: number | undefined;
  waitedMs: number;
  /** Ids of some lost envelopes. */
  lostIds: readonly string[];
  /**
   * A sentence for each broken promise; empty when everything is stored and counted as promised.
   */
  problems: readonly string[];
  /** A sentence for each thing that could not be compared. */
  notes: readonly string[];
};

export type VerifyOptions = {
  reader: StoredReader;
  ledger: Ledger;
  waitMs: number;
  lateMs: number;
  /**
   * Reads the usage of the projects with these ids; undefined when neither --api nor --admin is
   * known.
   */
  usage: ((ids: readonly string[]) => Promise<UsageOf>) | undefined;
  /** Projects as the DSNs name them: by ids or aliases. */
  targets: readonly string[];
  say: (line: string) => void;
};

const POLL_MS = 500;
const RESCAN_MS = 2_000;
/** The clocks of the sink's machine and of this one differ by less than this. */
const CLOCKS_MS = 300_000;
const LOST_IDS_SHOWN = 10;
const MASK_ITEMS = 32;

const sumOf = (counts: ReadonlyMap<string, number>, ids: ReadonlySet<string>): number =>
  [...counts].reduce((sum, [id, count]) => (ids.has(id) ? sum + count : sum), 0);

/** The items of this run that scans of the sink have found. */
class Findings {
  readonly #ledger: Ledger;
  /**
   * A mask for each request, by its number, with a bit for each of the first items of its envelope.
   * The last bit stands for all further items.
   */
  readonly #masks: Uint32Array;
  readonly #further = new Set<string>();
  readonly #mintedFound = new Set<string>();
  readonly projects = new Set<string>();
  double = 0;

  constructor(ledger: Ledger) {
    this.#ledger = ledger;
    this.#masks = new Uint32Array(ledger.size);
  }

  add({
    projectId,
    eventId,
    index,
    copies,
  }: {
    projectId: string;
    eventId: string;
    index: number;
    copies: number;
  }): void {
    const number = this.#ledger.numberOf(eventId);
    const isMinted = number === undefined && this.#ledger.minted.has(eventId);
    if (number === undefined && !isMinted) return;
    if (projectId !== '') this.projects.add(projectId);
    this.double += copies - 1;
    if (isMinted) this.#mintedFound.add(eventId);
    if (number !== undefined && index < MASK_ITEMS - 1) this.#mark(number, index);
    else this.#markFurther(`${eventId}:${index}`, number);
  }

  #mark(number: number, index: number): void {
    const mask = this.#masks[number] as number;
    const bit = 1 << index;
    if ((mask & bit) !== 0) this.double++;
    this.#masks[number] = mask | bit;
  }

  #markFurther(item: string, number: number | undefined): void {
    if (this.#further.has(item)) this.double++;
    this.#further.add(item);
    if (number !== undefined) this.#masks[number] = (this.#masks[number] as number) | (1 << (MASK_ITEMS - 1));
  }

  /**
   * Counts the envelopes that are in the sink, by what the server answered for them, and those that
   * are lost.
   */
  counts(): Pick<
    Verification,
    'stored' | 'unknownStored' | 'refusedStored' | 'emptyStored' | 'lost' | 'lostIds' | 'ignored'
  > {
    const there = [0, 0, 0, 0, 0];
    const missing = new Map<number, { count: number; ids: string[] }>();
    const storedKinds = new Set<number>();
    const miss = (kind: number, id: string): void => {
      const found = missing.get(kind) ?? { count: 0, ids: [] };
      found.count++;
      if (found.ids.length < LOST_IDS_SHOWN) found.ids.push(id);
      missing.set(kind, found);
    };
    for (let number = 0; number < this.#masks.length; number++) {
      const told = this.#ledger.told(number);
      const kind = this.#ledger.kindOf(number);
      if (this.#masks[number] !== 0) {
        there[told] = (there[told] as number) + 1;
        storedKinds.add(kind);
      } else if (told === ACCEPTED) miss(kind, this.#ledger.idOf(number));
    }
    for (const [id, kind] of this.#ledger.minted)
      if (this.#mintedFound.has(id)) storedKinds.add(kind);
      else miss(kind, id);
    // A server that has stored nothing at all does not ignore kinds: everything is lost.
    const canIgnore = this.#ledger.isAnyServer && storedKinds.size > 0;
    const isIgnored = (kind: number): boolean => canIgnore && !storedKinds.has(kind);
    const lost = [...missing].filter(([kind]) => !isIgnored(kind)).map(([, found]) => found);
    return {
      stored: (there[ACCEPTED] as number) + this.#mintedFound.size,
      unknownStored: there[UNKNOWN] as number,
      refusedStored: there[REFUSED] as number,
      emptyStored: there[EMPTY] as number,
      lostIds: lost.flatMap(({ ids }) => ids).slice(0, LOST_IDS_SHOWN),
      lost: lost.reduce((sum, { count }) => sum + count, 0),
      ignored: Object.fromEntries(
        [...missing]
          .filter(([kind]) => isIgnored(kind))
          .map(([kind, { count }]) => [this.#ledger.kinds[kind] ?? `${kind}`, count]),
      ),
    };
  }
}

export class Verifier {
  readonly #options: VerifyOptions;
  readonly #startedAt = new Date();
  readonly #tallyBefore: ReadonlyMap<string, number> | undefined;
  readonly #usageBefore: UsageOf | undefined;
  readonly #notes: string[] = [];
  /** When the last answer came. */
  #endedAt = 0;

  private constructor(
    options: VerifyOptions,
    tally: ReadonlyMap<string, number> | undefined,
    usage: UsageOf | undefined,
  ) {
    this.#options = options;
    this.#tallyBefore = tally;
    this.#usageBefore = usage;
  }

  /**
   * Reads the tally and the usage. To be called before the first request.
   * @throws when the sink cannot be read
   */
  static async start(options: VerifyOptions): Promise<Verifier> {
    const { reader } = options;
    const tally = await reader.tally?.();
    // This scan shows before the run whether the sink can be read.
    if (!tally) await reader.scan(new Date(), () => undefined);
    const usage = await options.usage?.(options.targets).catch(() => undefined);
    return new Verifier(options, tally, usage);
  }

  /**
   * Waits until the sink has all accepted envelopes, and compares. To be called after the last
   * answer.
   * @throws the error of the sink, when it cannot be read until the end of --verify-wait
   */
  async finish(): Promise<Verification> {
    const { ledger, say, reader } = this.#options;
    this.#endedAt = performance.now();
    say(`waits until ${ledger.count(ACCEPTED)} accepted envelopes are in the sink`);
    let late = await this.#untilTallied();
    const since = new Date(this.#startedAt.getTime() - CLOCKS_MS);
    let findings = new Findings(ledger);
    const look = async (): Promise<void> => {
      if (!reader.tellsOnce) findings = new Findings(ledger);
      await reader.scan(since, (item) => findings.add(item));
    };
    for (;;) {
      await this.#read(look);
      const counts = findings.counts();
      const waitedMs = this.#waitedMs;
      if (waitedMs >= this.#lateMs) late ??= counts.lost;
      // Envelopes of a kind of which nothing is stored may come later, so the wait goes on.
      const isWhole = counts.lost === 0 && Object.keys(counts.ignored).length === 0;
      if (isWhole || this.#isOver) return this.#judge(findings, counts, { late, waitedMs });
      await sleep(RESCAN_MS);
    }
  }

  /** Repeats a failed read until the time is over, because an outage of the sink may pass. */
  async #read<T>(read: () => Promise<T>): Promise<T> {
    for (let isSaid = false; ; isSaid = true) {
      try {
        return await read();
      } catch (error) {
        if (this.#isOver) throw error;
        if (!isSaid) this.#options.say(`the sink cannot be read, and is read again: ${reasonOf(error)}`);
        await sleep(POLL_MS);
      }
    }
  }

  /**
   * Waits until the tally has grown by the number of accepted envelopes, or the time of
   * --verify-wait is over.
   * @returns how many envelopes were missing when the time of --late was over, 0 when none;
   * undefined when the sink keeps no tally
   */
  async #untilTallied(): Promise<number | undefined> {
    const { ledger } = this.#options;
    const wanted = ledger.count(ACCEPTED);
    let late: number | undefined;
    for (;;) {
      // The growth is of all projects, so it may contain envelopes of other clients. The scan of
      // ids then shows what is missing.
      const grown = await this.#tallyGrowth();
      if (!grown) return undefined;
      const missing = Math.max(0, wanted - [...grown.values()].reduce((sum, count) => sum + count, 0));
      if (this.#waitedMs >= this.#lateMs) late ??= missing;
      if (missing === 0 || this.#isOver) return late ?? 0;
      await sleep(POLL_MS);
    }
  }

  async #tallyGrowth(): Promise<Map<string, number> | undefined> {
    const { reader } = this.#options;
    const tally = await this.#read(async () => reader.tally?.());
    return tally && growthOf(tally, this.#tallyBefore ?? new Map());
  }

  /** The time that the sink itself holds items back does not make them late. */
  get #lateMs(): number {
    return this.#options.lateMs + (this.#options.reader.delayMs ?? 0);
  }

  /** Whether the time is over for missing envelopes, and for a sink that cannot be read. */
  get #isOver(): boolean {
    return this.#waitedMs > this.#options.waitMs + (this.#options.reader.delayMs ?? 0);
  }

  get #waitedMs(): number {
    return performance.now() - this.#endedAt;
  }

  async #judge(
    findings: Findings,
    counts: ReturnType<Findings['counts']>,
    { late = 0, waitedMs }: { late: number | undefined; waitedMs: number },
  ): Promise<Verification> {
    const { ledger, targets } = this.#options;
    // Items in the sink have the ids of projects. DSNs may have aliases.
    const ids = new Set(findings.projects.size > 0 ? findings.projects : targets);
    const grown = await this.#tallyGrowth();
    const found = {
      accepted: ledger.count(ACCEPTED),
      empty: ledger.count(EMPTY),
      refused: ledger.count(REFUSED),
      unknown: ledger.count(UNKNOWN),
      ...counts,
      double: findings.double,
      late: Math.max(0, late - counts.lost),
      tallied: grown && sumOf(grown, ids),
      usage: await this.#usage([...ids]),
      waitedMs,
    };
    if (!grown && !ledger.isAnyServer) this.#notes.push('no tally was compared: this sink keeps none');
    if (counts.emptyStored > 0)
      this.#notes.push(`${counts.emptyStored} are stored that were answered 200 without usage headers`);
    return { ...found, problems: problemsOf(found), notes: this.#notes };
  }

  async #usage(ids: readonly string[]): Promise<number | undefined> {
    if (this.#options.ledger.isAnyServer) return undefined;
    const before = this.#usageBefore;
    if (!this.#options.usage || !before) {
      this.#notes.push('the usage was not compared: no --api or --admin answers');
      return undefined;
    }
    try {
      const after = await this.#options.usage(ids);
      // Without a tally it is unknown whether the project had usage before, so the code assumes
      // that it had.
      const tallied = (id: string): number => (this.#tallyBefore ? (this.#tallyBefore.get(id) ?? 0) : 1);
      const isNew = (id: string): boolean => !before.has(id) && tallied(id) > 0;
      if (ids.some((id) => !after.has(id) || isNew(id)))
        throw new Error('--admin knows only the busiest projects since ingest started; --api knows all');
      return sumOf(growthOf(after, before), new Set(ids));
    } catch (error) {
      this.#notes.push(`the usage was not compared: ${(error as Error).message}`);
      return undefined;
    }
  }
}

/**
 * Returns why the sink cannot be read. The error has no message when all addresses of a host
 * failed.
 */
export const reasonOf = (error: unknown): string => {
  const { message, code, name } = error as NodeJS.ErrnoException;
  return message || code || name;
};

function growthOf(
  after: ReadonlyMap<string, number>,
  before: ReadonlyMap<string, number>,
): Map<string, number> {
  return new Map([...after].map(([id, count]) => [id, count - (before.get(id) ?? 0)]));
}

type Found = Omit<Verification, 'problems' | 'notes'>;

export function problemsOf(found: Found): string[] {
  const { accepted, unknown, lost, double, refusedStored, tallied, usage } = found;
  const problems: string[] = [];
  if (lost > 0)
    problems.push(
      `${lost} of ${accepted} envelopes that were told 200 are not in the sink (${found.lostIds.join(', ')})`,
    );
  if (double > 0) problems.push(`${double} items are in the sink more than once`);
  if (refusedStored > 0) problems.push(`${refusedStored} envelopes that were refused are in the sink`);
  if (tallied !== undefined && tallied < accepted)
    problems.push(`the sink's tally grew by ${tallied}, though ${accepted} envelopes were accepted`);
  if (tallied !== undefined && tallied > accepted + unknown)
    problems.push(
      `the sink's tally grew by ${tallied}, though at most ${accepted + unknown} envelopes were accepted: do others send to these projects?`,
    );
  if (usage !== undefined && usage < accepted)
    problems.push(`the usage grew by ${usage}, though ${accepted} envelopes were accepted`);
  return problems;
}

/** Makes a line for the terminal. */
export function verificationText(found: Verification): string {
  const { accepted, empty, refused, unknown, stored, lost, double, late } = found;
  const ignored = Object.entries(found.ignored).map(([kind, count]) => `${count} of ${kind}`);
  const grown = [
    ...(found.tallied === undefined ? [] : [`tally +${found.tallied}`]),
    ...(found.usage === undefined ? [] : [`usage +${found.usage}`]),
  ].join(', ');
  return [
    `verify: told 200: ${accepted}${empty > 0 ? `, and ${empty} of which nothing is stored` : ''}, refused ${refused}, unknown ${unknown}`,
    `        stored ${stored}, lost ${lost}, double ${double}, late ${late}${grown === '' ? '' : `; ${grown}`}`,
    ...(ignored.length > 0 ? [`        ignored by this server: ${ignored.join(', ')}`] : []),
    ...found.notes.map((note) => `        ${note}`),
  ].join('\n');
}
