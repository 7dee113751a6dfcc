import { statfsSync } from 'node:fs';
import { Command } from 'commander';
import { type Config, ConfigError, isSet, loadConfig } from '../config.ts';
import { RequestPrinter } from '../dev/request-printer.ts';
import { runIngest } from '../ingest/primary.ts';
import { createLog, type Log } from '../lib/log.ts';
import { untilStopped } from '../lib/shutdown.ts';
import { bytesText } from '../stream/setup/config-diff.ts';

/**
 * Spool files have no names, so nobody else bounds them: a volume that other programs share must
 * never be filled by them.
 * @throws ConfigError when the bound was set and the volume can never hold as much
 */
function checkSpoolVolume({ spoolDir, spoolMaxBytes }: Config, log: Log): void {
  let volume: { size: number; free: number };
  try {
    const { blocks, bavail, bsize } = statfsSync(spoolDir);
    volume = { size: blocks * bsize, free: bavail * bsize };
  } catch (error) {
    // Large envelopes get 503 until the folder is there.
    log.warn({ err: error, spoolDir }, 'the spool folder cannot be looked at');
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

export function ingestCommand(): Command {
  return new Command('ingest')
    .description('receive envelopes and heartbeats: a primary and SLUICE_WORKERS workers on one port')
    .action(async () => {
      const { config, ignored } = loadConfig();
      const log = createLog(config.logLevel, { process: 'ingest' });
      if (ignored.length > 0) log.info({ ignored }, 'names of Kubernetes service links were ignored');
      checkSpoolVolume(config, log);
      // Only development workers say anything.
      const printer = new RequestPrinter((line) => console.log(line));
      const stopped = untilStopped(); // also before it has started: it leaves no worker behind
      const ingest = await runIngest(config, log, (lines) => printer.add(lines));
      await stopped;
      await ingest.stop();
    });
}
