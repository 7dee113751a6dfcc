/** `--beside FOLDER`: the report of a bench compares with an earlier run. */
import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { number } from '../../bench/load/show/figures.ts';
import { rewriteReport } from '../../bench/report.ts';
import type { Summary } from '../../bench/summary.ts';
import { temporaryFolder } from '../support/servers.ts';

const RUN = new URL('../../bench/results/2026-11-23-one-object', import.meta.url).pathname;

let dir: string;
beforeAll(() => {
  dir = temporaryFolder('beside');
  for (const name of ['now', 'earlier']) cpSync(RUN, join(dir, name), { recursive: true });
});
afterAll(() => rmSync(dir, { recursive: true }));

const reportOf = (beside?: string): string => {
  rewriteReport(join(dir, 'now'), beside);
  return readFileSync(join(dir, 'now', 'report.html'), 'utf8');
};

it('a report has each figure of both runs beside that of the earlier run, and names that run', () => {
  const path = join(dir, 'earlier', 'summary.json');
  const earlier = JSON.parse(readFileSync(path, 'utf8')) as Summary;
  const [canonical, ...others] = earlier.system as [
    Summary['system'][number],
    ...Summary['system'][number][],
  ];
  const now = canonical.acceptedPerSec.median;
  canonical.acceptedPerSec.median = now / 2;
  const environment = { ...earlier.environment, commit: 'e4711e5', natsServer: '<2.9>' };
  const gone = { ...(others[0] as typeof canonical), name: 'a scenario of then' };
  writeFileSync(path, JSON.stringify({ ...earlier, environment, system: [canonical, gone] }));

  const html = reportOf(join(dir, 'earlier'));
  const [, beside = ''] = html.split('<h2>Beside an earlier run</h2>');
  expect(beside).toContain('commit e4711e5');
  expect(beside).toContain('nats-server &lt;2.9&gt;');
  const row = (...cells: string[]): string => `<tr>${cells.map((cell) => `<td>${cell}</td>`).join('')}</tr>`;
  expect(beside).toContain(row('canonical: accepted/s', number(now / 2), number(now), '× 2.00'));
  const workerUs = number(canonical.costUs.worker.median);
  expect(beside).toContain(row('canonical: worker µs', workerUs, workerUs, '× 1.00'));
  // Nothing is beside what only one of them has.
  expect(beside).not.toContain('a scenario of then');
  for (const { name } of others) expect(beside).not.toContain(`${name}: accepted/s`);
});

it('a report of one run compares with nothing', () => {
  expect(reportOf()).not.toContain('Beside an earlier run');
});
