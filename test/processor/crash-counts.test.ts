import { afterEach, describe, expect, it } from 'vitest';
import { CRASH_WEIGHT, CrashCounts, isPoison } from '../../src/processor/crash-counts.ts';
import type { Delivery } from '../../src/processor/delivery.ts';
import { UnavailableError } from '../../src/sink/unavailable.ts';
import { Harness } from './harness.ts';

describe('poison', () => {
  const { decoding, storing } = CRASH_WEIGHT;
  it.each([
    { deaths: '3 while decoding', crashes: 3 * decoding, poison: true },
    { deaths: '2 while decoding, 3 while storing', crashes: 2 * decoding + 3 * storing, poison: false },
    { deaths: '2 while decoding, 4 while storing', crashes: 2 * decoding + 4 * storing, poison: true },
    { deaths: '11 while storing', crashes: 11 * storing, poison: false },
    { deaths: '12 while storing', crashes: 12 * storing, poison: true },
    { deaths: 'none', crashes: 0, poison: false },
  ])('after $deaths: $poison', ({ crashes, poison }) => {
    expect(isPoison(crashes)).toBe(poison);
  });
});

describe('the ledger of crashes', () => {
  let harness: Harness;
  afterEach(() => harness.close());
  const delivery = (sequence: number) => ({ stream: 'SLUICE_LOGS', sequence }) as Delivery;
  const messages = async () => (await harness.manager.streams.info('KV_sluice_counters')).state.messages;

  it('keeps the count of each frame, and nothing when it is cleared', async () => {
    harness = await Harness.start();
    const ledger = new CrashCounts(harness.link);
    expect(await ledger.read(delivery(1))).toBe(0);
    await ledger.write(delivery(1), 2.25);
    await ledger.write(delivery(11), 0.25);
    await ledger.write(delivery(11), 1);
    const next = new CrashCounts(harness.link);
    expect(await next.read(delivery(1))).toBe(2.25);
    expect(await next.read(delivery(11))).toBe(1);
    expect(await messages()).toBe(2);
    await next.clear(delivery(1));
    expect(await next.read(delivery(1))).toBe(0);
    await next.clear(delivery(11));
    expect(await messages()).toBe(0);
  });

  it('is unavailable when its bucket is, and goes on when that is back', async () => {
    harness = await Harness.start();
    const { config } = await harness.manager.streams.info('KV_sluice_counters');
    await harness.manager.streams.delete('KV_sluice_counters');
    const ledger = new CrashCounts(harness.link);
    await expect(ledger.read(delivery(1))).rejects.toThrow(UnavailableError);
    await harness.manager.streams.add(config);
    await ledger.write(delivery(1), 1);
    expect(await ledger.read(delivery(1))).toBe(1);
  });
});
