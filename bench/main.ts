/** `npm run bench`: the commands. Without one: the canonical workload and the speeds of light, in a few minutes. */
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { ensureServers } from '../src/commands/dev/install.ts';
import { surroundings } from '../src/commands/load/load.ts';
import { hostEnvironment } from '../src/config.ts';
import { buildRef, compareRefs, comparisonText } from './compare.ts';
import { describeEnvironment, type Environment, machineName } from './environment.ts';
import { OWN_DIST, ROOT } from './harness.ts';
import { isolationCommand } from './isolation/main.ts';
import { limitsCommand } from './limits/main.ts';
import { UsageError } from './load/command/values.ts';
import { loadMain } from './load/main.ts';
import { mergedCommand } from './merged.ts';
import {
  allJobs,
  boundsJobs,
  canonicalJobs,
  componentJobs,
  framingJobs,
  type Job,
  microJobs,
  pairJobs,
  peerJobs,
  type Settings,
  systemJobs,
} from './plan.ts';
import { projectsCommand } from './projects/main.ts';
import { rewriteReport, writeReport } from './report.ts';
import { runJobs } from './runner.ts';
import { simCommand } from './sim/main.ts';
import { sinksCommand } from './sinks/main.ts';
import { type Summary, summarise } from './summary.ts';
import { summaryText } from './text.ts';

const USAGE = `npm run bench [-- COMMAND …]

  (none)                the canonical workload beside the speeds of light, three rounds
  system [SCENARIO …]   the whole system; all scenarios when none is named
  component             bare uWebSockets.js, bare Redis script, bare JetStream
  framing               frames against one message per item, at 1 to 256 connections; what a frame adds at rest
  micro                 parser, frames, lease cache, filters, auth, decompression, scrub
  pairs [REF]           two servers up at once, loaded in turn: what costs how much more than what; with REF this build beside that one
  peers                 the canonical workload and single events against Fastify, and Bento where it is found (BENTO_BIN)
  all                   all of these but framing, saved below bench/results
  bounds                what the figures of "one beside another" are made from
  compare A B           two git refs alternately; . is this checkout  [--runs 6] [--scenario canonical]
  report FOLDER         summary and report anew from the raw lines of a folder
  load …                load against any deployment
  merged                two generators merged beside one of twice the rate
  limits [SHOW …]       the limiter in real processes: windows flood refusals calls  [--limit N]
  isolation             attacks of one project beside the traffic of another  [--seconds 20] [--only PART]
  projects              a million projects: start, memory, restarts of the broker  [--projects N] [--restarts N] [--ref REF]
  sinks [NAME …]        what each sink costs the processor, beside ndjson  [--envelopes N]
  sim                   the limiter's error and Redis calls against the length of a lease

  --rounds N  --seed N  --out FOLDER (save there)  --json  --smoke (seconds; the figures mean nothing)
`;

const OPTIONS = {
  rounds: { type: 'string' },
  seed: { type: 'string', default: '1' },
  out: { type: 'string' },
  json: { type: 'boolean', default: false },
  smoke: { type: 'boolean', default: false },
  runs: { type: 'string', default: '6' },
  scenario: { type: 'string', default: 'canonical' },
  help: { type: 'boolean', short: 'h', default: false },
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
  framing: framingJobs,
  micro: microJobs,
  pairs: (settings) => pairJobs(settings),
  peers: peerJobs,
  all: allJobs,
  bounds: boundsJobs,
  system: (settings, names) => systemJobs(names, settings),
};

/** No figure stands for a run in which something failed. */
const failed = ({ system, peers, pairs, framingProblems, failedJobs }: Summary): boolean =>
  failedJobs.length + framingProblems.length > 0 ||
  [...system, ...peers, ...pairs].some(({ problems }) => problems.length > 0);

async function bench(command: string, names: readonly string[], flags: Flags): Promise<number> {
  if (command === 'pairs' && names[0] !== undefined) return pairWith(names[0], flags);
  const jobs = JOBS[command];
  if (!jobs) throw new UsageError(`no command ${command}\n\n${USAGE}`);
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
    if (folder !== undefined) writeReport(folder, found, summarise(found, context));
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

async function main(args: string[]): Promise<number> {
  if (args[0] === 'load') return loadMain(args.slice(1), surroundings(args));
  if (args[0] === 'merged') return mergedCommand();
  if (args[0] === 'limits') return limitsCommand(args.slice(1));
  if (args[0] === 'isolation') return isolationCommand(args.slice(1));
  if (args[0] === 'projects') return projectsCommand(args.slice(1));
  if (args[0] === 'sinks') return sinksCommand(args.slice(1));
  if (args[0] === 'sim') return simCommand(args.slice(1));
  const { values: flags, positionals } = parseFlags(args);
  const [command = 'canonical', ...names] = positionals;
  if (flags.help) {
    process.stdout.write(USAGE);
    return 0;
  }
  if (command === 'compare') return compare(names, flags);
  if (command !== 'report') return bench(command, names, flags);
  if (names[0] === undefined) throw new UsageError('report needs a folder');
  process.stdout.write(`${summaryText(rewriteReport(names[0]))}\n`);
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
