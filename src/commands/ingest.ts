import { Command } from 'commander';
import { loadConfig } from '../config.ts';
import { RequestPrinter } from '../dev/request-printer.ts';
import { runIngest } from '../ingest/primary.ts';
import { createLog } from '../lib/log.ts';
import { untilStopped } from '../lib/shutdown.ts';

export function ingestCommand(): Command {
  return new Command('ingest')
    .description('receive envelopes and heartbeats: a primary and SLUICE_WORKERS workers on one port')
    .action(async () => {
      const { config, ignored } = loadConfig();
      const log = createLog(config.logLevel, { process: 'ingest' });
      if (ignored.length > 0) log.info({ ignored }, 'names of Kubernetes service links were ignored');
      // Only development workers say anything.
      const printer = new RequestPrinter((line) => console.log(line));
      const stopped = untilStopped(); // also before it has started: it leaves no worker behind
      const ingest = await runIngest(config, log, (lines) => printer.add(lines));
      await stopped;
      await ingest.stop();
    });
}
