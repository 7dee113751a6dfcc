/**
 * Every bench runs, small: its figures mean nothing here, but it cannot rot. Each starts a whole system, so `npm test` takes those that
 * the bounds are made from, which are of every kind, and the long run takes all, and the commands that measure something else.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { canSyncAlways } from '../../bench/broker.ts';
import { MICRO_SUITES } from '../../bench/micro/run.ts';
import { allJobs, boundsJobs, PAIRS, type Settings } from '../../bench/plan.ts';
import { ratiosOf } from '../../bench/ratios.ts';
import type { Summary } from '../../bench/summary.ts';
import { SCENARIOS, scenarioNamed } from '../../bench/system/scenarios.ts';
import { ensureServers } from '../../src/commands/dev/install.ts';
import { hostEnvironment } from '../../src/config.ts';
import { rounds } from '../support/rounds.ts';
import { mayMount } from '../support/small-disk.ts';

const ROOT = new URL('../..', import.meta.url).pathname;
const MS_MAX = 600_000;
const isLong = rounds(true, false);
/** Where a job had a second try, what its processes said in the first stands there too: the job's result tells whether it failed. */
const errorsIn = (stderr: string): string[] =>
  stderr.includes('  once more: ') ? [] : (stderr.match(/.*Error.*/g) ?? []);
const BENCHES = rounds(
  {
    command: 'all',
    scenarios: SCENARIOS,
    peers: ['fastify, canonical', 'fastify, single-event'],
    components: 9,
    suites: Object.keys(MICRO_SUITES),
  },
  {
    command: 'bounds',
    scenarios: ['canonical', 'single-event', 'sync-always'].map(scenarioNamed),
    peers: ['fastify, single-event'],
    components: 1,
    suites: ['decompression'],
  },
);
const folder = mkdtempSync(join(tmpdir(), 'sluice-smoke-'));
const bench = (...args: string[]) =>
  spawnSync(process.execPath, [join(ROOT, '.bench/bench/main.js'), ...args], {
    cwd: ROOT,
    encoding: 'utf8',
    timeout: MS_MAX,
  });

afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('npm run bench', () => {
  it(
    'runs without a failure, and is reported in files that open offline',
    () => {
      const { status, stdout, stderr } = bench(BENCHES.command, '--smoke', '--out', folder);
      expect(existsSync(join(folder, 'summary.json')), stderr).toBe(true);
      const summary = JSON.parse(readFileSync(join(folder, 'summary.json'), 'utf8')) as Summary;
      expect(summary.failedJobs).toEqual([]);
      expect(
        [...summary.system, ...summary.peers, ...summary.pairs].flatMap(({ problems }) => problems),
      ).toEqual([]);
      expect(errorsIn(stderr)).toEqual([]);
      expect(status, stdout + stderr).toBe(0);
      const { nats } = ensureServers(hostEnvironment(), () => undefined);
      const able = BENCHES.scenarios.filter(({ broker }) => !broker.syncAlways || canSyncAlways(nats));
      expect(summary.system.map(({ name }) => name).sort()).toEqual(able.map(({ name }) => name).sort());
      expect(summary.peers.map(({ name }) => name).sort()).toEqual(BENCHES.peers);
      expect(summary.pairs.map(({ name }) => name).sort()).toEqual(PAIRS.map(({ name }) => name).sort());
      expect(summary.components).toHaveLength(BENCHES.components);
      for (const { name, value } of ratiosOf(summary)) expect(value, name).toBeGreaterThan(0);
      for (const { name, bound } of ratiosOf(summary)) expect(bound, name).toMatch(/[≤≥]/);
      expect(stdout.match(/ bound /g)).toHaveLength(ratiosOf(summary).length);
      expect(ratiosOf(summary).length).toBeGreaterThan(8);
      for (const suite of BENCHES.suites)
        expect(
          summary.micro.some(({ name }) => name.startsWith(`${suite}: `)),
          suite,
        ).toBe(true);
      const html = readFileSync(join(folder, 'report.html'), 'utf8');
      expect(html.match(/<svg /g)).toHaveLength(3);
      expect(html).not.toMatch(/NaN|(src|href)=|@import|url\(/);
    },
    MS_MAX,
  );

  it.runIf(isLong)(
    'finds the knee of a server of a known capacity',
    () => {
      const { status, stdout, stderr } = bench('knee', '250');
      expect(status, stdout + stderr).toBe(0);
      expect(stdout).toMatch(/^cap 250\/s: knee \d+\/s, .*: holds /);
    },
    MS_MAX,
  );

  it.runIf(isLong)(
    'measures what a request costs the load generator',
    () => {
      const { status, stdout, stderr } = bench('generator', '--seconds', '1');
      expect(status, stdout + stderr).toBe(0);
      expect(stdout).toMatch(
        /^closed loop: [1-9]\d*\.\d µs .*\nopen loop, 200\/s: [1-9].*\nopen loop, 2000\/s: [1-9].*\nopen loop, 20000\/s: [1-9]/,
      );
    },
    MS_MAX,
  );

  it.runIf(isLong)(
    'measures a sink',
    () => {
      const { status, stdout, stderr } = bench('sinks', 'ndjson', '--smoke');
      expect(errorsIn(stderr)).toEqual([]);
      expect(status, stdout + stderr).toBe(0);
      expect(stdout).toMatch(/^ndjson +[1-9]\d* .* 1\.00 /m);
    },
    MS_MAX,
  );

  it.runIf(isLong)(
    'measures a batch of spans by OTLP, as a container, and in a Collector',
    () => {
      const { status, stdout, stderr } = bench('otlp', '--smoke');
      expect(errorsIn(stderr)).toEqual([]);
      expect(status, stdout + stderr).toBe(0);
      expect(stdout).toMatch(/^OTLP, protobuf +\d.*\nOTLP, JSON +\d.*\nspan container +\d/m);
    },
    MS_MAX,
  );

  it.runIf(isLong)(
    'measures an event at a rate, at saturation and the processes at rest',
    () => {
      const { status, stdout, stderr } = bench('rates', '200', '--smoke');
      expect(errorsIn(stderr)).toEqual([]);
      expect(status, stdout + stderr).toBe(0);
      expect(stdout).toMatch(
        /^at rest +\d.*\n200\/s +\d.*\n[1-9]\d*\/s, full +\d.*\nMiB at rest, fresh: [1-9]/m,
      );
    },
    MS_MAX,
  );

  const { nats } = ensureServers(hostEnvironment(), () => undefined);
  it.runIf(isLong && mayMount() && canSyncAlways(nats))(
    'cuts the power of a broker',
    () => {
      const { status, stdout, stderr } = bench(
        'power-cut',
        '--seconds',
        '3',
        '--rate',
        '200',
        '--sync-always',
      );
      expect(status, stdout + stderr).toBe(0);
      expect(stdout).toMatch(/: [1-9]\d* answered 200, 0 of them missing/);
    },
    MS_MAX,
  );

  it('makes the same report again from the raw lines', () => {
    const before = readFileSync(join(folder, 'report.html'), 'utf8');
    expect(bench('report', folder).status).toBe(0);
    expect(readFileSync(join(folder, 'report.html'), 'utf8')).toBe(before);
  });

  it('compares a report with an earlier run', () => {
    expect(bench('report', folder, '--beside', folder).status).toBe(0);
    expect(readFileSync(join(folder, 'report.html'), 'utf8')).toContain('<h2>Beside an earlier run</h2>');
  });

  it.runIf(isLong)(
    'compares two versions',
    () => {
      const { status, stdout, stderr } = bench('compare', '.', '.', '--runs', '1', '--smoke');
      expect(status, stderr).toBe(0);
      expect(stdout).toMatch(/worker CPU µs per envelope: no difference/);
    },
    MS_MAX,
  );

  it('has a command for the figures beside one another alone', () => {
    const bins = ensureServers(hostEnvironment(), () => undefined);
    const settings: Settings = { bins, dist: '', seed: 1, rounds: 1, smoke: true, say: () => undefined };
    const names = boundsJobs(settings).map(({ name }) => name);
    // Two scenarios, the bare handler, the peer and a micro bench, and one that only a newer broker runs.
    expect(names).toHaveLength(PAIRS.length + (canSyncAlways(bins.nats) ? 6 : 5));
    expect(names.length).toBeLessThan(allJobs(settings).length / 2);
  });

  it('refuses a command that it does not have', () => {
    const { status, stderr } = bench('nonsense');
    expect(status).toBe(2);
    expect(stderr).toMatch(/no command nonsense/);
  });
});
