/**
 * Runs `sluice load`, which is also `npm run bench -- load`: makes a load run, or merges the
 * results of several, and writes the results.
 */
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { appendFileSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  type Defaults,
  type LoadCommand,
  type Output,
  outputOf,
  parseFlags,
  parseLoadCommand,
  partsOf,
  thresholdsOf,
  urlsOf,
} from './command/flags.ts';
import { LOAD_USAGE } from './command/usage.ts';
import { UsageError } from './command/values.ts';
import {
  DocumentError,
  documentIn,
  machineOf,
  type RunDocument,
  readDocument,
  settingsOf,
} from './document.ts';
import { joinSteps, MergeError, mergeParallel } from './merge.ts';
import { generatorOf, type LoadHooks, type LoadOptions, workloadOf } from './options.ts';
import { findKnee, type Knee } from './pace/knee.ts';
import type { LoadResult, Second } from './result.ts';
import { ApiError, createProjects } from './send/projects.ts';
import { harmless } from './show/figures.ts';
import { junitXml } from './show/junit.ts';
import { LiveView } from './show/live.ts';
import { reportHtml } from './show/report.ts';
import { ServerWatch } from './show/server-watch.ts';
import { summaryMarkdown } from './show/summary.ts';
import { documentText } from './show/text.ts';
import { type Check, checksOf, unstoredChecks, violations } from './thresholds.ts';
import { Ledger } from './verify/ledger.ts';
import { commandReader, type StoredReader } from './verify/stored.ts';
import { apiUsage, pageUsage } from './verify/usage.ts';
import { reasonOf, Verifier } from './verify/verify.ts';

/** What the load tester gets from the program that contains it. */
export type Surroundings = {
  defaults: Defaults;
  /** Bearer token of the management API. */
  token: string | undefined;
  /** @throws when --verify cannot read this kind of sink */
  openSink(sink: string | undefined): Promise<StoredReader>;
};

const PREFIX_BYTES = 12;
/** Time for the start of a process; one with a core of its own needs a third of it. */
const PROCESS_START_MS = 1_000;

const say = (line: string): void => {
  process.stderr.write(`${harmless(line)}\n`);
};

/**
 * Whether messages are left out. With `--json -`, standard output has only the JSON. The log of a
 * pod mixes standard output with standard error, so standard error is left empty too, unless it is
 * a terminal. Failures are in the JSON and in the exit status.
 */
const isSilent = ({ json }: Output): boolean => json === '-' && !process.stderr.isTTY;
const sayer = (output: Output): typeof say => (isSilent(output) ? () => undefined : say);

/**
 * Runs the command. Prints each failure as one sentence on standard error.
 * @returns the exit status
 */
export async function loadMain(args: string[], surroundings: Surroundings): Promise<number> {
  try {
    if (args[0] === 'merge') return mergeCommand(args.slice(1));
    if (args.includes('--help') || args.includes('-h')) {
      process.stdout.write(`${LOAD_USAGE}\n`);
      return 0;
    }
    return await runCommand(args, surroundings);
  } catch (error) {
    const isUsage = (error as Error).name === 'UsageError';
    const isKnown = isUsage || [ApiError, DocumentError, MergeError].some((kind) => error instanceof kind);
    if (!isKnown) throw error;
    const { message, cause } = error as Error;
    say(`sluice load: ${message}${cause instanceof Error ? `: ${cause.message}` : ''}`);
    return isUsage ? 2 : 1;
  }
}

/** Creates the projects that `--projects` asks for, and returns the options with these projects. */
async function withProjects(command: LoadCommand, token: string | undefined): Promise<LoadOptions> {
  const { load, projects, api, output } = command;
  if (projects === undefined || api === undefined) return load;
  sayer(output)(`creates ${projects} projects`);
  const dsns = await createProjects(api, projects, token);
  const urls = load.urls && load.urls.length > 0 ? load.urls : urlsOf(undefined, dsns);
  return { ...load, url: urls[0] as string, urls, targets: dsns.map(({ target }) => target) };
}

async function runCommand(args: string[], surroundings: Surroundings): Promise<number> {
  const command = parseLoadCommand(args, surroundings.defaults);
  const { verify, output, admin } = command;
  const idPrefix = randomBytes(PREFIX_BYTES).toString('hex');
  const ledger = verify && new Ledger(idPrefix, 0, verify.command !== undefined);
  const reader =
    ledger &&
    (verify.command === undefined
      ? await surroundings.openSink(verify.sink)
      : commandReader(verify.command, () => ledger.ids()));
  try {
    const load = { ...(await withProjects(command, surroundings.token)), firstId: 0 };
    const verifier =
      reader && ledger && (await startVerifier(command, { load, ledger, reader, surroundings }));
    const watch = admin === undefined ? undefined : new ServerWatch(admin);
    await watch?.start();
    if (command.processes === 1 && command.startAt) await sleep(command.startAt.getTime() - Date.now());
    const {
      result: ran,
      knee,
      runs = [idPrefix],
    } = command.processes > 1
      ? await runParts(args, command)
      : await run(command, { ...load, idPrefix }, ledger);
    const server = await watch?.stop(new Date(ran.startedAt));
    const found = await verified(verifier);
    const result = { ...ran, unstored: { ...ran.unstored, ...ignoredIn(found) } };
    const checks: Check[] = [
      // A search for the knee breaks thresholds on purpose, so they are not checked.
      ...(knee ? kneeChecks(knee) : checksOf(result, command.thresholds)),
      ...unstoredChecks(result, command.thresholds.maxUnstored, found.verification?.emptyStored),
      ...verifyChecks(found),
    ];
    const document = documentOf(result, { runs, args, checks });
    return finish({ ...document, knee, server, ...found }, output);
  } finally {
    // The result is written by now, so a failure to close the sink is ignored.
    await reader?.close().catch(() => undefined);
  }
}

function startVerifier(
  { verify, api, admin, output }: LoadCommand,
  parts: { load: LoadOptions; ledger: Ledger; reader: StoredReader; surroundings: Surroundings },
): Promise<Verifier> {
  const { load, ledger, reader, surroundings } = parts;
  const usage = api
    ? (ids: readonly string[]) => apiUsage(api, surroundings.token, ids)
    : admin && (() => pageUsage(admin, surroundings.token));
  return Verifier.start({
    reader,
    ledger,
    waitMs: verify?.waitMs ?? 0,
    lateMs: verify?.lateMs ?? 0,
    usage: usage || undefined,
    targets: load.targets.map(({ id }) => id),
    say: sayer(output),
  });
}

type Verified = Pick<RunDocument, 'verification' | 'unverified'>;

/**
 * Ends the verification. A failure becomes `unverified`, so that the figures of the run are printed
 * all the same.
 */
async function verified(verifier: Verifier | undefined): Promise<Verified> {
  if (!verifier) return {};
  try {
    return { verification: await verifier.finish() };
  } catch (error) {
    return { unverified: reasonOf(error) };
  }
}

/**
 * Counts accepted envelopes of kinds that the server ignores: it answered 200 and stored none of
 * them.
 */
const ignoredIn = ({ verification }: Verified): Record<string, number> =>
  Object.fromEntries(
    Object.entries(verification?.ignored ?? {}).map(([kind, count]) => [`${kind} is ignored there`, count]),
  );

function verifyChecks({ verification, unverified }: Verified): Check[] {
  const name = 'what was told 200 is stored once';
  if (unverified !== undefined)
    return [{ name, figure: 'unknown', missed: `what was told 200 could not be looked up: ${unverified}` }];
  if (!verification) return [];
  const { problems, accepted, lost } = verification;
  if (problems.length === 0) return [{ name, figure: `${accepted} accepted, ${lost} lost` }];
  return problems.map((missed) => ({ name, figure: `${lost} lost`, missed }));
}

const kneeChecks = ({ lastGoodRate, steps }: Knee): Check[] => [
  {
    name: 'a rate is good',
    figure: lastGoodRate === undefined ? 'none' : `${lastGoodRate}/s`,
    ...(lastGoodRate === undefined && { missed: `not even ${steps[0]?.rate} requests/s are good` }),
  },
];

/** The first Ctrl-C ends the run and keeps what was found, the second ends the program. */
function interruption(): AbortSignal {
  const controller = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    process.once(signal, () => {
      controller.abort();
      process.once(signal, () => process.exit(130));
    });
  return controller.signal;
}

/** `runs` has the id prefixes of several processes. */
type Found = { result: LoadResult; knee?: Knee; runs?: readonly string[] };

/** Makes the function that writes a line of JSON each second to `path`. */
function streamTo(path: string | undefined): ((second: Second) => void) | undefined {
  if (path === undefined) return undefined;
  if (path !== '-') writeFileSync(path, '');
  return ({ hdr: _, ...second }) => {
    const line = `${JSON.stringify({ at: new Date().toISOString(), ...second })}\n`;
    if (path === '-') process.stdout.write(line);
    else appendFileSync(path, line);
  };
}

async function run(
  { knee: startRate, thresholds, stop, output }: LoadCommand,
  load: LoadOptions,
  ledger: Ledger | undefined,
): Promise<Found> {
  const live = new LiveView(process.stderr);
  const stream = streamTo(output.stream);
  const hooks: LoadHooks = {
    ledger,
    stop,
    signal: interruption(),
    keepHistograms: true,
    onSecond: (second) => {
      stream?.(second);
      if (!output.quiet && !isSilent(output)) live.show(second);
    },
  };
  const workload = workloadOf(load);
  if (ledger) ledger.kinds = workload.kinds;
  if (startRate === undefined) return { result: await generatorOf(load, workload, hooks).run() };
  let firstId = load.firstId ?? 0;
  const { knee, results } = await findKnee({
    startRate,
    judge: (result) => violations(result, thresholds),
    step: async (rate) => {
      const generator = generatorOf({ ...load, rate, firstId }, workload, hooks);
      const result = await generator.run();
      firstId += generator.count;
      return result;
    },
    onStep: ({ rate, good, why }) =>
      sayer(output)(`${rate}/s is ${good ? 'good' : `not good: ${why.join('; ')}`}`),
  });
  return { result: joinSteps(results), knee };
}

/**
 * Runs the child processes, each with a part of the load, and merges their results. All begin at
 * the same moment.
 * @throws DocumentError when a process prints no result
 * @throws MergeError when the results do not fit together
 */
async function runParts(args: string[], { processes, startAt, output }: LoadCommand): Promise<Found> {
  const at =
    startAt ?? new Date(Date.now() + PROCESS_START_MS * Math.ceil(1 + processes / availableParallelism()));
  sayer(output)(`${processes} processes begin at ${at.toISOString()}`);
  const signal = interruption();
  const documents = await Promise.all(
    partsOf(args, processes, at).map((part) => {
      const child = spawn(process.execPath, [process.argv[1] as string, 'load', ...part], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      signal.addEventListener('abort', () => child.kill('SIGINT'), { once: true });
      const pieces: Buffer[] = [];
      child.stdout.on('data', (piece: Buffer) => pieces.push(piece));
      return new Promise<RunDocument>((resolve, reject) => {
        child.once('error', reject);
        child.once('close', () => {
          try {
            resolve(documentIn(Buffer.concat(pieces).toString(), 'the output of a process'));
          } catch (error) {
            reject(error);
          }
        });
      });
    }),
  );
  return { result: mergeParallel(documents), runs: documents.flatMap(({ runs }) => runs) };
}

/**
 * `sluice load merge A.json B.json …`: merges the results of generators that ran at the same time.
 */
function mergeCommand(args: string[]): number {
  const { values: flags, positionals } = parseFlags(args, true);
  if (flags.help) {
    process.stdout.write(`${LOAD_USAGE}\n`);
    return 0;
  }
  if (positionals.length < 2) throw new UsageError('merge: at least two files of --json are needed');
  const documents = positionals.map(readDocument);
  const runs = documents.flatMap((document) => document.runs);
  if (new Set(runs).size < runs.length) throw new MergeError('merge: a run is in two of the files');
  const result = mergeParallel(documents);
  const thresholds = thresholdsOf(flags);
  const found = documents.flatMap(({ verification }) => verification ?? []);
  const maxUnstored = thresholds.maxUnstored ?? (found.length > 0 ? 0 : undefined);
  const unstoredFound = found.reduce((sum, { emptyStored }) => sum + emptyStored, 0);
  const checks = [
    ...checksOf(result, thresholds),
    ...unstoredChecks(result, maxUnstored, unstoredFound),
    ...documents.flatMap(verifyChecks),
  ];
  return finish(documentOf(result, { runs, args, checks }), outputOf(flags));
}

function documentOf(
  result: LoadResult,
  { runs, args, checks }: { runs: readonly string[]; args: readonly string[]; checks: readonly Check[] },
): RunDocument {
  const missed = checks.flatMap(({ missed: sentence }) => sentence ?? []);
  return { version: 2, runs, ...result, machine: machineOf(), settings: settingsOf(args), checks, missed };
}

/**
 * Prints the result and writes the files that the options name.
 * @returns the exit status
 * @throws DocumentError naming the files that could not be written
 */
function finish(document: RunDocument, output: Output): number {
  const { json, report, junit, summary, stream } = output;
  const text = `${JSON.stringify(document, undefined, 2)}\n`;
  if (stream === '-') say(documentText(document));
  else process.stdout.write(json === '-' ? text : `${harmless(documentText(document))}\n`);
  const unwritten: string[] = [];
  const write = (name: string, path: string | undefined, content: () => string): void => {
    if (path === undefined) return;
    try {
      writeFileSync(path, content(), { flag: path === summary ? 'a' : 'w' });
    } catch (error) {
      unwritten.push(`${name}: ${(error as Error).message}`);
    }
  };
  if (json !== '-') write('--json', json, () => text);
  write('--report', report, () => reportHtml(document));
  write('--junit', junit, () => junitXml(document));
  write('GITHUB_STEP_SUMMARY', summary, () => summaryMarkdown(document));
  for (const sentence of document.missed) sayer(output)(`FAILED: ${sentence}`);
  // The result is printed by now. The error makes the exit status say that a file is missing.
  if (unwritten.length > 0) throw new DocumentError(unwritten.join('\n'));
  return document.missed.length > 0 ? 1 : 0;
}
