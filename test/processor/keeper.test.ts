/** What was deleted under a running processor: it makes that again by itself, and says so. */
import { afterEach, describe, expect, it } from 'vitest';
import { event, eventually, Harness, numbersIn, numbersTo } from './harness.ts';

let harness: Harness;
afterEach(() => harness.close());
const restored = (name: string): Promise<number> =>
  harness.metric('sluice_jetstream_restored_total', `{name="${name}"}`);

describe('a consumer that was deleted', () => {
  it('is made again: nothing is lost, nothing is stored twice', async () => {
    harness = await Harness.start();
    await harness.process();
    for (let n = 1; n <= 50; n++) await harness.publish([event(n)]);
    await harness.storedOnce(20);
    expect(await harness.manager.consumers.delete('SLUICE_EVENTS', 'processor')).toBe(true);
    for (let n = 51; n <= 100; n++) await harness.publish([event(n)]);
    await harness.storedOnce(100);
    await harness.drained();
    expect(numbersIn(harness.stored())).toEqual(numbersTo(100));
    expect(await restored('SLUICE_EVENTS/processor')).toBe(1);
    expect(await harness.metric('sluice_pending_messages', '{stream="SLUICE_EVENTS"}')).toBe(0);
    expect((await harness.readiness()).code).toBe(200);
  });

  it('makes the processor not ready while it cannot be made', async () => {
    harness = await Harness.start();
    await harness.process();
    await harness.manager.consumers.delete('SLUICE_LOGS', 'processor');
    // A work queue takes no second consumer, so this one is in the way.
    await harness.manager.consumers.add('SLUICE_LOGS', { durable_name: 'other', ack_policy: 'explicit' });
    await eventually(async () => (await harness.readiness()).code === 503);
    expect(await harness.readiness()).toMatchObject({ status: 'not ready', checks: { streams: 'missing' } });
    expect(await harness.metric('sluice_consumer_missing', '{name="SLUICE_LOGS/processor"}')).toBe(1);
    await harness.manager.consumers.delete('SLUICE_LOGS', 'other');
    await eventually(async () => (await harness.readiness()).code === 200);
    expect(await harness.metric('sluice_consumer_missing', '{name="SLUICE_LOGS/processor"}')).toBe(0);
  });
});

describe('a stream that was deleted', () => {
  it('is made again as the settings say', async () => {
    const names = ['SLUICE_EVENTS', 'SLUICE_CHUNKS', 'SLUICE_DEAD_LETTERS'];
    harness = await Harness.start();
    await harness.process();
    const kept = async (name: string) => {
      const { retention, subjects, discard } = (await harness.manager.streams.info(name)).config;
      return { retention, subjects, discard };
    };
    const before = await Promise.all(names.map(kept));
    for (const name of names) await harness.manager.streams.delete(name);
    for (const name of names)
      await eventually(() => harness.manager.streams.info(name).catch(() => undefined));
    expect(await Promise.all(names.map(kept))).toEqual(before);
    for (const name of names) {
      expect((await harness.manager.streams.info(name)).config.max_bytes).toBeGreaterThan(0);
      await eventually(async () => (await restored(name)) === 1);
    }
    await harness.publish([event(1)]);
    expect(await harness.storedOnce(1)).toHaveLength(1);
    expect((await harness.readiness()).code).toBe(200);
  });

  it('is left to setup when this processor never saw it; the processor is not ready meanwhile', async () => {
    harness = await Harness.start();
    await harness.manager.streams.delete('SLUICE_REPLAYS');
    await harness.process();
    expect(await harness.readiness()).toMatchObject({ code: 503, checks: { streams: 'missing' } });
    expect(await harness.metric('sluice_jetstream_missing', '{name="SLUICE_REPLAYS"}')).toBe(1);
  });
});

it('a bucket that was deleted is not made again, and a metric says so', async () => {
  harness = await Harness.start();
  await harness.process();
  await harness.manager.streams.delete('KV_sluice_projects');
  await eventually(
    async () => (await harness.metric('sluice_jetstream_missing', '{name="KV_sluice_projects"}')) === 1,
  );
  await expect(harness.manager.streams.info('KV_sluice_projects')).rejects.toThrow('stream not found');
  expect((await harness.readiness()).code).toBe(200);
});
