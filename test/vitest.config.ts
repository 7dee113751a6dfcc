import { readdirSync, readFileSync } from 'node:fs';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { LANES } from './support/lanes.ts';

/**
 * Files that load the whole machine, or make stalls of less than a second: few at a time, after all others, so that nobody's time runs out
 * because of a neighbour.
 */
const HEAVY = [
  'test/faults/processes.test.ts',
  'test/ingest/limit/cut.test.ts',
  'test/management/page/many-projects.test.ts',
  'test/system/{broker-restart,redis-stall}.test.ts',
];

/** Its uploads must be stored in two seconds, so it bears no neighbour at all. */
const BY_ITSELF = 'test/system/hostile.test.ts';

/** Needs a Docker engine and the image: `npm run test:image` builds it and runs these; `npm test` leaves them out. */
const IMAGE = 'test/deploy/image.test.ts';

/** Unmodified SDKs, of which some want the toolchains of other languages: `npm run test:clients`; `npm test` leaves them out. */
const CLIENTS = ['test/clients/{matrix,otlp}.test.ts', 'test/system/{privacy,sdk-browser,sdk-node}.test.ts'];

/** Waits for minutes: `npm run test:refusals`. */
const REFUSALS = 'test/clients/refusals.test.ts';

/**
 * Want PostgreSQL or stores that take half a gigabyte: `npm run test:sinks` installs the stores and runs these; `npm test` leaves them
 * out.
 */
const STORES = ['test/sink/{stores,postgres}/**/*.test.ts', 'test/sink/sink-health.test.ts'];

/** `sluice load`, which reads stores back, and whose figures a neighbour would change: `npm run test:sinks` runs these after those. */
const LOAD = ['test/bench/load*.test.ts', 'test/system/load.test.ts'];

/**
 * About deploy/ itself, on the versions and the programs that it names; clusters of NATS and Redis, which take minutes to lose a node; and
 * whole systems that are moved or restored: `npm run test:deployed` runs these; `npm test` leaves them out.
 */
const DEPLOYED_ALONE = [
  'test/deploy/{alerts,cells,cells-router,chart,dashboards,deployed,kubernetes,kubernetes-parts}.test.ts',
  'test/deploy/{exporters,growing,nats-roles,prefix,proxies,reload,rolling-restart,rotation,secured}.test.ts',
  'test/deploy/{sentinel,workflows}.test.ts',
  'test/commands/doctor/nats-cluster.test.ts',
  'test/processor/{part-sweeper,pull-queue}-cluster.test.ts',
  'test/stream/publish/election.test.ts',
  'test/system/{cluster,move,restore,sentinel}.test.ts',
];

/**
 * What a broker or a database of another version could break, in five minutes: `npm run test:deployed` runs these on the versions that
 * deploy/ names, `npm test` on those that it finds. Of test/system what restarts servers, fills streams or makes accounts.
 */
const DEPLOYED = [
  ...DEPLOYED_ALONE,
  'test/deploy/versions.test.ts',
  'test/projects/{bucket-copy,bucket-watch,replica,project-store,deleted-project}.test.ts',
  'test/stream/{backlog,fair-shares,nats,parts,record-size,tail}.test.ts',
  'test/stream/{publish,setup}/*.test.ts',
  'test/processor/{exactly-once,keeper,kill,lost-ack,part-sweeper,parts,poison,pull-queue}.test.ts',
  'test/processor/dead-letters/{dead-letters,set-aside}.test.ts',
  'test/sink/postgres/{away,containers,postgres,refused}.test.ts',
  'test/system/{away,batches,credentials,large,ready,spec}.test.ts',
];

/** On a real Kubernetes, which `npm run test:kubernetes` builds and starts; `npm test` leaves them out. */
const CLUSTER = 'test/kubernetes/*.test.ts';

/** Load the whole machine for longer than a change waits: `npm run test:long` runs these; `npm test` leaves them out. */
const LONG_ALONE = [
  'test/bench/smoke.test.ts',
  'test/faults/broker.test.ts',
  'test/projects/many-projects.test.ts',
  'test/system/volume.test.ts',
];

/** Whose loops go round more often in `npm run test:long`: the files that ask test/support/rounds.ts, or are run on more than one Redis. */
const LONG_ROUNDS = readdirSync(new URL('.', import.meta.url), { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.test.ts'))
  .map((name) => `test/${name}`)
  .filter((path) =>
    /\/support\/rounds\.ts'|'\.\/stores\.ts'/.test(
      readFileSync(new URL(`../${path}`, import.meta.url), 'utf8'),
    ),
  );

/**
 * They take longest, so they begin first: what begins last would run alone in the end. Where nothing is known of an earlier run, the
 * others begin by the size of their file, the smallest last: so short files that take long stand here too.
 */
const LONGEST = [
  'sink/stores/conformance',
  'sink/stores/clickhouse/faults',
  'sink/stores/s3/faults',
  'sink/stores/backfill',
  'sink/stores/clickhouse/tables',
  'system/load',
  'faults/processes',
  'system/hostile-connections',
  'system/dev',
  'sink/conformance',
  'system/away',
  'processor/dead-letters/bounds',
  'processor/poison',
  'system/clients',
  'system/shutdown',
  'processor/exactly-once',
  'commands/usage/reconcile',
  'sink/ndjson/crash-points',
  'commands/program',
  'ingest/limit/window-oracle',
  'management/api/openapi-admin',
  'management/page/page',
  'system/restart',
  'system/spec',
  'system/bad-input',
  'system/empty-redis',
  'system/deleted-project',
  'processor/keeper',
  'processor/parts',
  'processor/kill',
  'ingest/stream-figures',
  'system/without-setup',
  'system/category-limits',
  'system/credentials',
  'system/ready',
  'processor/scrub/large-recording',
];

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const place = ({ moduleId }: TestSpecification): number => {
      const at = LONGEST.findIndex((name) => moduleId.endsWith(`/test/${name}.test.ts`));
      return at < 0 ? LONGEST.length : at;
    };
    return (await super.sort(files)).sort((one, other) => place(one) - place(other));
  }
}

/** Nets for what hangs, wide enough for a machine that is ten times slower: what shall be quick is asserted where it is. */
const shared = {
  testTimeout: 180_000,
  hookTimeout: 240_000,
  expect: { poll: { timeout: 30_000 } },
  pool: 'forks',
} as const;

export default defineConfig({
  root: new URL('..', import.meta.url).pathname,
  test: {
    globalSetup: ['test/support/install.ts'],
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        test: {
          ...shared,
          name: 'side by side',
          include: ['test/**/*.test.ts'],
          exclude: [
            ...HEAVY,
            BY_ITSELF,
            IMAGE,
            REFUSALS,
            ...CLIENTS,
            ...STORES,
            ...LOAD,
            ...DEPLOYED_ALONE,
            ...LONG_ALONE,
            CLUSTER,
          ],
          // The files of a lane share a process and its modules: loading them anew for each costs half a second of a core.
          isolate: false,
          maxWorkers: LANES,
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: {
          ...shared,
          name: 'alone',
          include: HEAVY,
          maxWorkers: 3,
          sequence: { groupOrder: 1 },
        },
      },
      {
        test: {
          ...shared,
          name: 'by itself',
          include: [BY_ITSELF],
          maxWorkers: 1,
          sequence: { groupOrder: 6 },
        },
      },
      {
        test: {
          ...shared,
          name: 'long',
          include: [...LONG_ROUNDS, ...LONG_ALONE],
          exclude: [BY_ITSELF],
          globalSetup: ['test/support/bench-build.ts'],
          maxWorkers: 3,
          sequence: { groupOrder: 5 },
        },
      },
      {
        test: { ...shared, name: 'image', include: [IMAGE], maxWorkers: 1, sequence: { groupOrder: 2 } },
      },
      {
        test: {
          ...shared,
          name: 'sinks',
          include: STORES,
          globalSetup: ['test/support/sinks/tools.ts'],
          maxWorkers: 3,
          sequence: { groupOrder: 4 },
        },
      },
      {
        test: {
          ...shared,
          name: 'load',
          include: LOAD,
          globalSetup: ['test/support/sinks/tools.ts'],
          maxWorkers: 1,
          sequence: { groupOrder: 7 },
        },
      },
      {
        test: {
          ...shared,
          name: 'deployed',
          include: DEPLOYED,
          globalSetup: ['test/support/deployed.ts'],
          maxWorkers: 4,
          sequence: { groupOrder: 7 },
        },
      },
      {
        test: {
          ...shared,
          name: 'kubernetes',
          include: [CLUSTER],
          maxWorkers: 1,
          sequence: { groupOrder: 9 },
        },
      },
      {
        test: { ...shared, name: 'clients', include: CLIENTS, maxWorkers: 2, sequence: { groupOrder: 3 } },
      },
      {
        test: {
          ...shared,
          name: 'refusals',
          include: [REFUSALS],
          maxWorkers: 1,
          sequence: { groupOrder: 8 },
        },
      },
    ],
  },
});
