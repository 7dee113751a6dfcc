import { afterEach, expect, it } from 'vitest';
import { freeze, thaw } from '../support/freeze.ts';
import { Harness } from './harness.ts';

let harness: Harness;
afterEach(() => harness.close());

it('a broker stands still while it stays connected: the metrics do without its figures', async () => {
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
