import { readdirSync, readFileSync } from 'node:fs';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { LANES } from './support/lanes.ts';

/**
 * Files that load the whole machine, or make stalls of less than a second: few at a time, after all others, so that nobody's time runs out
 * because of a neighbour.
 */
const HEAVY = [
  'test/bench/{smoke,limits}.test.ts',
  'test/faults/{broker,processes}.test.ts',
  'test/deploy/cells.test.ts',
  'test/ingest/limit/cut.test.ts',
  'test/system/{broker-restart,hostile-connections,redis-stall,restart,volume}.test.ts',
];

/** Its uploads must be stored in two seconds, so it bears no neighbour at all. */
const BY_ITSELF = 'test/system/hostile.test.ts';

/** Needs a Docker engine and the image: `npm run test:image` builds it and runs these; `npm test` leaves them out. */
const IMAGE = 'test/deploy/image.test.ts';

/** Wait for minutes, and want the toolchains of other languages: `npm run test:clients` and `test:refusals`; `npm test` leaves them out. */
const CLIENTS = ['test/clients/matrix.test.ts', 'test/clients/refusals.test.ts'];

/** Wants stores that take half a gigabyte: `npm run test:sinks` installs them and runs these; `npm test` leaves them out. */
const STORES = 'test/sink/stores/**/*.test.ts';

/** About deploy/ itself, on the versions and the proxies that it names: `npm run test:deployed` runs these; `npm test` leaves them out. */
const DEPLOYED_ALONE = [
  'test/deploy/{deployed,nats-roles,proxies,rolling-restart,secured}.test.ts',
  'test/system/cluster.test.ts',
];

/**
 * What a broker or a database of another version could break, in five minutes: `npm run test:deployed` runs these on the versions that
 * deploy/ names, `npm test` on those that it finds. Of test/system what restarts servers, fills streams or makes accounts.
 */
const DEPLOYED = [
  ...DEPLOYED_ALONE,
  'test/deploy/versions.test.ts',
  'test/commands/doctor/nats-cluster.test.ts',
  'test/projects/{bucket-copy,bucket-watch,replica,project-store,deleted-project}.test.ts',
  'test/stream/{backlog,fair-shares,nats,parts,record-size,tail}.test.ts',
  'test/stream/{publish,setup}/*.test.ts',
  'test/processor/*.test.ts',
  'test/processor/dead-letters/{dead-letters,set-aside}.test.ts',
  'test/sink/postgres/{away,containers,postgres}.test.ts',
  'test/system/{away,batches,credentials,large,ready,spec}.test.ts',
];

/** Whose loops go round more often in `npm run test:long`: the files that ask test/support/rounds.ts. */
const LONG = readdirSync(new URL('.', import.meta.url), { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.test.ts'))
  .map((name) => `test/${name}`)
  .filter((path) =>
    /\/support\/rounds\.ts'/.test(readFileSync(new URL(`../${path}`, import.meta.url), 'utf8')),
  );

/** They take longest, so they begin first: what begins last would run alone in the end. */
const LONGEST = [
  'bench/smoke',
  'faults/processes',
  'faults/broker',
  'system/hostile-connections',
  'deploy/cells',
  'system/dev',
  'system/load',
  'sink/conformance',
  'system/away',
  'processor/dead-letters/bounds',
  'processor/poison',
  'system/clients',
  'clients/javascript',
  'sink/postgres/kill',
  'system/shutdown',
  'processor/exactly-once',
  'commands/usage/reconcile',
  'deploy/rotation',
  'deploy/alerts',
  'sink/ndjson/crash-points',
  'commands/program',
  'ingest/limit/window-oracle',
  'management/api/openapi-admin',
  'management/page/page',
  'system/privacy',
  'system/spec',
  'system/bad-input',
  'processor/part-sweeper-cluster',
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
          exclude: [...HEAVY, BY_ITSELF, IMAGE, ...CLIENTS, STORES, ...DEPLOYED_ALONE],
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
          globalSetup: ['test/support/bench-build.ts'],
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
          include: LONG,
          globalSetup: ['test/support/bench-build.ts'],
          maxWorkers: 1,
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
          include: [STORES],
          globalSetup: ['test/support/sinks/tools.ts'],
          maxWorkers: 2,
          sequence: { groupOrder: 4 },
        },
      },
      {
        test: {
          ...shared,
          name: 'deployed',
          include: DEPLOYED,
          globalSetup: ['test/support/deployed.ts'],
          maxWorkers: 2,
          sequence: { groupOrder: 7 },
        },
      },
      {
        test: { ...shared, name: 'clients', include: CLIENTS, maxWorkers: 1, sequence: { groupOrder: 3 } },
      },
    ],
  },
});
