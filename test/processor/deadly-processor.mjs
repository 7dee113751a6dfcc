/**
 * A processor of the build whose process ends at once when a record holds the word poison, and, with UNLUCKY in its environment, when the
 * sink is about to store a record that holds the word unlucky.
 */
import { loadConfig } from '../../dist/config.js';
import { createLog } from '../../dist/lib/log.js';
import { runProcessor } from '../../dist/processor/processor.js';
import { NdjsonSink } from '../../dist/sink/ndjson/ndjson.js';

const log = createLog('silent');
const { config } = loadConfig();
const sink = await NdjsonSink.lock(config.sinks[0].dir, { log });

function begin(inner) {
  const batch = inner.begin();
  const add = batch.add.bind(batch);
  const commit = batch.commit.bind(batch);
  let unlucky = false;
  batch.add = (row) => {
    const json = Buffer.from(row.json);
    if (json.includes('poison')) process.kill(process.pid, 'SIGKILL');
    unlucky ||= json.includes('unlucky');
    return add(row);
  };
  batch.commit = (options) => {
    if (unlucky && process.env.UNLUCKY) process.kill(process.pid, 'SIGKILL');
    return commit(options);
  };
  return batch;
}

const deadly = {
  open: async (stream) => {
    const inner = await sink.open(stream);
    return { begin: () => begin(inner) };
  },
  close: () => sink.close(),
};
const processor = await runProcessor(config, log, { sink: deadly });
process.once('disconnect', () => processor.stop());
