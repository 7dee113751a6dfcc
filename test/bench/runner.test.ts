/** A run of benches: which order, and what becomes of a job that fails. */
import { execFileSync } from 'node:child_process';
import { readFileSync, rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Job, Settings } from '../../bench/plan.ts';
import { parseRecords, recordsToText } from '../../bench/records.ts';
import { runJobs } from '../../bench/runner.ts';
import { summarise } from '../../bench/summary.ts';
import { summaryText } from '../../bench/text.ts';
import { temporaryFolder } from '../support/servers.ts';

const environment = {
  date: '2026-01-01',
  commit: 'abc',
  sluice: '1',
  cpu: 'cpu',
  cores: 2,
  memoryGiB: 8,
  kernel: 'Linux',
  node: 'v20',
  redis: '7',
  natsServer: '2',
};
const ran: string[] = [];
const said: string[] = [];
const settings: Settings = {
  bins: { redis: '', nats: '' },
  dist: '',
  seed: 1,
  rounds: 2,
  smoke: false,
  say: (line) => said.push(line),
};
const works = (name: string): Job => ({
  name,
  run: async () => {
    ran.push(name);
    return {
      bench: 'micro',
      name,
      data: [{ name: 'step', nsPerOperation: 7, marginPercent: 1, samples: 9 }],
    };
  },
});
const fails: Job = {
  name: 'system canonical',
  run: () => Promise.reject(new Error('no store')),
};

describe('a run', () => {
  it('goes on when a job fails, says so, and keeps that in its raw lines and its report', async () => {
    const kept: number[] = [];
    const records = await runJobs([works('a'), fails, works('b')], settings, (found) =>
      kept.push(found.length),
    );
    expect(ran).toEqual(['a', 'b', 'b', 'a']);
    expect(kept).toEqual([1, 2, 3, 4, 5, 6]);
    expect(said[1]).toBe('round 1/2  system canonical  FAILED: no store');
    const summary = summarise(parseRecords(recordsToText(records)), { environment, seed: 1 });
    expect(summary.failedJobs).toEqual([
      'system canonical, round 1: no store',
      'system canonical, round 2: no store',
    ]);
    expect(summaryText(summary)).toContain('FAILED system canonical, round 1: no store');
    expect(summary.micro[0]?.figures.ns?.raw).toEqual([7, 7]);
  });

  it('gives a job of a smoke run a second try', async () => {
    let tries = 0;
    const flaky: Job = {
      name: 'flaky',
      run: () => (++tries === 1 ? Promise.reject(new Error('stood still')) : works('flaky').run()),
    };
    said.length = 0;
    const records = await runJobs([flaky, fails], { ...settings, rounds: 1, smoke: true }, () => undefined);
    expect(records.map(({ bench }) => bench)).toEqual(['micro', 'failed']);
    expect(said[0]).toBe('round 1/1  flaky  once more: stood still');
    expect(said.filter((line) => line.includes('once more'))).toHaveLength(2);
  });
});

it('the help names every command that has a command line of its own, and needs no build', () => {
  const root = new URL('../..', import.meta.url);
  const main = readFileSync(new URL('bench/main.ts', root), 'utf8');
  const [, rows = ''] = /const OWN: [^{]*\{\n([^}]*)\n\};/.exec(main) ?? [];
  const names = [...rows.matchAll(/^ {2}(\w+):/gm)].map(([, name]) => name);
  expect(names.length).toBeGreaterThan(5);
  // Neither npm nor tsc is found there.
  const dir = temporaryFolder('help');
  symlinkSync('/bin/sed', join(dir, 'sed'));
  const options = { cwd: root, encoding: 'utf8', env: { PATH: dir } } as const;
  const help = execFileSync('/bin/sh', ['bench/bench.sh', '--help'], options);
  rmSync(dir, { recursive: true });
  for (const name of names) expect(help).toMatch(new RegExp(`^npm run bench -- ${name} `, 'm'));
});
