/** One run: a backlog of frames in the canonical mix, a fresh processor with one sink, and what it used to empty the streams. */
import { type ChildProcess, fork } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { headers } from '@nats-io/transport-node';
import { freePort } from '../../src/commands/dev/servers.ts';
import { childEnvironment } from '../../src/config.ts';
import type { ItemType } from '../../src/lib/item-types.ts';
import { createLog } from '../../src/lib/log.ts';
import { type EnvelopeEntry, encodeEntry, encodeFrame } from '../../src/stream/frame.ts';
import { NatsLink } from '../../src/stream/nats.ts';
import { setupTopology } from '../../src/stream/setup/setup.ts';
import { startBroker } from '../broker.ts';
import { STREAM_BYTES_FULL, STREAM_BYTES_SMOKE } from '../harness.ts';
import { cpuUs, peakRssBytes } from '../processes.ts';
import { hex, integer, pick, type Random, seededRandom } from '../random.ts';
import { scrape, total } from '../scrape.ts';
import { CANONICAL_MIX, itemsOf, type Kind } from '../workload.ts';
import type { Store } from './stores.ts';

export type SinkRun = {
  /** Items of the backlog; the first quarter warms up and is not measured. */
  items: number;
  payloadBytes: number;
  itemsPerSec: number;
  processorUsPerItem: number;
  processorRssBytes: number;
  storeUsPerItem: number | undefined;
  storeBytes: number | undefined;
};
export type RunOptions = {
  dist: string;
  natsBin: string;
  seed: number;
  envelopes: number;
  smoke: boolean;
};

const FRAME_ENTRIES = 64;
const PUBLISHES_IN_FLIGHT = 16;
const DRAIN_MS_MAX = 180_000;
/** Each sample costs the processor a millisecond. */
const SAMPLE_MS = 250;
const WARM_SHARE = 0.25;
const STREAMS: Readonly<Record<string, string>> = {
  event: 'events',
  transaction: 'transactions',
  log: 'logs',
  replay: 'replays',
};

const KINDS = Object.entries(CANONICAL_MIX).flatMap(([kind, share]) => Array<Kind>(share).fill(kind as Kind));

function entryOf(kind: Kind, random: Random, receivedAt: number): EnvelopeEntry {
  const items = itemsOf(kind, random).map(({ header, payload }, index) => ({
    index,
    type: header.type as ItemType,
    header: Buffer.from(JSON.stringify(header)),
    length: payload.length,
    payload,
  }));
  const projectId = `${integer(random, 1, 50)}`;
  const month = new Date(receivedAt).toISOString().slice(0, 7);
  const sdk = 'sentry.javascript.browser/10.0.0';
  const eventId = hex(random, 32);
  return { kind: 'envelope', projectId, eventId, receivedAt, sdk, month, position: 1, items };
}

/** Frames as workers would publish them under load. */
async function fillStreams(
  link: NatsLink,
  { seed, envelopes }: RunOptions,
): Promise<{ items: number; payloadBytes: number }> {
  const random = seededRandom(seed);
  const filling = new Map<Kind, Uint8Array[]>();
  const now = Date.now();
  const sum = { items: 0, payloadBytes: 0 };
  let published = 0;
  let inFlight: Promise<unknown>[] = [];
  const publish = async (kind: Kind): Promise<void> => {
    const entries = filling.get(kind) ?? [];
    filling.set(kind, []);
    if (entries.length === 0) return;
    const out = headers();
    out.set('Nats-Msg-Id', `bench:${++published}`);
    inFlight.push(link.js.publish(`sluice.${STREAMS[kind]}.0`, encodeFrame(entries), { headers: out }));
    if (inFlight.length < PUBLISHES_IN_FLIGHT) return;
    await Promise.all(inFlight);
    inFlight = [];
  };
  for (let n = 0; n < envelopes; n++) {
    const kind = pick(random, KINDS);
    const entry = entryOf(kind, random, now + n);
    sum.items += entry.items.length;
    sum.payloadBytes += entry.items.reduce((bytes, { length }) => bytes + length, 0);
    const entries = filling.get(kind) ?? [];
    filling.set(kind, entries);
    entries.push(encodeEntry(entry));
    // A frame has at most half a megabyte.
    if (entries.length >= (kind === 'replay' ? FRAME_ENTRIES / 4 : FRAME_ENTRIES)) await publish(kind);
  }
  for (const kind of filling.keys()) await publish(kind);
  await Promise.all(inFlight);
  return sum;
}

type Sample = { at: number; items: number; cpuUs: number; storeUs: number | undefined };

/** Samples the processor until the streams are empty. @returns the sample after the warm-up, and the last */
async function drain(
  child: ChildProcess,
  { url, store, items }: { url: string; store: Store; items: number },
): Promise<[Sample, Sample]> {
  let warm: Sample | undefined;
  for (const until = performance.now() + DRAIN_MS_MAX; performance.now() < until; ) {
    const metrics = await scrape(`${url}/metrics`).catch(() => undefined);
    if (child.exitCode !== null) throw new Error('the processor ended');
    const done = metrics ? total(metrics, 'sluice_processed_total') : 0;
    const sample = {
      at: performance.now(),
      items: done,
      cpuUs: cpuUs(child.pid ?? 0),
      storeUs: store.cpuUs(),
    };
    if (done >= items * WARM_SHARE) warm ??= sample;
    if (warm && done >= items && metrics && total(metrics, 'sluice_pending_messages') === 0)
      return [warm, sample];
    await new Promise((resolve) => setTimeout(resolve, SAMPLE_MS));
  }
  throw new Error('the streams were not emptied in time');
}

export async function runSink(store: Store, options: RunOptions): Promise<SinkRun> {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-bench-'));
  const nats = await startBroker(options.natsBin, join(dir, 'nats'), {});
  const link = await NatsLink.connect({ urls: [nats.url], name: 'bench', log: createLog('silent') });
  let child: ChildProcess | undefined;
  try {
    const maxBytes = options.smoke ? STREAM_BYTES_SMOKE : STREAM_BYTES_FULL;
    await setupTopology(link, { replicas: 1, shards: 1, maxBytes });
    const { items, payloadBytes } = await fillStreams(link, options);
    const port = await freePort();
    const env = childEnvironment({
      SLUICE_NATS_URL: nats.url,
      SLUICE_SINK: store.setting,
      SLUICE_ADMIN_PORT: `${port}`,
      SLUICE_LOG_LEVEL: 'error',
    });
    const stdio = ['ignore', 'ignore', 'inherit', 'ipc'] as const;
    child = fork(join(options.dist, 'cli.js'), ['processor'], { env, stdio: [...stdio] });
    const [warm, last] = await drain(child, { url: `http://127.0.0.1:${port}`, store, items });
    const measured = last.items - warm.items;
    const { storeUs } = last;
    return {
      items,
      payloadBytes,
      itemsPerSec: (measured * 1000) / (last.at - warm.at),
      processorUsPerItem: (last.cpuUs - warm.cpuUs) / measured,
      processorRssBytes: peakRssBytes(child.pid ?? 0),
      storeUsPerItem: storeUs === undefined ? undefined : (storeUs - (warm.storeUs ?? 0)) / measured,
      storeBytes: store.bytes(),
    };
  } finally {
    child?.kill('SIGKILL');
    await link.close();
    await nats.stop();
    rmSync(dir, { recursive: true, force: true });
  }
}
