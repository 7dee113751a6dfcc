/**
 * The benches that are no jobs, of the limiter, of isolation and of many projects, run small in the long run, so that they cannot rot;
 * their figures mean nothing here.
 */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { below } from '../../bench/limits/witness.ts';
import { rounds } from '../support/rounds.ts';

const ROOT = new URL('../..', import.meta.url).pathname;
const MS_MAX = 120_000;

describe('a witness', () => {
  it('counts what is smaller', () => {
    const sorted = Float64Array.of(1, 2, 2, 3);
    expect([0, 1, 2, 2.5, 9].map((value) => below(sorted, value))).toEqual([0, 0, 1, 3, 4]);
  });
});

describe.runIf(rounds(true, false))('bench/limits, bench/isolation and bench/projects', () => {
  it(
    'shows windows and refusals in real processes',
    () => {
      const program = join(ROOT, '.bench/bench/main.js');
      const { status, stdout, stderr } = spawnSync(
        process.execPath,
        [program, 'limits', 'windows', 'refusals', '--smoke', '--limit', '60'],
        { cwd: ROOT, encoding: 'utf8', timeout: MS_MAX },
      );
      expect(status, `${stdout}${stderr}`).toBe(0);
      expect(stdout.match(/^holds$/gm)).toHaveLength(2);
    },
    MS_MAX,
  );

  it(
    'shows what an attack of one project costs another',
    () => {
      const program = join(ROOT, '.bench/bench/main.js');
      const { stdout, stderr } = spawnSync(
        process.execPath,
        [program, 'isolation', '--seconds', '1', '--only', 'junk', '--processor', 'apart'],
        { cwd: ROOT, encoding: 'utf8', timeout: MS_MAX },
      );
      expect(stdout, stderr).toMatch(/^ +events \d+ × 200; uploads 2 × 200, .* stored, 0 missing$/m);
      expect(stdout).toMatch(/^ +attacker: \d+ 400$/m);
      expect(stdout).toMatch(/^the processor runs when nobody else wants a core/m);
      const problems = stdout.split('DOES NOT HOLD\n')[1]?.trim().split('\n') ?? [];
      // A second is too short for a p99.
      expect(problems.filter((problem) => !problem.includes(': p99 '))).toEqual([]);
    },
    MS_MAX,
  );

  it(
    'measures a registry of projects, whatever the figures are',
    () => {
      const program = join(ROOT, '.bench/bench/main.js');
      const { stdout, stderr } = spawnSync(
        process.execPath,
        [program, 'projects', '--projects', '2000', '--restarts', '0'],
        { cwd: ROOT, encoding: 'utf8', timeout: MS_MAX },
      );
      expect(stdout, stderr).toMatch(/^2000 projects .*\na copy loaded in .*\n/);
      expect(stdout).toMatch(/ready in [\d.]+ s, 0 workers lost, 2 consumers/);
    },
    MS_MAX,
  );
});
