import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { FailingSink } from './failing-sink.ts';
import { envelope, eventually, frameOf, Harness, hexId, item } from './harness.ts';

/** As in production: a frame that waits longer is delivered again. */
const ACK_WAIT_MS = 10_000;
let harness: Harness;
afterEach(() => harness.close());

const event = (n: number, more = {}) =>
  envelope([item('event', `{"n":${n}}`)], { eventId: hexId(n), ...more });

describe('a frame that is delivered again', () => {
  it('is written although its entries look alike: only clients resend, and only events', async () => {
    harness = await Harness.start();
    await harness.process();
    const frame = frameOf(...[1, 1].map((n) => envelope([item('log', `{"n":${n}}`)])));
    await harness.publishBytes(frame, { stream: 'logs', id: 'a' });
    await harness.publishBytes(frame, { stream: 'logs', id: 'b' });
    await harness.drained();
    expect(harness.stored()).toHaveLength(4);
  });
});

describe('a processor that stops', () => {
  it('loses nothing: what it had in hand is delivered to the next one at once', async () => {
    harness = await Harness.start({ ackWaitMs: 60_000 });
    const first = await harness.process();
    const publishing = (async () => {
      for (let n = 0; n < 300; n++) await harness.publish([event(n)]);
    })();
    await harness.storedOnce(1);
    await first.stop();
    await publishing;
    await harness.process();
    await harness.drained();
    const numbers = harness.stored().map(({ payload }) => (payload as { n: number }).n);
    expect(numbers.sort((a, b) => a - b)).toEqual(Array.from({ length: 300 }, (_, n) => n));
  });
});

describe('a sink that fails', () => {
  it('is tried again until it recovers; meanwhile nothing is acknowledged, and nothing is written twice after', async () => {
    harness = await Harness.start({ ackWaitMs: 1_000 });
    const sink = await FailingSink.wrap(harness.dir);
    await harness.process({ sink });
    sink.failing = 'commit';
    for (let n = 0; n < 20; n++) await harness.publish([event(n)]);
    await eventually(() => sink.failures > 4);
    expect((await harness.manager.streams.info('SLUICE_EVENTS')).state.messages).toBe(20);
    const ready = await (await fetch(`http://127.0.0.1:${harness.adminPort}/readyz`)).json();
    expect(ready).toEqual({
      status: 'ready',
      checks: { nats: 'ok', streams: 'ok', sink: 'failing', dead_letters: 'ok' },
    });
    sink.failing = undefined;
    await harness.drained();
    expect(harness.stored()).toHaveLength(20);
  });

  it('after it stored a batch does not store it again', async () => {
    harness = await Harness.start({ ackWaitMs: 1_000 });
    const sink = await FailingSink.wrap(harness.dir);
    await harness.process({ sink });
    sink.failing = 'after commit';
    await harness.publish([event(1), event(2)]);
    await eventually(() => sink.failures > 0);
    sink.failing = undefined;
    await harness.drained();
    expect(harness.stored()).toHaveLength(2);
  });

  it('because its folder is no folder any more goes on when it is one again', async () => {
    harness = await Harness.start({ ackWaitMs: 1_000 });
    await harness.process();
    await harness.publish([event(1)]);
    await harness.drained();
    const folder = join(harness.dir, 'SLUICE_EVENTS');
    renameSync(folder, `${folder}.away`);
    writeFileSync(folder, 'in the way');
    await harness.publish([event(2)]);
    await eventually(async () => {
      const page = await (await fetch(`http://127.0.0.1:${harness.adminPort}/readyz`)).text();
      return page.includes('failing');
    });
    renameSync(folder, `${folder}.file`);
    renameSync(`${folder}.away`, folder);
    await harness.drained();
    expect(harness.stored().map(({ payload }) => payload)).toEqual([{ n: 1 }, { n: 2 }]);
  });

  it('does not keep the processor from stopping, and what it held is not lost', async () => {
    harness = await Harness.start({ ackWaitMs: 60_000 });
    const sink = await FailingSink.wrap(harness.dir);
    sink.failing = 'commit';
    const first = await harness.process({ sink });
    await harness.publish([event(1)]);
    await eventually(() => sink.failures > 0);
    await first.stop();
    await harness.process();
    await harness.drained();
    expect(harness.stored()).toHaveLength(1);
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

describe('dead letters that the broker does not take', () => {
  it('keep their frame unacknowledged, if it does after a moment', async () => {
    harness = await Harness.start({ ackWaitMs: 1_000 });
    await harness.manager.streams.update('SLUICE_DEAD_LETTERS', { max_msg_size: 10 });
    await harness.process();
    await harness.publish([envelope([item('event', 'no JSON')]), event(2)]);
    await eventually(async () => {
      const page = await (await fetch(`http://127.0.0.1:${harness.adminPort}/readyz`)).text();
      return page.includes('failing');
    });
    expect((await harness.manager.streams.info('SLUICE_EVENTS')).state.messages).toBe(1);
    await harness.manager.streams.update('SLUICE_DEAD_LETTERS', { max_msg_size: -1 });
    await harness.drained();
    expect((await harness.manager.streams.info('SLUICE_DEAD_LETTERS')).state.messages).toBe(1);
    expect(harness.stored()).toHaveLength(1);
  });
});

describe('the folder', () => {
  it('belongs to one processor at a time', async () => {
    harness = await Harness.start();
    const first = await harness.process();
    await expect(harness.process()).rejects.toThrow('another processor');
    await first.stop();
    await harness.process();
  });

  it('has files that never change, with several frames in one where frames wait', async () => {
    harness = await Harness.start();
    for (let n = 400; n < 600; n++) await harness.publish([event(n)]);
    await harness.process();
    const seen = new Map<string, string>();
    for (let n = 0; n < 400; n++) {
      await harness.publish([event(n)]);
      for (const name of harness.files())
        if (!seen.has(name)) seen.set(name, readFileSync(join(harness.dir, name), 'utf8'));
    }
    await harness.drained();
    for (const [name, text] of seen) expect(readFileSync(join(harness.dir, name), 'utf8')).toBe(text);
    expect(harness.stored()).toHaveLength(600);
    // The other 400 come as slowly as this machine publishes.
    expect(harness.files().length).toBeLessThan(450);
  });
});

describe('streams that are missing', () => {
  it('are waited for', async () => {
    harness = await Harness.start();
    const { config } = await harness.manager.streams.info('SLUICE_EVENTS');
    await harness.manager.streams.delete('SLUICE_EVENTS');
    await harness.process();
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    await harness.manager.streams.add(config);
    await harness.publish([event(1)]);
    expect(await harness.storedOnce(1)).toHaveLength(1);
  });
});

describe('an error that is no fault of disk or broker', () => {
  it('is a bug: it ends the process rather than being tried again', async () => {
    harness = await Harness.start();
    const sink = await FailingSink.wrap(harness.dir);
    sink.failing = 'bug';
    const bugs: unknown[] = [];
    await harness.process({ sink, onBug: (error) => bugs.push(error) });
    await harness.publish([event(1)]);
    await eventually(() => bugs.length > 0);
    expect(bugs[0]).toBeInstanceOf(TypeError);
  });
});
