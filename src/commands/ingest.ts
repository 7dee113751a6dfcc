import { Command } from 'commander';
import { loadConfig } from '../config.ts';
import { LINES_PER_SEC_MAX, type RequestLines } from '../ingest/http/metrics/request-log.ts';
import { nativeProblem, thisProgram } from '../ingest/native.ts';
import { type RunningIngest, runIngest } from '../ingest/primary.ts';
import { createLog } from '../lib/log.ts';
import { untilStopped } from '../lib/shutdown.ts';
import { ingestProblems, volumeOf } from './ingest-settings.ts';
import { printLine } from './print.ts';

const SECOND_MS = 1_000;

/**
 * Prints a line per request. When more than LINES_PER_SEC_MAX requests come in a second, a summary
 * of that second replaces the remaining lines.
 */
class RequestPrinter {
  readonly #print: (line: string) => void;
  #printed = 0;
  #unprinted = 0;
  #outcomes: Record<string, number> = {};
  #timer: NodeJS.Timeout | undefined;

  constructor(print: (line: string) => void) {
    this.#print = print;
  }

  add({ lines, total, outcomes }: RequestLines): void {
    this.#timer ??= setTimeout(() => this.#summarise(), SECOND_MS);
    const shown = lines.slice(0, LINES_PER_SEC_MAX - this.#printed);
    for (const line of shown) this.#print(line);
    this.#printed += shown.length;
    this.#unprinted += total - shown.length;
    for (const [outcome, count] of Object.entries(outcomes)) {
      this.#outcomes[outcome] = (this.#outcomes[outcome] ?? 0) + count;
    }
  }

  #summarise(): void {
    if (this.#unprinted > 0) {
      const parts = Object.entries(this.#outcomes).map(([outcome, count]) => `${outcome} ${count}`);
      const total = this.#printed + this.#unprinted;
      this.#print(`${new Date().toISOString()} ${total} requests in a second: ${parts.join(', ')}`);
    }
    this.#printed = 0;
    this.#unprinted = 0;
    this.#outcomes = {};
    this.#timer = undefined;
  }
}

/**
 * Starts ingest with the settings of `env`, in this process and its workers. In development it
 * prints a line for each request.
 * @throws ConfigError for wrong settings, PortError when a port is taken
 */
export async function startIngest(env?: NodeJS.ProcessEnv): Promise<RunningIngest> {
  const { config, ignored } = loadConfig(env, { alsoCheck: ingestProblems });
  const log = createLog(config.logLevel, { process: 'ingest' });
  if (ignored.length > 0) log.info({ ignored }, 'names of Kubernetes service links were ignored');
  const { spoolDir, spoolMaxBytes } = config;
  const free = volumeOf(spoolDir)?.free ?? 0;
  if (free < spoolMaxBytes)
    log.warn({ spoolDir, free, spoolMaxBytes }, 'the spool may take more than its volume has free');
  // Only workers in development send lines to print.
  const printer = new RequestPrinter(printLine);
  return runIngest(config, log, { env, onRequests: (lines) => printer.add(lines) });
}

export function ingestCommand(): Command {
  return new Command('ingest')
    .description('receive envelopes and heartbeats: a primary and SLUICE_WORKERS workers on one port')
    .action(async () => {
      const problem = nativeProblem(thisProgram('ingest'));
      if (problem) throw new Error(problem);
      const stopped = untilStopped(); // before the start, so that a stop meanwhile leaves no worker
      const ingest = await startIngest();
      await stopped;
      await ingest.stop();
      // The process ends even if the primary is still connecting: a connection attempt cannot be
      // cancelled, and nothing is lost with it.
      process.exit(0);
    });
}
