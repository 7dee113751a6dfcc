/**
 * What framing adds to one entry when nothing else is there: from handing it to the publisher to the acknowledgement, against a bare
 * publish of the same bytes, one after the other, each way in turn so that a slow moment of the machine hits all alike.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock as clock } from '../../src/lib/clock.ts';
import { createLog } from '../../src/lib/log.ts';
import { ANSWER_MS_MAX } from '../../src/limits.ts';
import { encodeEntry, encodeFrame } from '../../src/stream/frame.ts';
import { NatsLink } from '../../src/stream/nats.ts';
import { Publisher } from '../../src/stream/publish/publisher.ts';
import { setupTopology } from '../../src/stream/setup/setup.ts';
import { streamSubject } from '../../src/stream/topology.ts';
import { type BrokerOptions, startBroker } from '../broker.ts';
import { eventEntry } from '../entries.ts';
import { seededRandom } from '../random.ts';
import { median } from '../statistics.ts';

export type DelayOptions = { bin: string; broker: BrokerOptions; warmupMs: number; durationMs: number };
export type DelayRow = { way: 'frame' | 'bare publish'; count: number; p50Ms: number };

const STREAM_MAX_BYTES = 1024 ** 3;

type Way = { way: DelayRow['way']; send(): Promise<unknown>; tookMs: number[] };

async function goRound(ways: readonly Way[], durationMs: number): Promise<void> {
  for (const { tookMs } of ways) tookMs.length = 0;
  let turned = ways;
  for (const end = performance.now() + durationMs; performance.now() < end; ) {
    turned = turned.toReversed();
    for (const { send, tookMs } of turned) {
      const from = performance.now();
      await send();
      tookMs.push(performance.now() - from);
    }
  }
}

function waysOf(link: NatsLink): Way[] {
  const publisher = new Publisher({ link, shards: 1, clock, log: createLog('silent') });
  const entry = eventEntry(seededRandom(1));
  const bytes = encodeFrame([encodeEntry(entry)]);
  const frame = () =>
    new Promise<void>((resolve, reject) => {
      publisher.publish(entry, { deadline: clock.monotonic() + ANSWER_MS_MAX }, (result) =>
        result === 'stored' ? resolve() : reject(new Error(`an entry was ${result}`)),
      );
    });
  const bare = () => link.js.publish(streamSubject('events', 0), bytes);
  return [
    { way: 'frame', send: frame, tookMs: [] },
    { way: 'bare publish', send: bare, tookMs: [] },
  ];
}

/** Starts a broker of its own. @throws when a publish fails */
export async function runDelay({ bin, broker, warmupMs, durationMs }: DelayOptions): Promise<DelayRow[]> {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-bench-nats-'));
  const server = await startBroker(bin, dir, broker);
  try {
    const link = await NatsLink.connect({ urls: [server.url], name: 'bench', log: createLog('silent') });
    await setupTopology(link, { replicas: 1, shards: 1, maxBytes: STREAM_MAX_BYTES });
    const ways = waysOf(link);
    await goRound(ways, warmupMs);
    await goRound(ways, durationMs);
    await link.close();
    return ways.map(({ way, tookMs }) => ({ way, count: tookMs.length, p50Ms: median(tookMs) }));
  } finally {
    await server.stop();
    rmSync(dir, { recursive: true, force: true });
  }
}
