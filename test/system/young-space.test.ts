/**
 * The young space of processors and workers. Both bound it (of workers see worker-pool.test.ts), whatever this version of Node would do by
 * itself, and a worker asks for its collection.
 */
import { execFileSync, spawn } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import { expect, it } from 'vitest';
import { childrenOf } from '../../bench/processes.ts';
import packageJson from '../../package.json' with { type: 'json' };
import { COLLECTIONS_ON_REQUEST, PROCESSOR_FLAGS, YOUNG_SPACE } from '../../src/ingest/worker-pool.ts';
import { lastingPort, temporaryFolder } from '../support/servers.ts';
import { until } from '../support/system.ts';

const DIST = new URL('../../dist', import.meta.url).pathname;
const CLI = `${DIST}/cli.js`;
const DOCKERFILE = new URL('../../Dockerfile', import.meta.url);
const MIB = 1024 * 1024;

/** Keeps enough of what it makes for the young space to grow as far as it may; prints its size then. */
const GROWS = `
  const v8 = require('node:v8');
  let [kept, most] = [[], 0];
  for (let n = 0; n < 1_000_000; n++) {
    kept.push({ n, list: [n, n + 1] });
    if (kept.length > 60_000) kept = kept.slice(-30_000);
    if (n % 1_000 > 0) continue;
    const space = v8.getHeapSpaceStatistics().find(({ space_name }) => space_name === 'new_space');
    most = Math.max(most, space.space_size);
  }
  console.log(most);
`;

it('the flag bounds both halves together at 32 MiB', () => {
  const most = Number(execFileSync(process.execPath, [YOUNG_SPACE, '-e', GROWS], { encoding: 'utf8' }));
  expect(most).toBeGreaterThan(8 * MIB);
  expect(most).toBeLessThanOrEqual(32 * MIB);
});

/** Inflates 84 MiB of zeros; prints how often it asked V8 for a young collection meanwhile. */
const INFLATES = `
  import { constants, PerformanceObserver } from 'node:perf_hooks';
  import { gzipSync } from 'node:zlib';
  import { Holding, UploadBudget } from '${DIST}/ingest/envelope/budget.js';
  import { Inflater } from '${DIST}/ingest/envelope/inflate/inflater.js';
  import { Slotted } from '${DIST}/lib/slots.js';
  const body = gzipSync(Buffer.alloc(84 * 1024 * 1024));
  let collections = 0;
  const { NODE_PERFORMANCE_GC_MINOR: minor, NODE_PERFORMANCE_GC_FLAGS_FORCED: forced } = constants;
  const count = (list) => {
    collections += list.getEntries().filter(({ detail }) => detail.kind === minor && detail.flags === forced).length;
  };
  const observer = new PerformanceObserver(count);
  observer.observe({ entryTypes: ['gc'] });
  const budget = new UploadBudget({ maxBodyBytes: 1e9, maxDecompressedBytes: 1e9, spoolDir: '/tmp' });
  const options = {
    holding: new Holding(budget, new Slotted()),
    onBytes: () => undefined,
    onEnd: () => setTimeout(() => console.log(collections), 100),
    onFailed: console.log,
    onBehind: () => undefined,
  };
  const inflater = new Inflater('gzip', options);
  inflater.feed(body);
  inflater.end();
`;

it('a worker asks for a young collection for each 8 MiB that its inflaters give', () => {
  const collections = execFileSync(
    process.execPath,
    [COLLECTIONS_ON_REQUEST, '--input-type=module', '-e', INFLATES],
    { encoding: 'utf8' },
  );
  expect(Number(collections)).toBe(10);
});

it('the image gives it, and a floor for the old space, to every command', () => {
  const words = ['node', ...PROCESSOR_FLAGS, '/app/dist/cli.js'].map((word) => JSON.stringify(word));
  const entrypoint = `ENTRYPOINT [${words.join(', ')}]`;
  expect(readFileSync(DOCKERFILE, 'utf8').split('\n')).toContain(entrypoint);
});

const argumentsOf = (pid: number): string[] => readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');

/** What `npm start` gives to node. */
const START_FLAGS = (/node (--\S+ )+(?=dist\/cli.js dev)/.exec(packageJson.scripts.start)?.[0] ?? '')
  .split(' ')
  .slice(1, -1);
const treeOf = (pid: number): number[] => [pid, ...childrenOf(pid).flatMap(treeOf)];
/** Memory that no other process shares, in MiB. */
const privateMib = (pid: number): number =>
  Number(/^Anonymous:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))?.[1]) / 1024;

it.runIf(process.platform === 'linux')(
  'dev gives both to the processor; at rest all its processes have 120 MiB of their own, dev itself 36',
  async () => {
    const dir = temporaryFolder('young-space');
    const ports = ['--port', `${await lastingPort()}`, '--admin-port', `${await lastingPort()}`];
    const dev = spawn(process.execPath, [...START_FLAGS, CLI, 'dev', ...ports], {
      cwd: dir,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const exited = new Promise((resolve) => dev.once('exit', resolve));
    let output = '';
    dev.stdout.on('data', (data: Buffer) => {
      output += data.toString();
    });
    const own = dev.pid ?? 0;
    try {
      await until(() => output.includes('sluice is ready'));
      const processors = childrenOf(own)
        .map(argumentsOf)
        .filter((args) => args.includes('processor'));
      expect(processors).toEqual([expect.arrayContaining([...PROCESSOR_FLAGS])]);
      // V8 gives pages back some seconds after it has emptied them.
      await until(
        () => treeOf(own).reduce((sum, pid) => sum + privateMib(pid), 0) <= 120 && privateMib(own) <= 36,
      );
    } finally {
      dev.kill('SIGTERM');
      await exited;
      rmSync(dir, { recursive: true, force: true });
    }
  },
);
