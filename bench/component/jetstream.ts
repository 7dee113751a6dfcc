/**
 * The speed of light of durability: one connection that publishes events to a file stream and waits for acknowledgements, once as
 * frames of many envelopes and once as one message per envelope. The difference is why there are frames.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createLog } from '../../src/lib/log.ts';
import { FRAMES_IN_FLIGHT_MAX } from '../../src/limits.ts';
import { encodeEntry, encodeFrame } from '../../src/stream/frame.ts';
import { NatsLink } from '../../src/stream/nats.ts';
import { setupTopology } from '../../src/stream/setup/setup.ts';
import { streamName, streamSubject } from '../../src/stream/topology.ts';
import { type BrokerOptions, startBroker, withLastWords } from '../broker.ts';
import { eventEntry } from '../entries.ts';
import { cpuUs } from '../processes.ts';
import { seededRandom } from '../random.ts';

export type JetStreamOptions = {
  bin: string;
  broker?: BrokerOptions | undefined;
  /** Envelopes per message. */
  frames: readonly number[];
  durationMs: number;
};
export type JetStreamRow = {
  envelopesPerMessage: number;
  messagesPerSec: number;
  envelopesPerSec: number;
  megabytesPerSec: number;
  brokerUsPerEnvelope: number;
  clientUsPerEnvelope: number;
};

const STREAM_MAX_BYTES = 128 * 1024 ** 2;
/** Of the stream that is published to, emptied before each size: some seconds of a fast disk. */
const EVENTS_MAX_BYTES = 6 * 1024 ** 3;

/** `FRAMES_IN_FLIGHT_MAX` publishers in turn, each waiting for its acknowledgement. */
async function measure(
  link: NatsLink,
  pid: number,
  { count, durationMs }: { count: number; durationMs: number },
): Promise<JetStreamRow> {
  const random = seededRandom(count);
  const message = encodeFrame(Array.from({ length: count }, () => encodeEntry(eventEntry(random))));
  let messages = 0;
  const before = { broker: cpuUs(pid), own: process.cpuUsage() };
  const startedAt = performance.now();
  const publisher = async (): Promise<void> => {
    while (performance.now() - startedAt < durationMs) {
      await link.js.publish(streamSubject('events', 0), message);
      messages++;
    }
  };
  await Promise.all(Array.from({ length: FRAMES_IN_FLIGHT_MAX }, publisher));
  const seconds = (performance.now() - startedAt) / 1000;
  const own = process.cpuUsage(before.own);
  const envelopes = messages * count;
  return {
    envelopesPerMessage: count,
    messagesPerSec: messages / seconds,
    envelopesPerSec: envelopes / seconds,
    megabytesPerSec: (messages * message.length) / seconds / 1e6,
    brokerUsPerEnvelope: (cpuUs(pid) - before.broker) / envelopes,
    clientUsPerEnvelope: (own.user + own.system) / envelopes,
  };
}

/** Starts a broker of its own and runs each size for `durationMs`. @throws when a publish fails */
export async function runJetStream(options: JetStreamOptions): Promise<JetStreamRow[]> {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-bench-nats-'));
  const server = await startBroker(options.bin, dir, options.broker ?? {});
  try {
    const link = await NatsLink.connect({ urls: [server.url], name: 'bench', log: createLog('silent') });
    await setupTopology(link, { replicas: 1, shards: 1, maxBytes: STREAM_MAX_BYTES });
    const rows: JetStreamRow[] = [];
    const { streams } = await link.manager();
    const events = streamName('events', 0, 1);
    await streams.update(events, { max_bytes: EVENTS_MAX_BYTES });
    for (const count of options.frames) {
      rows.push(await measure(link, server.pid, { count, durationMs: options.durationMs }));
      await streams.purge(events);
    }
    await link.close();
    return rows;
  } catch (error) {
    await server.stop();
    throw await withLastWords(error, server);
  } finally {
    await server.stop();
    rmSync(dir, { recursive: true, force: true });
  }
}
