/** How full the streams are, as a scrape of ingest says it; also without a processor. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { freeze, thaw } from '../support/freeze.ts';
import { MIB, System, until } from '../support/system.ts';

let system: System;
beforeAll(async () => {
  system = await System.start({ processor: false });
});
afterAll(() => system?.stop());

const figure = (name: string, stream: string): Promise<number> =>
  system.metric(`sluice_stream_${name}`, `{stream="${stream}"}`);

it('has bytes, bound and age of each stream, as the broker has them', async () => {
  // A scrape leaves them out when the broker takes its time.
  await until(async () => (await system.metrics()).includes('sluice_stream_bytes{'));
  const streams = (await system.metrics()).match(/(?<=^sluice_stream_bytes\{stream=")\w+/gm);
  expect(streams?.sort()).toEqual([
    'SLUICE_AUDIT',
    'SLUICE_CHUNKS',
    'SLUICE_DEAD_LETTERS',
    'SLUICE_EVENTS',
    'SLUICE_EXTRAS',
    'SLUICE_HEARTBEATS',
    'SLUICE_LOGS',
    'SLUICE_REPLAYS',
    'SLUICE_TRANSACTIONS',
  ]);
  expect(await figure('oldest_message_age_seconds', 'SLUICE_EVENTS')).toBe(0);

  const project = await system.createProject({ rateLimit: 1_000 });
  expect((await system.send(project, errorEvent(eventId()))).status).toBe(200);
  const { state, config } = await (await system.link.manager()).streams.info('SLUICE_EVENTS');
  expect(state.messages).toBe(1);
  expect(await figure('bytes', 'SLUICE_EVENTS')).toBe(state.bytes);
  expect(await figure('max_bytes', 'SLUICE_EVENTS')).toBe(config.max_bytes);
  expect(config.max_bytes).toBeGreaterThan(255 * MIB);
  const age = await figure('oldest_message_age_seconds', 'SLUICE_EVENTS');
  const ageNow = (Date.now() - Date.parse(state.first_ts)) / 1000;
  expect(age).toBeGreaterThan(0);
  expect(age).toBeLessThanOrEqual(ageNow);
  expect(await figure('bytes', 'SLUICE_LOGS')).toBe(0);
});

it('leaves them out, and does not wait, while the broker hangs; then has them again', async () => {
  await freeze(system.nats.pid);
  try {
    const startedAt = performance.now();
    const text = await system.metrics();
    expect(performance.now() - startedAt).toBeLessThan(2_000);
    expect(text).toContain('\nsluice_workers 1\n');
    expect(text).not.toContain('sluice_stream_bytes{');
  } finally {
    thaw(system.nats.pid);
  }
  await until(async () => (await system.metrics()).includes('sluice_stream_bytes{'));
});

it('leaves them out while the broker is gone, also when it was never there before', async () => {
  await system.nats.stop();
  await system.ingest.stop();
  system.ingest = system.startIngest();
  await until(() =>
    system.metrics().then(
      () => true,
      () => false,
    ),
  );
  const startedAt = performance.now();
  expect(await system.metrics()).not.toContain('sluice_stream_bytes{');
  expect(performance.now() - startedAt).toBeLessThan(2_000);
  await system.restartNats();
  await until(async () => (await system.metrics()).includes('sluice_stream_bytes{'));
});

it('does not keep ingest from its end while the broker hangs', async () => {
  await system.ingest.stop();
  await freeze(system.nats.pid);
  try {
    system.ingest = system.startIngest();
    await until(() =>
      system.metrics().then(
        () => true,
        () => false,
      ),
    );
    // Its connection is being made now.
    expect(await system.ingest.stop()).toBe(0);
  } finally {
    thaw(system.nats.pid);
  }
});
