/**
 * The soak: SDK-shaped traffic at 70 % of what the stand takes, for minutes, while small faults strike; every process is watched.
 *
 *     as fast as answers come, until everything is stored → capacity
 *     70 % of it, open loop, with deaths and blips → trends are fitted to the second half, which has blips alone
 *     drained → what was told against what was stored (counted every few seconds, then removed) and counted as usage
 */
import { setTimeout as pause } from 'node:timers/promises';
import { seededRandom } from '../../../bench/random.ts';
import { SCENARIOS } from '../../../bench/system/scenarios.ts';
import type { Target } from '../../../bench/workload.ts';
import { ProjectStore } from '../../../src/projects/project-store.ts';
import { REGISTRY_MS_MAX } from '../../support/system.ts';
import type { Scene } from '../fault.ts';
import { Stand } from '../stand.ts';
import { usageOf } from '../usage.ts';
import { strikeBlips } from './blips.ts';
import { type StoredCount, StoredCounter } from './count-stored.ts';
import { runTraffic } from './traffic.ts';
import { type Held, type Lag, type Life, Watch } from './watch.ts';

const MINUTE_MS = 60_000;
const SHARE = 0.7;
const FULL_LOAD_MS = 20_000;
/** Without a fault, at the end. */
const LAST_MS = 15_000;
const COUNT_EVERY_MS = 5_000;
/** Streams bear what comes while a processor restarts. */
const STREAM_BYTES = 1024 ** 3;

type Traffic = Awaited<ReturnType<typeof runTraffic>>;
type Found = { stored: StoredCount; usage: number; deadLetters: number };

export type SoakReport = {
  minutes: number;
  seed: number;
  /** Envelopes a second, from the first request until all is stored. */
  capacity: number;
  rate: number;
  answers: Traffic;
  struck: Record<string, number>;
  lives: readonly Life[];
  lags: readonly Lag[];
  held: readonly Held[];
  /** Trends are fitted to what is after it. */
  fittedFrom: number;
  drainedSec: number | undefined;
  /** Over all loads. */
  told: { accepted: number; refused: number; unknown: number };
  broken: string[];
} & Found;

type Say = (line: string) => void;
export type SoakOptions = { minutes: number; seed: number; say: Say };

async function createProjects(stand: Stand): Promise<Target[]> {
  const [canonical] = SCENARIOS;
  const store = await ProjectStore.open(stand.link);
  const targets: Target[] = [];
  for (const wanted of canonical?.projects ?? []) {
    const { id, key } = await store.create(wanted);
    targets.push({ id, key });
  }
  await pause(REGISTRY_MS_MAX);
  return targets;
}

export async function soak(options: SoakOptions): Promise<SoakReport> {
  const stand = await Stand.start({ maxBytes: STREAM_BYTES, witness: false });
  try {
    const targets = await createProjects(stand);
    return await new Soak(stand, targets, options).run();
  } finally {
    await stand.close();
  }
}

class Soak {
  readonly #stand: Stand;
  readonly #targets: readonly Target[];
  readonly #options: SoakOptions;
  readonly #stored: StoredCounter;

  constructor(stand: Stand, targets: readonly Target[], options: SoakOptions) {
    this.#stand = stand;
    this.#targets = targets;
    this.#options = options;
    this.#stored = new StoredCounter(stand.backing.sinkDir);
  }

  async run(): Promise<SoakReport> {
    const { minutes, seed, say } = this.#options;
    const { capacity, answers: first } = await this.#capacity();
    const rate = Math.round(SHARE * capacity);
    say(`capacity ${Math.round(capacity)} envelopes/s; ${minutes} minutes at ${rate}/s`);
    const watch = new Watch(this.#stand);
    const durationMs = minutes * MINUTE_MS;
    const [answers, struck] = await Promise.all([
      this.#traffic({ durationMs, rate, part: 2 }),
      this.#strike(durationMs),
      this.#countFor(durationMs),
    ]);
    await watch.stop();
    const drainedSec = await this.#stand.queue.drained();
    say(`loaded, processed after ${drainedSec?.toFixed(1)} s; counting the rest`);
    const { lives, lags, held } = watch;
    const told = sumOf([...first, answers]);
    const found = await this.#evidence();
    const fittedFrom = minutes / 2;
    const head = {
      minutes,
      seed,
      capacity,
      rate,
      answers,
      struck,
      lives,
      lags,
      held,
      fittedFrom,
      drainedSec,
    };
    return { ...head, told, ...found, broken: judgeSoak(told, { ...found, drainedSec }) };
  }

  #traffic(how: { durationMs: number; rate?: number; part: number }): Promise<Traffic> {
    return runTraffic({ ports: this.#stand.ports, targets: this.#targets, seed: this.#options.seed, ...how });
  }

  async #capacity(): Promise<{ capacity: number; answers: Traffic[] }> {
    const cold = await this.#traffic({ durationMs: FULL_LOAD_MS / 4, part: 0 });
    await this.#stand.queue.drained();
    const began = performance.now();
    const warm = await this.#traffic({ durationMs: FULL_LOAD_MS, part: 1 });
    await this.#stand.queue.drained();
    return { capacity: (warm.accepted / (performance.now() - began)) * 1000, answers: [cold, warm] };
  }

  #strike(durationMs: number): Promise<Record<string, number>> {
    const now = performance.now();
    const scene: Scene = {
      stand: this.#stand,
      random: seededRandom(this.#options.seed),
      excuses: { redisLosses: [], redisCuts: [], clockSteps: 0 },
      flood: () => {
        throw new Error('a soak has no floods');
      },
    };
    return strikeBlips(scene, { until: now + durationMs - LAST_MS, deathsUntil: now + durationMs / 2 });
  }

  async #countFor(durationMs: number): Promise<void> {
    const until = performance.now() + durationMs;
    while (performance.now() < until) {
      await this.#stored.take();
      await pause(COUNT_EVERY_MS);
    }
  }

  async #evidence(): Promise<Found> {
    const projects = Object.fromEntries(this.#targets.map(({ id }) => [id, { id }]));
    const usages = await usageOf(this.#stand, projects);
    return {
      stored: await this.#stored.take(),
      usage: Object.values(usages).reduce((sum, count) => sum + count, 0),
      deadLetters: await this.#stand.queue.deadLetters(new Set(Object.keys(projects))),
    };
  }
}

const sumOf = (all: readonly Traffic[]): SoakReport['told'] => ({
  accepted: all.reduce((sum, { accepted }) => sum + accepted, 0),
  refused: all.reduce((sum, { refused }) => sum + refused, 0),
  unknown: all.reduce((sum, { unknown }) => sum + unknown, 0),
});

/** Sentences for what was promised and did not hold. */
export function judgeSoak(
  { accepted, refused, unknown }: SoakReport['told'],
  { stored, usage, deadLetters, drainedSec }: Found & { drainedSec: number | undefined },
): string[] {
  const broken: string[] = [];
  if (drainedSec === undefined) broken.push('not everything is processed');
  if (stored.envelopes < accepted) broken.push(`${accepted} were told 200, ${stored.envelopes} are stored`);
  if (stored.envelopes > accepted + unknown)
    broken.push(`${stored.envelopes} are stored, only ${accepted + unknown} can be`);
  if (stored.double > 0) broken.push(`${stored.double} items are stored twice`);
  if (usage < accepted) broken.push(`usage ${usage} is lower than ${accepted} 200s`);
  // A 503 may come after the increment; it is taken back once, and that once may be lost.
  if (usage > accepted + unknown + refused)
    broken.push(`usage ${usage}, but only ${accepted + unknown + refused} can be counted`);
  if (deadLetters > 0) broken.push(`${deadLetters} dead letters`);
  return broken;
}
