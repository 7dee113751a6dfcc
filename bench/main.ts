/** `npm run bench`: the commands, as README.md lists them. Without one: the canonical workload and the speeds of light, in a few minutes. */
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { ensureServers } from '../src/commands/dev/install.ts';
import { surroundings } from '../src/commands/load/load.ts';
import { hostEnvironment } from '../src/config.ts';
import { buildRef, compareRefs, comparisonText } from './compare.ts';
import { describeEnvironment, type Environment, machineName } from './environment.ts';
import { generatorCommand } from './generator.ts';
import { OWN_DIST, ROOT } from './harness.ts';
import { hostileCommand } from './hostile/main.ts';
import { isolationCommand } from './isolation/main.ts';
import { kneeCommand } from './knee.ts';
import { limitsCommand } from './limits/main.ts';
import { UsageError } from './load/command/values.ts';
import { loadMain } from './load/main.ts';
import {
  allJobs,
  boundsJobs,
  canonicalJobs,
  componentJobs,
  type Job,
  microJobs,
  pairJobs,
  peerJobs,
  type Settings,
  systemJobs,
} from './plan.ts';
import { powerCutCommand } from './power-cut.ts';
import { projectsCommand } from './projects/main.ts';
import { ratesCommand } from './rates.ts';
import { rewriteReport, writeReport } from './report.ts';
import { runJobs } from './runner.ts';
import { sinksCommand } from './sinks/main.ts';
import { spanBatchesCommand } from './span-batches.ts';
import { type Summary, summarise } from './summary.ts';
import { summaryText } from './text.ts';

const OPTIONS = {
  rounds: { type: 'string' },
  seed: { type: 'string', default: '1' },
  out: { type: 'string' },
  json: { type: 'boolean', default: false },
  smoke: { type: 'boolean', default: false },
  runs: { type: 'string', default: '6' },
  scenario: { type: 'string', default: 'canonical' },
  beside: { type: 'string' },
} as const;
const ROUNDS = 3;

type Flags = ReturnType<typeof parseFlags>['values'];
function parseFlags(args: string[]) {
  try {
    return parseArgs({ args, options: OPTIONS, allowPositionals: true });
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

const say = (line: string): void => {
  process.stderr.write(`${line}\n`);
};

function count(name: string, text: string): number {
  if (!/^[1-9]\d*$/.test(text)) throw new UsageError(`--${name}: a whole number from 1`);
  return Number(text);
}

function settingsOf(flags: Flags): Settings {
  const rounds = count('rounds', flags.rounds ?? `${flags.smoke ? 1 : ROUNDS}`);
  const bins = ensureServers(hostEnvironment(), say);
  return { bins, dist: OWN_DIST, seed: count('seed', flags.seed), rounds, smoke: flags.smoke, say };
}

const JOBS: Record<string, (settings: Settings, names: readonly string[]) => Job[]> = {
  canonical: canonicalJobs,
  component: componentJobs,
  micro: microJobs,
  pairs: (settings) => pairJobs(settings),
  peers: peerJobs,
  all: allJobs,
  bounds: boundsJobs,
  system: (settings, names) => systemJobs(names, settings),
};

/** No figure stands for a run in which something failed. */
const failed = ({ system, peers, pairs, failedJobs }: Summary): boolean =>
  failedJobs.length > 0 || [...system, ...peers, ...pairs].some(({ problems }) => problems.length > 0);

async function bench(command: string, names: readonly string[], flags: Flags): Promise<number> {
  if (command === 'pairs' && names[0] !== undefined) return pairWith(names[0], flags);
  const jobs = JOBS[command];
  if (!jobs) throw new UsageError(`no command ${command}: npm run bench -- --help tells what there is`);
  return runBench((settings) => jobs(settings, names), flags, command === 'all' && !flags.smoke);
}

async function runBench(
  jobsOf: (settings: Settings) => Job[],
  flags: Flags,
  isSaved = false,
): Promise<number> {
  const settings = settingsOf(flags);
  const jobs = jobsOf(settings);
  const environment = describeEnvironment(settings.bins);
  const folder = flags.out ?? (isSaved ? resultsFolder(environment) : undefined);
  const context = { environment, seed: settings.seed };
  const records = await runJobs(jobs, settings, (found) => {
    if (folder !== undefined) writeReport(folder, found, summarise(found, context), flags.beside);
  });
  const summary = summarise(records, context);
  process.stdout.write(
    flags.json ? `${JSON.stringify(summary, undefined, 2)}\n` : `${summaryText(summary)}\n`,
  );
  if (folder !== undefined) say(`saved in ${folder}`);
  return failed(summary) ? 1 : 0;
}

const resultsFolder = (environment: Environment): string =>
  join(ROOT, 'bench/results', `${environment.date}-${machineName(environment)}`);

/** This build beside another one; a ratio above 1 says that this one costs more. */
async function pairWith(ref: string, flags: Flags): Promise<number> {
  const build = buildRef(ref);
  const base = { ref, dist: build.dist };
  try {
    return await runBench((settings) => pairJobs(settings, base), flags);
  } finally {
    build.remove();
  }
}

async function compare(refs: readonly string[], flags: Flags): Promise<number> {
  const [a, b] = refs;
  if (a === undefined || b === undefined) throw new UsageError('compare needs two git refs');
  const settings = settingsOf(flags);
  const comparison = await compareRefs({
    refs: [a, b],
    runs: count('runs', flags.runs),
    scenario: flags.scenario,
    settings,
  });
  process.stdout.write(
    flags.json ? `${JSON.stringify(comparison, undefined, 2)}\n` : `${comparisonText(comparison)}\n`,
  );
  return comparison.problems.length > 0 ? 1 : 0;
}

/** Commands with a command line of their own; a new one is a file and a row here, and a line in README.md. */
const OWN: Readonly<Record<string, (args: string[]) => Promise<number>>> = {
  load: (args) => loadMain(args, surroundings(args)),
  knee: kneeCommand,
  generator: generatorCommand,
  limits: limitsCommand,
  isolation: isolationCommand,
  hostile: hostileCommand,
  projects: projectsCommand,
  sinks: sinksCommand,
  rates: ratesCommand,
  'power-cut': powerCutCommand,
  otlp: spanBatchesCommand,
};

async function main(args: string[]): Promise<number> {
  const own = OWN[args[0] ?? ''];
  if (own) return own(args.slice(1));
  const { values: flags, positionals } = parseFlags(args);
  const [command = 'canonical', ...names] = positionals;
  if (command === 'compare') return compare(names, flags);
  if (command !== 'report') return bench(command, names, flags);
  if (names[0] === undefined) throw new UsageError('report needs a folder');
  process.stdout.write(`${summaryText(rewriteReport(names[0], flags.beside))}\n`);
  return 0;
}

/** Ctrl-C: the servers and commands see our end of their pipes close and leave by themselves. */
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(130));
try {
  process.exit(await main(process.argv.slice(2)));
} catch (error) {
  if (!(error instanceof UsageError)) throw error;
  say(error.message);
  process.exit(2);
}
