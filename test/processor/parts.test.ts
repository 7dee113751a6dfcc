/** Parts of large entries leave the broker as soon as their frame is acknowledged, and no kill on that way loses or doubles anything. */
import { fork } from 'node:child_process';
import { afterEach, describe, expect, it } from 'vitest';
import { FailingSink } from './failing-sink.ts';
import {
  type EnvelopeEntry,
  envelope,
  event,
  eventually,
  Harness,
  hexId,
  item,
  numbersIn,
  numbersTo,
} from './harness.ts';

const PROGRAM = new URL('./dying-remover.mjs', import.meta.url);
const PARTS = 5;
let harness: Harness;
afterEach(() => harness.close());

/** An event of PARTS parts; its number is its event id. */
const large = (n: number): Promise<EnvelopeEntry> =>
  largeOf(n, JSON.stringify({ n, filler: 'x'.repeat(400_000) }));
async function largeOf(n: number, text: string): Promise<EnvelopeEntry> {
  const { payload = new Uint8Array(), ...bare } = item('event', text);
  const parts = await harness.chunk(payload, Math.ceil(payload.length / PARTS));
  return envelope([bare], { eventId: hexId(n), parts });
}

describe('parts of a large entry', () => {
  it('are removed once the sink has it, those of dead letters too, and no others', async () => {
    harness = await Harness.start();
    const orphan = await harness.chunk(Buffer.from('an upload that never got its frame'));
    await harness.publish([await large(1), event(2), await largeOf(3, `no JSON ${'x'.repeat(400_000)}`)]);
    await harness.process();
    await harness.drained();
    await eventually(async () => (await harness.messages('SLUICE_CHUNKS')) === 1);
    expect(numbersIn(harness.stored())).toEqual([1, 2]);
    expect(await harness.messages('SLUICE_DEAD_LETTERS')).toBe(1);
    expect((await harness.manager.streams.info('SLUICE_CHUNKS')).state.first_seq).toBe(orphan.sequences[0]);
  });

  it('stay when they are not what their frame says: they may be those of another entry', async () => {
    harness = await Harness.start();
    const entry = await large(1);
    const parts = { ...(entry.parts as NonNullable<EnvelopeEntry['parts']>), sha256: new Uint8Array(32) };
    await harness.publish([{ ...entry, parts }]);
    await harness.process();
    await harness.drained();
    await harness.publish([await large(2)]);
    await harness.drained();
    await eventually(async () => (await harness.messages('SLUICE_CHUNKS')) === PARTS);
    expect(await harness.messages('SLUICE_DEAD_LETTERS')).toBe(1);
  });

  it.each(['before the write', 'after the write', 'after the acknowledgement', 'amid the removal'])(
    'of a processor that is killed %s: each entry is stored once, none is a dead letter',
    async (point) => {
      harness = await Harness.start({ ackWaitMs: 1_000 });
      await harness.publish([event(1), await large(2), event(3)]);
      await harness.publish([await large(4)]);
      const env = { ...process.env, ...harness.environment({ KILLED_AT: point }) };
      const child = fork(PROGRAM, { env, stdio: ['ignore', 'ignore', 'ignore', 'ipc'] });
      const signal = await new Promise((resolve) => child.once('exit', (_, by) => resolve(by)));
      expect(signal).toBe('SIGKILL');
      await harness.process();
      await harness.publish([await large(5)]);
      await harness.drained();
      expect(numbersIn(harness.stored())).toEqual(numbersTo(5));
      expect(await harness.messages('SLUICE_DEAD_LETTERS')).toBe(0);
      // What the dead process did not remove is left to the sweep, what it did not even read is not.
      await eventually(async () => (await harness.messages('SLUICE_CHUNKS')) <= 2 * PARTS);
    },
  );

  it('that another processor stored and removed meanwhile are not missed', async () => {
    harness = await Harness.start({ ackWaitMs: 60_000 });
    let release = (): void => undefined;
    let begun = false;
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    const slow = await FailingSink.wrap(harness.dir);
    slow.beforeBatch = async () => {
      begun = true;
      await released;
    };
    const entry = await large(1);
    const frame = await harness.publish([entry]);
    const processor = await harness.process({ sink: slow });
    await eventually(() => begun);
    // The other one: its acknowledgement takes the frame out of its stream, then the parts go.
    await harness.manager.streams.deleteMessage('SLUICE_EVENTS', frame);
    for (const part of entry.parts?.sequences ?? [])
      await harness.manager.streams.deleteMessage('SLUICE_CHUNKS', part);
    release();
    await harness.publish([event(2)]);
    await harness.drained();
    await processor.stop();
    expect(numbersIn(harness.stored())).toEqual([2]);
    expect(await harness.messages('SLUICE_DEAD_LETTERS')).toBe(0);
  });
});
