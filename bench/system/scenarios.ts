/** What the whole system is measured with. Each scenario differs from the canonical one in what its title says. */
import type { NewProject } from '../../src/projects/project-store.ts';
import type { BrokerOptions } from '../broker.ts';
import { STREAM_BYTES_FULL } from '../harness.ts';
import type { Encoding } from '../load/body.ts';
import { CANONICAL_MIX, type Mix, type Size } from '../workload.ts';

export type Scenario = {
  name: string;
  title: string;
  projects: readonly NewProject[];
  mix: Mix;
  sizes?: readonly Size[];
  encoding: Encoding | 'sdk';
  connections: number;
  workers: number;
  broker: BrokerOptions;
  streamMaxBytes: number;
  /** Shorter than others, where a stream could not hold what a longer one sends. */
  warmupMsMax: number;
  /** Beside 200. */
  expected: readonly number[];
};

/** Never reached, so that every request is counted against it. */
const QUOTA = 1_000_000_000;
/** The largest limit that a project can have: 1,667 requests a second. */
const LIMIT_MAX = 100_000;
/** The largest projects send more than that and go without (a plan above Free has no limit of its own under `free-only`). */
const UNLIMITED_PROJECTS = 6;
const PROJECTS = 50;

const project = (changes: Partial<NewProject> = {}): NewProject => ({
  plan: 'Pro',
  quota: QUOTA,
  overage: false,
  filters: ['browser-extension', 'localhost', 'crawler'],
  allowedOrigins: [],
  ...changes,
});

const projects = (count: number): NewProject[] =>
  Array.from({ length: count }, (_, rank) =>
    project(rank < UNLIMITED_PROJECTS ? {} : { rateLimit: LIMIT_MAX }),
  );

const CANONICAL: Scenario = {
  name: 'canonical',
  title: 'seeded mix of events, transactions, logs and replays to 50 projects (Zipf), one worker',
  projects: projects(PROJECTS),
  mix: CANONICAL_MIX,
  encoding: 'sdk',
  connections: 64,
  workers: 1,
  broker: {},
  streamMaxBytes: STREAM_BYTES_FULL,
  warmupMsMax: Number.POSITIVE_INFINITY,
  expected: [],
};

const scenario = (name: string, title: string, changes: Partial<Scenario>): Scenario => ({
  ...CANONICAL,
  name,
  title,
  ...changes,
});

export const SCENARIOS: readonly Scenario[] = [
  CANONICAL,
  scenario('single-event', 'error events of 1.9 KB only, uncompressed, one project', {
    projects: [project()],
    mix: { event: 1 },
    encoding: 'none',
    streamMaxBytes: 1.5 * STREAM_BYTES_FULL,
  }),
  scenario('hot-project', 'the canonical mix to a single project', { projects: [project()] }),
  scenario('ten-thousand-projects', 'the canonical mix to 10,000 projects (Zipf)', {
    projects: projects(10_000),
  }),
  scenario('large-uploads', 'replays of 0.75 to 2 MB, spooled and stored in parts', {
    mix: { large: 1 },
    connections: 8,
    streamMaxBytes: 2 * STREAM_BYTES_FULL,
    warmupMsMax: 1_500,
  }),
  scenario('largest-uploads', 'error events of 4.8 MB, near the largest body, uncompressed', {
    projects: [project()],
    mix: { event: 1 },
    sizes: [{ bytes: 4_800_000, weight: 1 }],
    encoding: 'none',
    connections: 8,
    streamMaxBytes: 2 * STREAM_BYTES_FULL,
    warmupMsMax: 1_500,
  }),
  scenario('flood', 'a project far over its limit of 1,000 requests a minute', {
    projects: [project({ rateLimit: 1_000 })],
    expected: [429],
  }),
  scenario('gzip', 'the canonical mix, every body gzip', { encoding: 'gzip' }),
  scenario('two-workers', 'the canonical mix, two workers, as many connections for each', {
    workers: 2,
    connections: 128,
  }),
  scenario('sync-always', 'the canonical mix, the broker syncs its disk before every acknowledgement', {
    broker: { syncAlways: true },
  }),
];

/** @throws Error naming those that there are */
export function scenarioNamed(name: string): Scenario {
  const found = SCENARIOS.find((one) => one.name === name);
  if (!found)
    throw new Error(`no scenario ${name}: there are ${SCENARIOS.map((one) => one.name).join(', ')}`);
  return found;
}
