import { statfsSync } from 'node:fs';
import { Command } from 'commander';
import { type Config, ConfigError, isSet, loadConfig } from '../config.ts';
import { LINES_PER_SEC_MAX, type RequestLines } from '../http/metrics/request-log.ts';
import { runIngest } from '../ingest/primary.ts';
import { createLog, type Log } from '../lib/log.ts';
import { untilStopped } from '../lib/shutdown.ts';
import { bytesText } from '../stream/setup/config-diff.ts';

/**
 * Of ingest alone: other programs share its settings, and not its number of workers.
 * @throws ConfigError when a body may be larger than a project's half of a worker's part
 */
function checkSpoolBound({ spoolMaxBytes, maxDecompressedBytes, workers }: Config): void {
  const least = 2 * maxDecompressedBytes * workers;
  if (spoolMaxBytes >= least) return;
  throw new ConfigError(
    `SLUICE_SPOOL_MAX_BYTES must be at least ${least}: twice SLUICE_MAX_DECOMPRESSED_BYTES for each of ${workers} workers`,
  );
}

/**
 * Spool files have no names, so only ingest itself bounds them: they must never fill a volume that
 * other programs share.
 * @throws ConfigError when the bound was set and the volume can never hold as much
 */
function checkSpoolVolume({ spoolDir, spoolMaxBytes }: Config, log: Log): void {
  let volume: { size: number; free: number };
  try {
    const { blocks, bavail, bsize } = statfsSync(spoolDir);
    volume = { size: blocks * bsize, free: bavail * bsize };
  } catch (error) {
    // Large envelopes get 503 until the folder is there.
    log.warn({ err: error, spoolDir }, 'the spool folder cannot be looked at (SLUICE_SPOOL_DIR)');
    return;
  }
  const { size, free } = volume;
  if (size < spoolMaxBytes && isSet('SLUICE_SPOOL_MAX_BYTES'))
    throw new ConfigError(
      `SLUICE_SPOOL_MAX_BYTES is ${bytesText(spoolMaxBytes)}, and the volume of ${spoolDir} has ${bytesText(size)}`,
    );
  if (free < spoolMaxBytes)
    log.warn({ spoolDir, free, spoolMaxBytes }, 'the spool may take more than its volume has free');
}

const SECOND_MS = 1_000;

/**
 * A line per request; above LINES_PER_SEC_MAX in a second, one summary for that second instead of
 * the rest.
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

export function ingestCommand(): Command {
  return new Command('ingest')
    .description('receive envelopes and heartbeats: a primary and SLUICE_WORKERS workers on one port')
    .action(async () => {
      const { config, ignored } = loadConfig();
      const log = createLog(config.logLevel, { process: 'ingest' });
      if (ignored.length > 0) log.info({ ignored }, 'names of Kubernetes service links were ignored');
      checkSpoolBound(config);
      checkSpoolVolume(config, log);
      // Only development workers say anything.
      const printer = new RequestPrinter((line) => console.log(line));
      const stopped = untilStopped(); // also before it has started: it leaves no worker behind
      const ingest = await runIngest(config, log, (lines) => printer.add(lines));
      await stopped;
      await ingest.stop();
      // A connection attempt of the primary cannot be cancelled, and it has nothing to lose.
      process.exit(0);
    });
}
