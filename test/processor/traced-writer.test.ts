/** Spans of sampled entries, when the sink fails and when it holds frames. */
import { headers } from '@nats-io/transport-node';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Sink, SinkBatch } from '../../src/sink/sink.ts';
import { encodeEntry, encodeFrame } from '../../src/stream/frame.ts';
import { Collector } from '../support/collector.ts';
import { FailingSink } from './failing-sink.ts';
import { envelope, eventually, Harness, hexId, item, type RunningProcessor } from './harness.ts';

const TRACES = ['0af7651916cd43dd8448eb211c80319c', '4bf92f3577b34da6a3ce929d0e0e4736'] as const;

let harness: Harness;
let collector: Collector;
let processor: RunningProcessor;
beforeEach(async () => {
  harness = await Harness.start();
  collector = await Collector.start();
});
afterEach(async () => {
  await processor.stop();
  await harness.close();
  await collector.close();
  vi.unstubAllEnvs();
});

async function process(sink: Sink): Promise<void> {
  // The SDK reads the process's own environment.
  const env = { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url, OTEL_TRACES_SAMPLER: 'parentbased_always_on' };
  for (const [name, value] of Object.entries({ ...env, OTEL_BSP_SCHEDULE_DELAY: '20' }))
    vi.stubEnv(name, value);
  processor = await harness.run(env, { sink });
}

/** A frame of three entries, the first and the last of them sampled, and lines that nobody wrote. */
async function publish(): Promise<void> {
  const entries = [1, 2, 3].map((n) => envelope([item('event', `{"n":${n}}`)], { eventId: hexId(n) }));
  const out = headers();
  out.set('Nats-Msg-Id', 'traced');
  out.append('Sluice-Trace', `0 00-${TRACES[0]}-b7ad6b7169203331-01`);
  out.append('Sluice-Trace', `2 00-${TRACES[1]}-00f067aa0ba902b7-01`);
  for (const odd of ['1', '1 nonsense', '']) out.append('Sluice-Trace', odd);
  const frame = encodeFrame(entries.map((entry) => encodeEntry(entry)));
  await harness.link.js.publish('sluice.events.0', frame, { headers: out });
}

describe('a traced processor', () => {
  it('has a span for each attempt, with what went wrong', async () => {
    const sink = await FailingSink.wrap(harness.dir);
    await process(sink);
    sink.failing = 'commit';
    await publish();
    await eventually(() => collector.spans.filter(({ isError }) => isError).length >= 2);
    sink.failing = undefined;
    await eventually(() => collector.spans.filter(({ isError }) => !isError).length === 2);
    expect(new Set(collector.spans.map(({ name }) => name))).toEqual(new Set(['process']));
    for (const [traceId, entry] of [
      [TRACES[0], 0],
      [TRACES[1], 2],
    ] as const) {
      const attempts = collector.of(traceId);
      expect(attempts.length).toBeGreaterThanOrEqual(2);
      expect(attempts.filter(({ isError }) => !isError)).toMatchObject([
        { attributes: { 'messaging.message.id': 'traced', 'sluice.delivery': 1, 'sluice.entry': entry } },
      ]);
    }
    expect(harness.stored()).toHaveLength(3);
  });

  it('ends the spans of frames that the sink holds with their acknowledgement', async () => {
    let store: (() => void) | undefined;
    const batch: SinkBatch = {
      bytes: 0,
      entriesKnown: () => 0,
      beginEntry: () => undefined,
      add: () => undefined,
      relieve: () => undefined,
      commit: ({ held }) => {
        held([]);
        return new Promise((resolve) => {
          store = () => resolve([]);
        });
      },
      abandon: async () => undefined,
    };
    await process({
      guarantee: 'repeatable',
      open: async () => ({ begin: () => batch }),
      close: async () => undefined,
    });
    await publish();
    await eventually(() => store);
    const stored = Date.now();
    store?.();
    await eventually(() => collector.spans.length === 2);
    for (const { endMs } of collector.spans) expect(endMs).toBeGreaterThanOrEqual(stored - 1);
  });
});
