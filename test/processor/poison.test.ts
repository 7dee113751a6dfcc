import { type ChildProcess, fork } from 'node:child_process';
import { afterEach, describe, expect, it } from 'vitest';
import { DELIVERIES_BEFORE_ALONE, FRAME_CRASHES_MAX } from '../../src/limits.ts';
import {
  type DeadLetterSummary,
  listDeadLetters,
  showDeadLetter,
} from '../../src/processor/dead-letter-store.ts';
import { encodeEntry, encodeFrame } from '../../src/stream/frame.ts';
import { envelope, eventually, Harness, hexId, item } from './harness.ts';

const PROGRAM = new URL('./deadly-processor.mjs', import.meta.url);
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

/** Starts it again whenever it dies. @returns how often it died */
function supervise(): () => number {
  let deaths = 0;
  supervised = true;
  const start = (): void => {
    if (!supervised) return;
    child = fork(PROGRAM, { env: { ...process.env, ...harness.environment() } });
    child.once('exit', () => {
      deaths++;
      start();
    });
  };
  start();
  return () => deaths;
}

const frameOf = (n: number, text: string): Uint8Array =>
  encodeFrame([encodeEntry(envelope([item('event', JSON.stringify({ n, text }))], { eventId: hexId(n) }))]);

async function crashKeys(): Promise<string[]> {
  const filter = '$KV.sluice_counters.crashes.>';
  const { state } = await harness.manager.streams.info('KV_sluice_counters', { subjects_filter: filter });
  return Object.keys(state.subjects ?? {});
}

describe('a frame that ends the process', () => {
  it('is handled alone from its third delivery on, and set aside undecoded after three more deaths', async () => {
    harness = await Harness.start({ ackWaitMs: 700 });
    const poison = frameOf(0, 'poison');
    await harness.publishBytes(poison, { id: 'poison' });
    for (let n = 1; n <= 30; n++) await harness.publishBytes(frameOf(n, 'fine'));
    const deaths = supervise();
    await harness.drained(40_000);
    expect(deaths()).toBe(DELIVERIES_BEFORE_ALONE - 1 + FRAME_CRASHES_MAX);
    const numbers = harness.stored().map(({ payload }) => (payload as { n: number }).n);
    expect(numbers.sort((a, b) => a - b)).toEqual(Array.from({ length: 30 }, (_, n) => n + 1));
    const letters: DeadLetterSummary[] = [];
    for await (const letter of listDeadLetters(harness.link)) letters.push(letter);
    expect(letters).toMatchObject([{ kind: 'frame', frameId: 'poison', subject: 'sluice.events.0' }]);
    expect(letters[0]?.reason).toBe(`ended the processor ${FRAME_CRASHES_MAX} times; not looked into`);
    const { body } = await showDeadLetter(harness.link, letters[0]?.id ?? '');
    expect(Buffer.from(body).equals(Buffer.from(poison))).toBe(true);
    await eventually(async () => (await crashKeys()).length === 0);
  }, 60_000);
});

describe('a frame that was delivered often and does no harm', () => {
  it('is stored, and nothing of its count stays', async () => {
    harness = await Harness.start({ ackWaitMs: 700 });
    await harness.publishBytes(frameOf(1, 'fine'));
    const consumer = await harness.link.js.consumers.get('SLUICE_EVENTS', 'processor');
    for (let delivery = 0; delivery < 6; delivery++) (await consumer.next())?.nak();
    await harness.process();
    await harness.drained();
    expect(harness.stored()).toHaveLength(1);
    expect(await crashKeys()).toEqual([]);
  });
});
