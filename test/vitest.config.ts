import { defineConfig } from 'vitest/config';

/** Files that load the whole machine: one after the other, after all others, so that nobody's time runs out because of a neighbour. */
const HEAVY = [
  'test/bench/{smoke,limits}.test.ts',
  'test/faults/{broker,processes}.test.ts',
  'test/deploy/{cells,rolling-restart}.test.ts',
  'test/system/{hostile,volume}.test.ts',
];

/** Needs a Docker engine and the image: `npm run test:image` builds it and runs these; `npm test` leaves them out. */
const IMAGE = 'test/deploy/image.test.ts';

/** Waits for minutes, and wants the toolchains of other languages: `npm run test:clients`; `npm test` leaves it out. */
const CLIENTS = 'test/clients/matrix.test.ts';

/** Wants stores that take half a gigabyte: `npm run test:sinks` installs them and runs these; `npm test` leaves them out. */
const STORES = 'test/sink/stores/**/*.test.ts';

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
    projects: [
      {
        test: {
          ...shared,
          name: 'side by side',
          include: ['test/**/*.test.ts'],
          exclude: [...HEAVY, IMAGE, CLIENTS, STORES],
          maxWorkers: 2,
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: { ...shared, name: 'alone', include: HEAVY, maxWorkers: 1, sequence: { groupOrder: 1 } },
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
        test: { ...shared, name: 'clients', include: [CLIENTS], maxWorkers: 1, sequence: { groupOrder: 3 } },
      },
    ],
  },
});
