import { statfsSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { Command } from 'commander';
import { loadConfig, type SoundSettings } from '../config.ts';
import { LINES_PER_SEC_MAX, type RequestLines } from '../http/metrics/request-log.ts';
import { ADMIN_PORT, runIngest } from '../ingest/primary.ts';
import { allowedCpus } from '../lib/files/allowed-cpus.ts';
import { createLog } from '../lib/log.ts';
import { untilStopped } from '../lib/shutdown.ts';
import { SPOOL_BYTES_MAX } from '../limits.ts';
import { bytesText } from '../stream/setup/config-diff.ts';

/**
 * What is wrong for ingest alone: other programs share its settings, and not its ports, its number
 * of workers or its spool. Spool files have no names, so only ingest itself bounds them: they must
 * never fill a volume that other programs share.
 */
function ingestProblems(settings: SoundSettings): string[] {
  const { SLUICE_PORT: port, SLUICE_SPOOL_DIR: dir = tmpdir(), SLUICE_SPOOL_MAX_BYTES: bound } = settings;
  const { SLUICE_MAX_DECOMPRESSED_BYTES: bytes = 0, SLUICE_WORKERS: workers = allowedCpus() } = settings;
  const least = 2 * bytes * workers;
  const problems: string[] = [];
  if (settings.SLUICE_ADMIN_PORT === undefined && port === ADMIN_PORT)
    problems.push(`SLUICE_ADMIN_PORT (${ADMIN_PORT} unless it is set) must differ from SLUICE_PORT`);
  if ((bound ?? SPOOL_BYTES_MAX * workers) < least)
    problems.push(
      `SLUICE_SPOOL_MAX_BYTES must be at least ${least}: twice SLUICE_MAX_DECOMPRESSED_BYTES for each of ${workers} workers`,
    );
  const volume = volumeOf(dir);
  if (!volume) problems.push(`SLUICE_SPOOL_DIR must be a folder that is there and can be looked at: ${dir}`);
  else if (bound && volume.size < bound)
    problems.push(
      `SLUICE_SPOOL_MAX_BYTES is ${bytesText(bound)}, and the volume of ${dir} has ${bytesText(volume.size)}`,
    );
  return problems;
}

function volumeOf(dir: string): { size: number; free: number } | undefined {
  try {
    const { blocks, bavail, bsize } = statfsSync(dir);
    return statSync(dir).isDirectory() ? { size: blocks * bsize, free: bavail * bsize } : undefined;
  } catch {
    return undefined;
  }
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
      const { config, ignored } = loadConfig(undefined, { alsoCheck: ingestProblems });
      const log = createLog(config.logLevel, { process: 'ingest' });
      if (ignored.length > 0) log.info({ ignored }, 'names of Kubernetes service links were ignored');
      const { spoolDir, spoolMaxBytes } = config;
      const free = volumeOf(spoolDir)?.free ?? 0;
      if (free < spoolMaxBytes)
        log.warn({ spoolDir, free, spoolMaxBytes }, 'the spool may take more than its volume has free');
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
