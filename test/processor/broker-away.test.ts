import { afterEach, describe, expect, it } from 'vitest';
import { freeze, thaw } from '../support/freeze.ts';
import { natsServer } from '../support/servers.ts';
import { envelope, eventually, Harness, hexId, item } from './harness.ts';

let harness: Harness;
afterEach(() => harness.close());
const event = (n: number) => envelope([item('event', `{"n":${n}}`)], { eventId: hexId(n) });

describe('a broker that goes away', () => {
  it('and comes back finds the processor waiting: nothing is lost, nothing written twice', async () => {
    harness = await Harness.start({ ackWaitMs: 1_000 });
    await harness.process();
    for (let n = 0; n < 50; n++) await harness.publish([event(n)]);
    await harness.nats.stop();
    const health = async (): Promise<unknown> =>
      (await fetch(`http://127.0.0.1:${harness.adminPort}/readyz`)).json();
    await expect.poll(health).toMatchObject({ checks: { nats: 'away' } });
    const { port, dir } = harness.nats;
    const again = await natsServer({ port, dir });
    await eventually(() => harness.link.connected);
    for (let n = 50; n < 100; n++) await harness.publish([event(n)]);
    await harness.drained();
    const numbers = harness.stored().map(({ payload }) => (payload as { n: number }).n);
    expect(numbers.sort((a, b) => a - b)).toEqual(Array.from({ length: 100 }, (_, n) => n));
    await again.stop();
  });

  it('and stands still while it stays connected: the metrics do without its figures', async () => {
    harness = await Harness.start();
    await harness.process();
    await freeze(harness.nats.pid);
    const client = harness.manager.consumers.info('SLUICE_EVENTS', 'processor').then(
      () => 'the client got its answer',
      () => 'the client gave up',
    );
    const page = fetch(`http://127.0.0.1:${harness.adminPort}/metrics`).then((response) => response.text());
    const first = await Promise.race([page, client]).finally(() => thaw(harness.nats.pid));
    expect(first).toContain('sluice_processing_lag_seconds');
    expect(first).not.toContain('sluice_pending_messages{');
    expect(await client).toBe('the client got its answer');
  });
});
