/** A processor of the build whose process ends at once when a record holds the word poison. */
import { loadConfig } from '../../dist/config.js';
import { createLog } from '../../dist/lib/log.js';
import { NdjsonSink } from '../../dist/processor/sink/ndjson.js';
import { runProcessor } from '../../dist/processor.js';

const log = createLog('silent');
const { config } = loadConfig();
const sink = await NdjsonSink.lock(config.sink.dir, { log });

function begin(inner) {
  const batch = inner.begin();
  const add = batch.add.bind(batch);
  batch.add = (row) => {
    if (Buffer.from(row.json).includes('poison')) process.kill(process.pid, 'SIGKILL');
    return add(row);
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
