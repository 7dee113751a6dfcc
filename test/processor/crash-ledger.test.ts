import { afterEach, describe, expect, it } from 'vitest';
import { FRAME_CRASHES_MAX, STORING_DEATHS_PER_CRASH } from '../../src/limits.ts';
import { CrashLedger, isPoison } from '../../src/processor/crash-ledger.ts';
import type { Delivery } from '../../src/processor/delivery.ts';
import { UnavailableError } from '../../src/processor/unavailable.ts';
import { Harness } from './harness.ts';

describe('poison', () => {
  it.each([
    { decoding: FRAME_CRASHES_MAX, storing: 0, poison: true },
    { decoding: FRAME_CRASHES_MAX - 1, storing: STORING_DEATHS_PER_CRASH - 1, poison: false },
    { decoding: FRAME_CRASHES_MAX - 1, storing: STORING_DEATHS_PER_CRASH, poison: true },
    { decoding: 0, storing: FRAME_CRASHES_MAX * STORING_DEATHS_PER_CRASH - 1, poison: false },
    { decoding: 0, storing: FRAME_CRASHES_MAX * STORING_DEATHS_PER_CRASH, poison: true },
    { decoding: 0, storing: 0, poison: false },
  ])('after $decoding deaths while decoding and $storing while storing: $poison', ({ poison, ...deaths }) => {
    expect(isPoison(deaths)).toBe(poison);
  });
});

describe('the ledger of crashes', () => {
  let harness: Harness;
  afterEach(() => harness.close());
  const delivery = (sequence: number) => ({ stream: 'SLUICE_LOGS', sequence }) as Delivery;
  const messages = async () => (await harness.manager.streams.info('KV_sluice_counters')).state.messages;

  it('keeps both counts of each frame, and nothing when they are taken back', async () => {
    harness = await Harness.start();
    const ledger = new CrashLedger(harness.link);
    expect(await ledger.read(delivery(1))).toEqual({ decoding: 0, storing: 0 });
    await ledger.write(delivery(1), { decoding: 2, storing: 5 });
    await ledger.write(delivery(11), { decoding: 0, storing: 1 });
    const next = new CrashLedger(harness.link);
    expect(await next.read(delivery(1))).toEqual({ decoding: 2, storing: 5 });
    expect(await next.read(delivery(11))).toEqual({ decoding: 0, storing: 1 });
    await next.write(delivery(1), { decoding: 0, storing: 0 });
    expect(await next.read(delivery(1))).toEqual({ decoding: 0, storing: 0 });
    await next.clear(delivery(11));
    expect(await messages()).toBe(0);
  });

  it('is unavailable when its bucket is, and goes on when that is back', async () => {
    harness = await Harness.start();
    const { config } = await harness.manager.streams.info('KV_sluice_counters');
    await harness.manager.streams.delete('KV_sluice_counters');
    const ledger = new CrashLedger(harness.link);
    await expect(ledger.read(delivery(1))).rejects.toThrow(UnavailableError);
    await harness.manager.streams.add(config);
    await ledger.write(delivery(1), { decoding: 1, storing: 0 });
    expect(await ledger.read(delivery(1))).toEqual({ decoding: 1, storing: 0 });
  });
});
