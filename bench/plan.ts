/** Which benches a command runs, for how long and in which order. A job is one run of one bench in fresh processes. */

import { freePort } from '../src/commands/dev/servers.ts';
import { canSyncAlways } from './broker.ts';
import { runFresh, startFresh } from './fresh.ts';
import { MICRO_SUITES, type MicroSuite } from './micro/run.ts';
import { type Pair, runPair, type Side } from './pairs.ts';
import { bentoPeers, findBento } from './peers/bento.ts';
import { FASTIFY, installPeers } from './peers/fastify.ts';
import { runPeer } from './peers/run.ts';
import { cpuUs } from './processes.ts';
import type { Finding, UwsRun } from './records.ts';
import { type Durations, runSystem } from './system/run.ts';
import { SCENARIOS, type Scenario, scenarioNamed } from './system/scenarios.ts';

export type Settings = {
  bins: { redis: string; nats: string };
  dist: string;
  seed: number;
  /** Every bench runs this often; rounds go through all benches, so that a slow minute of the machine hits all alike. */
  rounds: number;
  /** Seconds instead of minutes, to see that everything still works; the figures mean nothing. */
  smoke: boolean;
  say(line: string): void;
};
export type Job = { name: string; run(): Promise<Finding> };

/**
 * Until V8 has compiled what a worker runs it costs several times what it does afterwards: on two cores one worker is warm after some eight
 * seconds under load, two after twelve.
 */
export const WARM_UP_MS = 12_000;
const FULL: Durations = { warmupMs: WARM_UP_MS, saturationMs: 6_000, openMs: 8_000 };
const SHORT: Durations = { warmupMs: WARM_UP_MS, saturationMs: 3_000, openMs: 3_000 };
const SMOKE: Durations = { warmupMs: 0, saturationMs: 400, openMs: 400 };
const SMOKE_PROJECTS_MAX = 100;

// ---- System ----

const systemJob = (scenario: Scenario, durations: Durations, settings: Settings): Job => ({
  name: `system ${scenario.name}`,
  run: async () => {
    const options = {
      ...settings,
      scenario: fitted(scenario, settings),
      durations: settings.smoke ? SMOKE : durations,
    };
    return { bench: 'system', name: scenario.name, title: scenario.title, data: await runSystem(options) };
  },
});

/** As it is, or small for a smoke run. */
function fitted(scenario: Scenario, { smoke }: Settings): Scenario {
  if (!smoke) return scenario;
  return {
    ...scenario,
    connections: scenario.connections / 8,
    projects: scenario.projects.slice(0, SMOKE_PROJECTS_MAX),
    // What a fast machine sends in these moments must fit, large uploads above all.
    streamMaxBytes: scenario.streamMaxBytes / 8,
  };
}

/** @param names of scenarios; none means all that this broker can run */
export function systemJobs(names: readonly string[], settings: Settings): Job[] {
  const wanted = names.length > 0 ? names.map(scenarioNamed) : SCENARIOS;
  const able = wanted.filter(({ broker }) => !broker.syncAlways || canSyncAlways(settings.bins.nats));
  for (const { name } of wanted.filter((scenario) => !able.includes(scenario)))
    settings.say(
      `${name} is left out: it needs nats-server 2.10 or newer (NATS_SERVER_BIN=/path/to/nats-server)`,
    );
  return able.map((scenario) => systemJob(scenario, SHORT, settings));
}

/** The scenarios that also run against the bare handler and the peer. */
const BESIDE = ['canonical', 'single-event'] as const;

// ---- Pairs ----

const single = scenarioNamed('single-event');
export const PAIRS: readonly Pair[] = [
  { name: 'worker ÷ bare handler', first: { scenario: single, bare: true }, second: { scenario: single } },
  {
    name: '2 workers ÷ 1',
    first: { scenario: scenarioNamed('canonical') },
    second: { scenario: scenarioNamed('two-workers') },
  },
  {
    name: '10,000 projects ÷ 1',
    first: { scenario: scenarioNamed('hot-project') },
    second: { scenario: scenarioNamed('ten-thousand-projects') },
  },
];
const PAIR_FULL = { warmupMs: WARM_UP_MS, burstMs: 2_000, bursts: 6 };
const PAIR_SMOKE = { warmupMs: 0, burstMs: 200, bursts: 1 };

/** The scenarios in which two builds are held against each other: the rule of price for whatever exists for speed. */
const BUILD_PAIRS = ['single-event', 'canonical', 'hot-project', 'ten-thousand-projects'] as const;

/** @param base another build, `ref` by name: then this build is held against that one */
export function pairJobs(settings: Settings, base?: { ref: string; dist: string }): Job[] {
  const ofBuilds = BUILD_PAIRS.map((name): Pair => {
    const scenario = scenarioNamed(name);
    return {
      name: `${name}, this build ÷ ${base?.ref}`,
      first: { scenario, dist: base?.dist ?? '' },
      second: { scenario },
    };
  });
  return (base ? ofBuilds : PAIRS).map(({ name, first, second }) => ({
    name: `pair ${name}`,
    run: async () => {
      const sized = (side: Side): Side => ({ ...side, scenario: fitted(side.scenario, settings) });
      const pair = { name, first: sized(first), second: sized(second) };
      const times = settings.smoke ? PAIR_SMOKE : PAIR_FULL;
      return { bench: 'pair', name, data: await runPair({ ...settings, ...times, pair }) };
    },
  }));
}

// ---- Components ----

async function runUws({ seed, smoke }: Settings, { mix, encoding }: Scenario): Promise<UwsRun> {
  const server = startFresh('uws', { port: await freePort() });
  try {
    const { port } = await server.result;
    const before = cpuUs(server.pid);
    const load = await runFresh('load', {
      url: `http://127.0.0.1:${port}`,
      targets: [{ id: '1', key: 'bare' }],
      mix,
      encoding,
      connections: 64,
      warmupMs: smoke ? 100 : 3_000,
      durationMs: smoke ? 300 : 3_000,
      seed,
    });
    return { load, serverUs: (cpuUs(server.pid) - before) / Math.max(1, load.expectedInAll) };
  } finally {
    await server.end();
  }
}

const PIPELINE_DEPTHS = [1, 16, 64];
const FRAME_ENVELOPES = [1, 16, 64, 200];
const COMPONENT_PROJECTS = 50;

export function componentJobs(settings: Settings): Job[] {
  const { bins, smoke } = settings;
  const durationMs = smoke ? 150 : 1_500;
  return [
    ...BESIDE.map((mix) => ({
      name: `component uws ${mix}`,
      run: async (): Promise<Finding> => {
        const data = await runUws(settings, scenarioNamed(mix));
        return { bench: 'component', name: 'uws', mix, data };
      },
    })),
    {
      name: 'component redis-script',
      run: async () => ({
        bench: 'component',
        name: 'redis-script',
        data: await runFresh('redisScript', {
          bin: bins.redis,
          depths: PIPELINE_DEPTHS,
          durationMs,
          projects: COMPONENT_PROJECTS,
        }),
      }),
    },
    {
      name: 'component jetstream',
      run: async () => ({
        bench: 'component',
        name: 'jetstream',
        data: await runFresh('jetStream', { bin: bins.nats, frames: FRAME_ENVELOPES, durationMs }),
      }),
    },
  ];
}

// ---- Micro, peers ----

export const microJobs = ({ smoke }: Settings): Job[] =>
  (Object.keys(MICRO_SUITES) as MicroSuite[]).map((suite) => ({
    name: `micro ${suite}`,
    run: async () => ({
      bench: 'micro',
      name: suite,
      data: await runFresh('micro', { suite, timeMs: smoke ? 20 : 300 }),
    }),
  }));

export function peerJobs(settings: Settings): Job[] {
  const durations = settings.smoke ? SMOKE : FULL;
  const bento = findBento();
  if (!bento) settings.say('Bento is left out: it needs the program (BENTO_BIN=/path/to/bento)');
  return [FASTIFY, ...(bento ? bentoPeers(bento) : [])].flatMap((peer) =>
    BESIDE.map((name) => ({
      name: `peer ${peer.name} ${name}`,
      run: async (): Promise<Finding> => {
        if (peer === FASTIFY) installPeers(settings.say);
        const data = await runPeer(peer, { ...settings, scenario: scenarioNamed(name), durations });
        return { bench: 'peer', name: `${peer.name}, ${name}`, data };
      },
    })),
  );
}

// ---- Commands ----

export const canonicalJobs = (settings: Settings): Job[] => [
  systemJob(scenarioNamed('canonical'), FULL, settings),
  ...componentJobs(settings),
];

export const allJobs = (settings: Settings): Job[] => [
  ...canonicalJobs(settings),
  ...peerJobs(settings),
  ...pairJobs(settings),
  ...systemJobs([], settings).filter(({ name }) => name !== 'system canonical'),
  ...microJobs(settings),
];

/** What the figures of ratios.ts are made from, and nothing else. */
const BOUNDS: ReadonlySet<string> = new Set([
  'system canonical',
  'system single-event',
  'system sync-always',
  'component uws single-event',
  'peer fastify single-event',
  'micro decompression',
]);

export const boundsJobs = (settings: Settings): Job[] =>
  allJobs(settings).filter(({ name }) => BOUNDS.has(name) || name.startsWith('pair '));
