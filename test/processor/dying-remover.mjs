/** A processor of the build that kills itself once, at the point that KILLED_AT names: on the way of a large entry's parts out of the broker. */
import { loadConfig } from '../../dist/config.js';
import { createLog } from '../../dist/lib/log.js';
import { Delivery } from '../../dist/processor/delivery.js';
import { runProcessor } from '../../dist/processor/processor.js';
import { NdjsonSink } from '../../dist/sink/ndjson/ndjson.js';
import { NatsLink } from '../../dist/stream/nats.js';

const die = (point) => {
  if (process.env.KILLED_AT === point) process.kill(process.pid, 'SIGKILL');
};

const log = createLog('silent');
const { config } = loadConfig();
const sink = await NdjsonSink.lock(config.sinks[0].dir, { log });

async function begin(inner, frameIds) {
  const batch = await inner.begin(frameIds);
  const commit = batch.commit.bind(batch);
  batch.commit = async () => {
    die('before the write');
    const counts = await commit();
    die('after the write');
    return counts;
  };
  return batch;
}

const { ackConfirmed } = Delivery.prototype;
Delivery.prototype.ackConfirmed = async function () {
  await ackConfirmed.call(this);
  die('after the acknowledgement');
};

const { manager } = NatsLink.prototype;
let removed = 0;
NatsLink.prototype.manager = async function () {
  const own = await manager.call(this);
  const { streams } = own;
  const remove = streams.deleteMessage.bind(streams);
  streams.deleteMessage = async (...args) => {
    const done = await remove(...args);
    if (++removed === 2) die('amid the removal');
    return done;
  };
  return own;
};

const dying = {
  promise: sink.promise,
  open: async (stream) => {
    const inner = await sink.open(stream);
    return { begin: (frameIds) => begin(inner, frameIds) };
  },
  close: () => sink.close(),
};
const processor = await runProcessor(config, log, { sink: dying });
process.once('disconnect', () => processor.stop());
