import { Command } from 'commander';
import { loadConfig } from '../config.ts';
import type { RequestLines } from '../http/request-log.ts';
import { runIngest } from '../ingest.ts';
import { createLog } from '../lib/log.ts';
import { untilStopped } from '../lib/shutdown.ts';

/** Development only: each request's line as it comes. */
function print({ lines }: RequestLines): void {
  for (const line of lines) console.log(line);
}

export function ingestCommand(): Command {
  return new Command('ingest')
    .description('receive envelopes and heartbeats: a primary and SLUICE_WORKERS workers on one port')
    .action(async () => {
      const { config, ignored } = loadConfig();
      const log = createLog(config.logLevel, { process: 'ingest' });
      if (ignored.length > 0) log.info({ ignored }, 'names of Kubernetes service links were ignored');
      const ingest = await runIngest(config, log, print);
      await untilStopped();
      await ingest.stop();
    });
}
