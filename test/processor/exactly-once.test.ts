import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { FailingSink } from './failing-sink.ts';
import { event, eventually, Harness, numbersIn } from './harness.ts';

/** As in production: a frame that waits longer is delivered again. */
const ACK_WAIT_MS = 10_000;
let harness: Harness;
afterEach(() => harness.close());

describe('a sink that fails', () => {
  it('because its folder is no folder any more goes on when it is one again', async () => {
    harness = await Harness.start({ ackWaitMs: 1_000 });
    await harness.process();
    await harness.publish([event(1)]);
    await harness.drained();
    const folder = join(harness.dir, 'SLUICE_EVENTS');
    renameSync(folder, `${folder}.away`);
    writeFileSync(folder, 'in the way');
    await harness.publish([event(2)]);
    await eventually(async () => (await harness.readiness()).checks.sink === 'failing');
    renameSync(folder, `${folder}.file`);
    renameSync(`${folder}.away`, folder);
    await harness.drained();
    expect(numbersIn(harness.stored())).toEqual([1, 2]);
  });
});

describe('a frame that waits longer than the broker does', () => {
  it('is not delivered again meanwhile: the broker hears that somebody is at it', async () => {
    harness = await Harness.start({ ackWaitMs: ACK_WAIT_MS });
    const sink = await FailingSink.wrap(harness.dir);
    await harness.process({ sink });
    sink.failing = 'commit';
    await harness.publish([event(1)]);
    await eventually(() => sink.failures > 0);
    await new Promise((resolve) => setTimeout(resolve, ACK_WAIT_MS + 3_000));
    const { num_redelivered, num_ack_pending } = await harness.manager.consumers.info(
      'SLUICE_EVENTS',
      'processor',
    );
    expect({ num_redelivered, num_ack_pending }).toEqual({ num_redelivered: 0, num_ack_pending: 1 });
    sink.failing = undefined;
    await harness.drained();
    expect(harness.stored()).toHaveLength(1);
  });
});

describe('the folder', () => {
  it('has several frames in a file where frames wait', async () => {
    harness = await Harness.start();
    for (let n = 0; n < 100; n++) await harness.publish([event(n)]);
    await harness.process();
    await harness.drained();
    expect(harness.stored()).toHaveLength(100);
    expect(harness.files().length).toBeLessThan(50);
  });
});
