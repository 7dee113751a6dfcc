/** What the limiter promises, against the system as it runs in production. Each show gives lines to print and whether it holds. */
import { freePort } from '../../src/commands/dev/servers.ts';
import type { NewProject } from '../../src/projects/project-store.ts';
import { runFresh, startFresh } from '../fresh.ts';
import { Harness, type HarnessOptions } from '../harness.ts';
import type { LoadOptions } from '../load/options.ts';
import { cpuUs } from '../processes.ts';
import { growth } from '../scrape.ts';
import { CANONICAL_MIX, type Target } from '../workload.ts';
import { type Testimony, Witness } from './witness.ts';

export type Stage = Pick<HarnessOptions, 'bins' | 'dist' | 'streamMaxBytes'> & {
  seed: number;
  smoke: boolean;
  /** Limits to show; empty: all. */
  limits: readonly number[];
};
export type Show = (stage: Stage) => Promise<{ lines: string[]; holds: boolean }>;

const WORKERS = 4;
const CONNECTIONS = 256;
/** Below this a run says more about the pauses between requests than about the limiter. */
const RATE_MIN = 20;
const FLOOD = 20;
/** Answers other than 200 and 429 that a stall of this machine may cost (a Redis that does not answer for 700 ms is away). */
const STRAY_MAX = 0.005;
const QUOTA = 1_000_000_000;

const project = (changes: Partial<NewProject> = {}): NewProject => ({
  plan: 'Pro',
  quota: QUOTA,
  overage: false,
  filters: [],
  allowedOrigins: [],
  ...changes,
});

/** Runs `play` with a fresh system and projects in it. */
async function withSystem<T>(
  stage: Stage,
  { workers, projects }: { workers: number; projects: readonly NewProject[] },
  play: (harness: Harness, targets: Target[]) => Promise<T>,
): Promise<T> {
  const harness = await Harness.start({ ...stage, workers });
  try {
    return await play(harness, await harness.createProjects(projects));
  } finally {
    await harness.stop();
  }
}

async function callsDuring<T>(harness: Harness, play: () => Promise<T>) {
  const before = await harness.metrics();
  const result = await play();
  const calls = growth(before, await harness.metrics(), {
    name: 'sluice_redis_calls_total',
    label: 'script',
  });
  return { result, calls, sum: Object.values(calls).reduce((all, count) => all + count, 0) };
}

const cells = (values: readonly (string | number)[]): string =>
  values.map((value) => `${value}`.padStart(12)).join('');
const others = ({ other, implausible }: Testimony): string[] => [
  ...Object.entries(other).map(([what, count]) => `${count} times ${what}`),
  ...implausible,
];

// ---- Windows ----

export const windows: Show = async (stage) => {
  const durationMs = stage.smoke ? 3_000 : 120_000;
  const limits = stage.limits.length > 0 ? stage.limits : [60, 1_000, 30_000, 100_000];
  const lines = [
    `${WORKERS} workers; of each project twice the limit is asked for over ${CONNECTIONS} connections during ${durationMs / 1000} s, all at once`,
    'most in 60 s: asked and answered within any 60 s; by answer: 200s in any 60 s; fewest: in any 60 s within the run, where a burst',
    'that comes back half a second later than a minute leaves a gap; share: of the limit, over the whole run',
    cells(['limit', 'asked', 'admitted', 'refused', 'most in 60 s', 'by answer', 'fewest', 'share']),
  ];
  const projects = limits.map((limit) => project({ rateLimit: limit }));
  const testimonies = await withSystem(stage, { workers: WORKERS, projects }, ({ url }, targets) =>
    Promise.all(
      limits.map((limit, i) =>
        new Witness({
          url,
          target: targets[i] as Target,
          limit,
          connections: CONNECTIONS,
          ratePerSec: Math.max(RATE_MIN, limit / 30),
          durationMs,
          seed: stage.seed + i,
        }).run(),
      ),
    ),
  );
  let holds = true;
  testimonies.forEach((said, i) => {
    const limit = limits[i] as number;
    const share = said.admitted / ((limit * durationMs) / 60_000);
    const stray = Object.values(said.other).reduce((sum, count) => sum + count, 0);
    const { asked, admitted, refused, insideMax, answeredMax, answeredMin } = said;
    const figures = [limit, asked, admitted, refused, insideMax, answeredMax, answeredMin];
    lines.push(cells([...figures, `${(share * 100).toFixed(1)} %`]), ...others(said));
    holds &&= insideMax <= limit && said.implausible.length === 0 && stray <= STRAY_MAX * asked;
    holds &&= stage.smoke || share >= 0.98;
  });
  return { lines, holds };
};

// ---- A flood ----

export const flood: Show = async (stage) => {
  const phaseMs = stage.smoke ? 2_000 : 62_000;
  const limits = stage.limits.length > 0 ? stage.limits : [1_000, 30_000];
  const lines = [
    `${WORKERS} workers, ${CONNECTIONS} connections, ${FLOOD} times the limit; Redis calls per second and worker beyond one per 200`,
    cells(['limit', 'asked/s', 'refused', 'first minute', 'afterwards']),
  ];
  let holds = true;
  for (const limit of limits) {
    const ratePerSec = (FLOOD * limit) / 60;
    await withSystem(
      stage,
      { workers: WORKERS, projects: [project({ rateLimit: limit })] },
      async (harness, [target]) => {
        const phase = () =>
          callsDuring(harness, () =>
            runFresh('load', {
              url: harness.url,
              targets: [target as Target],
              mix: { event: 1 },
              encoding: 'none',
              rate: ratePerSec,
              connections: CONNECTIONS,
              warmupMs: 0,
              durationMs: phaseMs,
              seed: stage.seed,
              expected: [200, 429],
            }),
          );
        const [first, then] = [await phase(), await phase()];
        // Each request that is admitted may cost the call that counts it. What a flood could drive is the rest.
        const perWorker = ({ sum, result }: typeof first): number =>
          (Math.max(0, sum - (result.statuses[200] ?? 0)) * 1000) / phaseMs / WORKERS;
        const refused = then.result.statuses[429] ?? 0;
        lines.push(
          cells([
            limit,
            then.result.ratePerSec.toFixed(0),
            `${((100 * refused) / Math.max(1, then.result.requests)).toFixed(1)} %`,
            perWorker(first).toFixed(2),
            perWorker(then).toFixed(2),
          ]),
          `             all scripts in the second phase: ${JSON.stringify(then.calls)}`,
          ...then.result.generator.bottleneck,
        );
        holds &&= then.result.failed === 0 && (stage.smoke || perWorker(then) < 5);
      },
    );
  }
  return { lines, holds };
};

// ---- Refusals beside the speed of light ----

const ROUNDS = 3;
const REFUSED_LIMIT = 60;

async function measured(load: LoadOptions, pid: () => number) {
  const before = cpuUs(pid());
  const result = await runFresh('load', load);
  return { rate: result.ratePerSec, us: (cpuUs(pid()) - before) / Math.max(1, result.expectedInAll), result };
}

export const refusals: Show = async (stage) => {
  const lines = [
    'one worker and a bare uWebSockets.js handler in turns, the same requests, closed loop over 64 connections',
    cells(['round', 'refused/s', 'bare/s', 'share', 'refused us', 'bare us', 'share of CPU']),
  ];
  const shares: number[] = [];
  const bare = startFresh('uws', { port: await freePort() });
  try {
    const { port } = await bare.result;
    await withSystem(
      stage,
      { workers: 1, projects: [project({ rateLimit: REFUSED_LIMIT })] },
      async (harness, [target]) => {
        const load = {
          targets: [target as Target],
          mix: { event: 1 },
          encoding: 'none' as const,
          connections: 64,
          warmupMs: stage.smoke ? 100 : 1_000,
          durationMs: stage.smoke ? 300 : 5_000,
          seed: stage.seed,
          expected: [200, 429],
        };
        for (let round = 1; round <= (stage.smoke ? 1 : ROUNDS); round++) {
          const ours = await measuredSystem(harness, { ...load, url: harness.url });
          const theirs = await measured({ ...load, url: `http://127.0.0.1:${port}` }, () => bare.pid);
          shares.push(ours.rate / theirs.rate);
          lines.push(
            cells([
              round,
              ours.rate.toFixed(0),
              theirs.rate.toFixed(0),
              `${((100 * ours.rate) / theirs.rate).toFixed(0)} %`,
              ours.us.toFixed(1),
              theirs.us.toFixed(1),
              `${((100 * theirs.us) / ours.us).toFixed(0)} %`,
            ]),
            ...[...ours.result.generator.bottleneck, ...theirs.result.generator.bottleneck].map(
              (why) => `             ${why}`,
            ),
          );
        }
      },
    );
  } finally {
    await bare.end();
  }
  const median = shares.sort((a, b) => a - b)[Math.floor(shares.length / 2)] ?? 0;
  lines.push(`median ${(median * 100).toFixed(0)} %`);
  return { lines, holds: stage.smoke || median >= 0.6 };
};

async function measuredSystem(harness: Harness, load: LoadOptions) {
  const before = harness.cpu().worker;
  const result = await runFresh('load', load);
  const us = (harness.cpu().worker - before) / Math.max(1, result.expectedInAll);
  return { rate: result.ratePerSec, us, result };
}

// ---- Redis calls without refusals ----

const LIMIT_MAX = 100_000;
const UNLIMITED = 6;
const CALM = [
  {
    name: 'one hot project, free-only',
    most: 0.05,
    even: true,
    projects: () => [project()],
  },
  {
    name: '32 limited projects alike',
    most: 0.05,
    even: true,
    projects: () => Array.from({ length: 32 }, () => project({ rateLimit: LIMIT_MAX })),
  },
  {
    name: '10,000 projects, Zipf',
    most: 0.5,
    even: false,
    projects: (smoke: boolean) =>
      Array.from({ length: smoke ? 100 : 10_000 }, (_, rank) =>
        project(rank < UNLIMITED ? {} : { rateLimit: LIMIT_MAX }),
      ),
  },
];

export const calls: Show = async (stage) => {
  const lines = [
    `one worker, ${CONNECTIONS} connections, closed loop: Redis calls per request while nobody is refused`,
    `${''.padEnd(30)}${cells(['accepted/s', 'refused', 'calls', 'calls/req', 'at most'])}`,
  ];
  let holds = true;
  for (const { name, most, even, projects } of CALM) {
    await withSystem(stage, { workers: 1, projects: projects(stage.smoke) }, async (harness, targets) => {
      const load = {
        url: harness.url,
        targets,
        even,
        mix: CANONICAL_MIX,
        encoding: 'sdk' as const,
        connections: CONNECTIONS,
        warmupMs: 0,
        seed: stage.seed,
        expected: [200, 429],
      };
      await runFresh('load', { ...load, durationMs: stage.smoke ? 200 : 3_000 });
      const { result, sum } = await callsDuring(harness, () =>
        runFresh('load', { ...load, durationMs: stage.smoke ? 400 : 10_000 }),
      );
      const perRequest = sum / Math.max(1, result.expectedInAll);
      const refused = result.statuses[429] ?? 0;
      lines.push(
        `${name.padEnd(30)}${cells([
          result.ratePerSec.toFixed(0),
          refused,
          sum,
          perRequest.toFixed(4),
          most,
        ])}`,
        ...result.generator.bottleneck.map((why) => `             ${why}`),
      );
      holds &&= refused === 0 && result.failed === 0 && (stage.smoke || perRequest <= most);
    });
  }
  return { lines, holds };
};
