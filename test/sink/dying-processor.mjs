/** `sluice processor` of the build, whose sink ends the process before or after its n-th commit. Settings come as for the program. */
const { loadConfig } = await import('../../dist/config.js');
const { createLog } = await import('../../dist/lib/log.js');
const { runProcessor } = await import('../../dist/processor/processor.js');
const { systemClock } = await import('../../dist/lib/clock.js');
const { openSinks } = await import('../../dist/sink/open-sinks.js');

const [, , moment, nth] = process.argv;
const { config } = loadConfig();
const log = createLog('error');
const sink = await openSinks(config.sinks, { clock: systemClock, log });

let commits = 0;
const dieAt = (now, commit) => {
  if (now === moment && commit === Number(nth)) process.kill(process.pid, 'SIGKILL');
};
const { open } = sink;
sink.open = async (stream) => {
  const inner = await open.call(sink, stream);
  const begin = async (frameIds) => {
    const batch = await inner.begin(frameIds);
    const { commit } = batch;
    batch.commit = async (options) => {
      const own = ++commits; // a sink that holds batches may be given the next one meanwhile
      dieAt('before', own);
      const counts = await commit.call(batch, options);
      dieAt('after', own);
      return counts;
    };
    return batch;
  };
  return { begin };
};
await runProcessor(config, log, { sink });
