/** What a store does whose disk is full: it holds the stream, and with room again all is stored, once. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ACK_WAIT_MS } from '../../src/limits.ts';
import {
  envelope,
  eventually,
  Harness,
  hexId,
  item,
  numbersIn,
  numbersTo,
  type RunningProcessor,
} from '../processor/harness.ts';
import { mayMount, SmallDisk } from '../support/small-disk.ts';
import type { SinkUnderTest } from './sinks.ts';

/** Of an event: a full disk is reached soon, and no event fits into what a store had laid by. */
const NOISE = 'x'.repeat(20_000);

export type OnDisk = {
  megabytes: number;
  start(folder: string): Promise<SinkUnderTest>;
  /** As a supervisor does it: a server that ended starts again. */
  revive?(sink: SinkUnderTest): Promise<void>;
};

export function describeFullDisk(name: string, { megabytes, start, revive }: OnDisk): void {
  describe.runIf(mayMount())(`${name} on a full disk`, () => {
    let disk: SmallDisk;
    let harness: Harness;
    let sink: SinkUnderTest;
    let processor: RunningProcessor | undefined;
    beforeEach(async () => {
      disk = new SmallDisk(megabytes);
      harness = await Harness.start({ ackWaitMs: ACK_WAIT_MS });
      sink = await start(disk.dir);
      processor = await harness.run({ SLUICE_SINK: sink.setting });
    });
    afterEach(async () => {
      await processor?.stop();
      await harness?.close();
      await sink?.close();
      disk?.close();
    });

    const publish = async (n: number): Promise<void> => {
      const of = { eventId: hexId(n), month: '2026-01', position: n };
      await harness.publish([envelope([item('event', `{"n":${n},"noise":"${NOISE}"}`)], of)]);
    };
    const state = async () => (await harness.readiness()).checks.sink;

    it('holds the stream and says so; then all is stored, once', async () => {
      let n = 0;
      await publish(++n);
      await harness.drained();
      disk.fill();
      await eventually(async () => {
        await publish(++n);
        return (await state()) === 'failing';
      });
      for (let more = 0; more < 50; more++) await publish(++n);
      expect(await state()).toBe('failing');
      disk.free();
      await revive?.(sink);
      await harness.drained(170_000);
      expect(numbersIn(await sink.records())).toEqual(numbersTo(n));
      if (!sink.keepsNoTally) expect(await sink.tally('42', '2026-01')).toEqual({ count: n, position: n });
      expect(await harness.messages('SLUICE_DEAD_LETTERS')).toBe(0);
      expect(await state()).toBe('ok');
    });
  });
}
