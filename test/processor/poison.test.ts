import { type ChildProcess, fork } from 'node:child_process';
import { afterEach, describe, expect, it } from 'vitest';
import { rounds } from '../support/rounds.ts';
import { FailingSink } from './failing-sink.ts';
import {
  encodeFrame,
  envelope,
  eventually,
  frameOf,
  Harness,
  hexId,
  item,
  numbersIn,
  numbersTo,
} from './harness.ts';

/** Deliveries after which a frame is handled alone, and ends of processes after which it is set aside. */
const DELIVERIES_BEFORE_ALONE = 3;
const FRAME_CRASHES_MAX = 3;
/** Each death waits for the broker to deliver again: half a minute a test. */
const isLong = rounds(true, false);

const PROGRAM = new URL('./deadly-processor.mjs', import.meta.url);
/** Long enough for a process that is slow to start. */
const ACK_WAIT_MS = 1_500;
let harness: Harness;
let child: ChildProcess | undefined;
let supervised = false;
afterEach(async () => {
  supervised = false;
  if (child?.exitCode === null && child.signalCode === null) {
    const gone = new Promise((resolve) => child?.once('exit', resolve));
    child.disconnect();
    await gone;
  }
  await harness.close();
});

/** Starts it again whenever it dies; after `unlucky` deaths nothing happens to it any more. @returns how often it died */
function supervise(unlucky = 0, execArgv: string[] = []): () => number {
  let deaths = 0;
  supervised = true;
  const start = (): void => {
    if (!supervised) return;
    const fate: Record<string, string> = deaths < unlucky ? { UNLUCKY: 'yes' } : {};
    const env = { ...process.env, ...harness.environment(fate) };
    child = fork(PROGRAM, { env, execArgv, stdio: ['ignore', 'ignore', 'ignore', 'ipc'] });
    child.once('exit', () => {
      deaths++;
      start();
    });
  };
  start();
  return () => deaths;
}

const numbered = (n: number, text: string): Uint8Array =>
  frameOf(envelope([item('event', JSON.stringify({ n, text }))], { eventId: hexId(n) }));

const CRASHES = '$KV.sluice_counters.crashes.>';

async function crashKeys(): Promise<string[]> {
  const { state } = await harness.manager.streams.info('KV_sluice_counters', { subjects_filter: CRASHES });
  return Object.keys(state.subjects ?? {});
}

describe('a frame that ends the process', () => {
  it('is handled alone from its third delivery on, and set aside undecoded after three more deaths', async () => {
    // Long enough that no delivery is counted while a processor that was slow to start is still at the one before.
    harness = await Harness.start({ ackWaitMs: 3_000 });
    const poison = numbered(0, 'poison');
    await harness.publishBytes(poison, { id: 'poison' });
    for (let n = 1; n <= 30; n++) await harness.publishBytes(numbered(n, 'fine'));
    const deaths = supervise();
    await harness.drained();
    expect(deaths()).toBe(DELIVERIES_BEFORE_ALONE - 1 + FRAME_CRASHES_MAX);
    expect(numbersIn(harness.stored())).toEqual(numbersTo(30));
    const box = await harness.letters();
    const letters = await box.list();
    expect(letters).toMatchObject([{ kind: 'frame', frameId: 'poison', subject: 'sluice.events.0' }]);
    expect(letters[0]?.reason).toBe(
      `ended the processor at least ${FRAME_CRASHES_MAX} times; not looked into`,
    );
    const body = await box.bytesOf(await box.get(letters[0]?.id ?? ''));
    expect(Buffer.from(body).equals(Buffer.from(poison))).toBe(true);
    await eventually(async () => (await crashKeys()).length === 0);
  });

  it.runIf(isLong)(
    'by the layout of its bytes alone, is set aside unread after three more deaths',
    async () => {
      harness = await Harness.start({ ackWaitMs: ACK_WAIT_MS });
      // Arrays in arrays, each of which announces so much that a decoder makes room for it.
      const bomb = Buffer.concat(Array.from({ length: 2_000 }, () => Buffer.from([0xdd, 0, 1, 0x86, 0xa0])));
      const poison = encodeFrame([bomb]);
      await harness.publishBytes(poison, { id: 'bomb' });
      // At once: it comes again while the process is busy dying of it, so that its deliveries say little of deaths.
      await harness.deliverOften();
      await harness.publishBytes(numbered(1, 'fine'));
      const deaths = supervise(0, ['--max-old-space-size=100']);
      await harness.drained();
      expect(deaths()).toBe(2 * FRAME_CRASHES_MAX);
      expect(harness.stored()).toHaveLength(1);
      const box = await harness.letters();
      const letters = await box.list();
      const reason = `ended the processor at least ${2 * FRAME_CRASHES_MAX} times; not looked into`;
      expect(letters).toMatchObject([{ kind: 'frame', frameId: 'bomb', reason }]);
      const body = await box.bytesOf(await box.get(letters[0]?.id ?? ''));
      expect(Buffer.from(body).equals(Buffer.from(poison))).toBe(true);
      await eventually(async () => (await crashKeys()).length === 0);
    },
  );
});

describe('a frame that is there when the processor is killed from outside', () => {
  it.runIf(isLong)('is stored in the end, although it was being stored each time', async () => {
    harness = await Harness.start({ ackWaitMs: ACK_WAIT_MS });
    await harness.publishBytes(numbered(1, 'unlucky'));
    const uncounted = DELIVERIES_BEFORE_ALONE - 1;
    const deaths = supervise(uncounted + FRAME_CRASHES_MAX + 1);
    await harness.drained();
    expect(deaths()).toBe(uncounted + FRAME_CRASHES_MAX + 1);
    expect(harness.stored()).toHaveLength(1);
    expect(await harness.messages('SLUICE_DEAD_LETTERS')).toBe(0);
    await eventually(async () => (await crashKeys()).length === 0);
  });

  it('is acknowledged, and nothing else, when it had been stored before that', async () => {
    harness = await Harness.start({ ackWaitMs: ACK_WAIT_MS });
    await harness.publishBytes(numbered(1, 'fine'), { id: 'stored' });
    const first = await harness.process();
    await harness.drained();
    await first.stop();
    const sequence = await harness.publishAgain(numbered(1, 'fine'), { id: 'stored' });
    await harness.deliverOften();
    await harness.noteCrashes(sequence, 2 * FRAME_CRASHES_MAX);
    await harness.process();
    await harness.drained();
    expect(harness.stored()).toHaveLength(1);
    expect(await harness.messages('SLUICE_DEAD_LETTERS')).toBe(0);
    await eventually(async () => (await crashKeys()).length === 0);
  });
});

describe('a frame whose storing throws', () => {
  it('is booked as what ended the process', async () => {
    harness = await Harness.start({ ackWaitMs: ACK_WAIT_MS });
    const sequence = await harness.publishBytes(numbered(1, 'fine'));
    await harness.deliverOften();
    const sink = await FailingSink.wrap(harness.dir);
    sink.failing = 'bug';
    const bugs: unknown[] = [];
    await harness.process({ sink, onBug: (error) => bugs.push(error) });
    await eventually(() => bugs.length > 0);
    expect(await harness.crashesOf(sequence)).toBe(1);
  });
});

describe('a frame that was delivered often and does no harm', () => {
  it('is stored, and nothing of its count stays', async () => {
    harness = await Harness.start({ ackWaitMs: ACK_WAIT_MS });
    await harness.publishBytes(numbered(1, 'fine'));
    await harness.deliverOften();
    await harness.process();
    await harness.drained();
    expect(harness.stored()).toHaveLength(1);
    await eventually(async () => (await crashKeys()).length === 0);
  });
});
