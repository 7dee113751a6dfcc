/**
 * Two versions measured alternately on this machine: each is built in a folder of its own, then ABBA ABBA … with fresh processes for every
 * run, so that what the machine does meanwhile hits both. Says what changed and how sure it is, or that nothing did.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { OWN_DIST, ROOT } from './harness.ts';
import { number } from './load/show/figures.ts';
import { type Settings, WARM_UP_MS } from './plan.ts';
import { compareSamples, median, type Verdict } from './statistics.ts';
import { type Durations, runSystem, type SystemRun } from './system/run.ts';
import { scenarioNamed } from './system/scenarios.ts';

export type CompareOptions = {
  refs: readonly [a: string, b: string];
  runs: number;
  scenario: string;
  settings: Settings;
};

type Metric = { name: string; higherIsBetter: boolean; read(run: SystemRun): number };
const METRICS: readonly Metric[] = [
  { name: 'accepted/s at saturation', higherIsBetter: true, read: (run) => run.saturation.load.ratePerSec },
  { name: 'worker CPU µs per envelope', higherIsBetter: false, read: (run) => run.saturation.costUs.worker },
  { name: 'processor CPU µs per envelope', higherIsBetter: false, read: (run) => run.drain.processorUs },
  {
    name: 'p99 ms at a fixed rate',
    higherIsBetter: false,
    read: (run) => run.open.load.latencyMs.p99 ?? Number.NaN,
  },
];
export type Comparison = {
  refs: readonly [string, string];
  metrics: { name: string; a: number[]; b: number[]; verdict: Verdict; sentence: string }[];
  problems: string[];
};

const DURATIONS: Durations = { warmupMs: WARM_UP_MS, saturationMs: 4_000, openMs: 4_000 };
const SMOKE: Durations = { warmupMs: 0, saturationMs: 400, openMs: 400 };
/** The working tree as it is built. */
export const WORKING_TREE = '.';

function run(command: string, args: string[], cwd: string): void {
  const { status, stderr, stdout } = spawnSync(command, args, { cwd, encoding: 'utf8' });
  if (status !== 0) throw new Error(`${command} ${args.join(' ')}: ${stderr}${stdout}`);
}

/** A built version, and how to get rid of it. */
export type Build = { dist: string; remove(): void };

/** @param ref what git knows, or `.` for this checkout as it stands. @throws when it cannot be built */
export function buildRef(ref: string): Build {
  if (ref === WORKING_TREE) return { dist: OWN_DIST, remove: () => undefined };
  const dir = mkdtempSync(join(tmpdir(), 'sluice-compare-'));
  const tree = join(dir, 'tree');
  run('git', ['worktree', 'add', '--detach', tree, ref], ROOT);
  const remove = (): void => {
    spawnSync('git', ['worktree', 'remove', '--force', tree], { cwd: ROOT });
    rmSync(dir, { recursive: true, force: true });
  };
  try {
    // What it runs on is part of what a version is; its tools are not.
    if (dependenciesOf(tree) === dependenciesOf(ROOT))
      symlinkSync(join(ROOT, 'node_modules'), join(tree, 'node_modules'));
    else run('npm', ['ci', '--no-audit', '--no-fund'], tree);
    run('npm', ['run', '--silent', 'build'], tree);
    if (!existsSync(join(tree, 'dist/cli.js'))) throw new Error(`${ref} has no dist/cli.js after its build`);
    return { dist: `${join(tree, 'dist')}/`, remove };
  } catch (error) {
    remove();
    throw error;
  }
}

function dependenciesOf(folder: string): string {
  const { dependencies } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as {
    dependencies?: unknown;
  };
  return JSON.stringify(dependencies);
}

/** One sentence for one metric. Pure. */
export function sentenceOf(
  { name, higherIsBetter }: Pick<Metric, 'name' | 'higherIsBetter'>,
  verdict: Verdict,
): string {
  const { change, interval, p, differs } = verdict;
  const percent = (value: number): string => `${value >= 0 ? '+' : ''}${(value * 100).toFixed(1)} %`;
  const detail = `${percent(change)}, 95 % of resamples between ${percent(interval[0])} and ${percent(interval[1])}, p = ${p.toFixed(3)}`;
  if (!differs) return `${name}: no difference (${detail})`;
  const better = change > 0 === higherIsBetter;
  return `${name}: B is ${number(Math.abs(change) * 100)} % ${change > 0 ? 'higher' : 'lower'}, ${better ? 'better' : 'worse'} (${detail})`;
}

/** @throws when a version cannot be built or started */
export async function compareRefs({ refs, runs, scenario, settings }: CompareOptions): Promise<Comparison> {
  const [refA, refB] = refs;
  settings.say(`building ${refA} and ${refB} …`);
  const builds = { a: buildRef(refA), b: refA === refB ? undefined : buildRef(refB) };
  const dists = { a: builds.a.dist, b: (builds.b ?? builds.a).dist };
  const found: Record<'a' | 'b', SystemRun[]> = { a: [], b: [] };
  try {
    let openRate: number | undefined;
    for (const side of orderOf(runs)) {
      const durations = settings.smoke ? SMOKE : DURATIONS;
      const one = await runSystem({
        ...settings,
        dist: dists[side],
        scenario: scenarioNamed(scenario),
        durations,
        openRate,
      });
      // Both at the rate that the first run found: latencies at different rates cannot be compared.
      openRate ??= one.open.load.targetRate;
      found[side].push(one);
      settings.say(
        `${side.toUpperCase()}  ${METRICS.map((metric) => `${metric.name} ${number(metric.read(one))}`).join('  ')}`,
      );
    }
  } finally {
    builds.a.remove();
    builds.b?.remove();
  }
  return conclude(refs, found);
}

/** A B B A A B B A … */
function orderOf(runs: number): ('a' | 'b')[] {
  return Array.from({ length: runs }, (_, pair) =>
    pair % 2 === 0 ? (['a', 'b'] as const) : (['b', 'a'] as const),
  ).flat();
}

function conclude(
  refs: readonly [string, string],
  found: Record<'a' | 'b', readonly SystemRun[]>,
): Comparison {
  const metrics = METRICS.map((metric) => {
    const [a, b] = [found.a.map(metric.read), found.b.map(metric.read)];
    const verdict = compareSamples(a, b);
    return { name: metric.name, a, b, verdict, sentence: sentenceOf(metric, verdict) };
  });
  const problems = [...found.a, ...found.b].flatMap((one) => one.problems);
  return { refs, metrics, problems: [...new Set(problems)] };
}

export function comparisonText({ refs, metrics, problems }: Comparison): string {
  const lines = [`A ${refs[0]}, B ${refs[1]}, ${metrics[0]?.a.length ?? 0} runs each`];
  if (problems.length > 0)
    return [...lines, ...problems.map((problem) => `NO VERDICT: ${problem}`)].join('\n');
  for (const { name, a, b, sentence } of metrics)
    lines.push(
      sentence,
      `    ${name}: A ${number(median(a))} (${a.map(number).join(', ')})  B ${number(median(b))} (${b.map(number).join(', ')})`,
    );
  if (metrics.every(({ verdict }) => !verdict.differs)) lines.push('no difference');
  return lines.join('\n');
}
