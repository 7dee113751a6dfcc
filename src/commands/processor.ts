import { Command } from 'commander';
import { ConfigError, loadConfig } from '../config.ts';
import { createLog } from '../lib/log.ts';
import { untilStopped } from '../lib/shutdown.ts';
import { runProcessor } from '../processor/processor.ts';
import { SinkSettingError } from '../sink/unavailable.ts';
import { UsageError } from './command-error.ts';

export function processorCommand(): Command {
  return new Command('processor')
    .description('store what was accepted: from the streams into the sink (SLUICE_SINK)')
    .action(async () => {
      try {
        await run();
      } catch (error) {
        const isSetting = error instanceof ConfigError || error instanceof SinkSettingError;
        throw isSetting ? new UsageError(error.message) : error;
      }
    });
}

async function run(): Promise<void> {
  const { config, ignored } = loadConfig(undefined, { needsSink: true });
  const log = createLog(config.logLevel, { process: 'processor' });
  if (ignored.length > 0) log.info({ ignored }, 'names of Kubernetes service links were ignored');
  const stopped = untilStopped();
  const processor = await Promise.race([runProcessor(config, log), stopped]);
  // `processor` is undefined when the process was told to stop while it waited for the broker. The
  // process ends at once, because a connection attempt cannot be cancelled, and no frame is lost.
  if (!processor) process.exit(0);
  await stopped;
  await processor.stop();
}
