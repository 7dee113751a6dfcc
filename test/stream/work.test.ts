/** How much of the processors' time one project may queue: a worker's debts, and what processors say of them. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createLog } from '../../src/lib/log.ts';
import { Slotted } from '../../src/lib/slots.ts';
import { HEAVY_ENTRY_MS, HEAVY_OWES_MS, WORK_FREE_MS, WORK_REST_MS } from '../../src/limits.ts';
import type { EnvelopeEntry, Privacy } from '../../src/stream/frame.ts';
import { Publisher, type PublishResult } from '../../src/stream/publish/publisher.ts';
import { HEAVY_SUBJECT, isHeavy, WorkShares, workOf, workOn } from '../../src/stream/work.ts';
import { Broker, envelopeOf, itemOf, MIB, numbersTo } from './broker.ts';

const EVENT_BYTES = 390_000;
const privacy: Privacy = { scrub: ['emails'], names: [] };
const scrubbed = (number: number, projectId: string): EnvelopeEntry => ({
  ...envelopeOf(number, new Uint8Array(EVENT_BYTES)),
  projectId,
  privacy,
});
const project = new Slotted();

let broker: Broker;
let now: number;
const clock = { now: () => Date.now(), monotonic: () => now };
beforeAll(async () => {
  broker = await Broker.start();
});
beforeEach(async () => {
  await broker.manager.streams.purge('SLUICE_EVENTS');
  now = 1_000_000;
});
afterAll(() => broker.close());

const publisherOf = (more: { workers?: number; isShared?: () => boolean } = {}): Publisher =>
  new Publisher({
    link: broker.link,
    shards: 1,
    clock,
    log: createLog('silent'),
    isShared: () => true,
    ...more,
  });

/** Publishes all at once. @returns how many were stored */
async function storedOf(publisher: Publisher, projectId: string, count: number): Promise<number> {
  const publish = (number: number): Promise<PublishResult> =>
    new Promise((resolve) =>
      publisher.publish(scrubbed(number, projectId), { deadline: now + 30_000 }, resolve),
    );
  const results = await Promise.all(numbersTo(count).map(publish));
  return results.filter((result) => result === 'stored').length;
}

describe('a burst of one project', () => {
  const eachMs = workOn(EVENT_BYTES, privacy);

  it('is queued up to a second of work, also when it passed the door together; others go on', async () => {
    const publisher = publisherOf();
    expect(await storedOf(publisher, '1', 60)).toBe(Math.floor(WORK_FREE_MS / eachMs) + 1);
    expect(publisher.hasRoomFor('1', project, 1_000)).toBe(false);
    expect(publisher.hasRoomFor('2', project, 1_000)).toBe(true);
    expect(await storedOf(publisher, '2', 5)).toBe(5);
  });

  it('goes on as fast as time pays for it', async () => {
    const publisher = publisherOf();
    await storedOf(publisher, '1', 60);
    now += 10 * eachMs;
    expect(await storedOf(publisher, '1', 60)).toBe(10);
  });

  it('has no bound where no other project is', async () => {
    const publisher = publisherOf({ isShared: () => false });
    expect(await storedOf(publisher, '1', 60)).toBe(60);
  });

  it('is bounded over the workers of a machine', async () => {
    const publishers = [publisherOf({ workers: 2 }), publisherOf({ workers: 2 })];
    const stored = await Promise.all(publishers.map((one) => storedOf(one, '1', 60)));
    expect(stored[0]).toBe(Math.floor(WORK_FREE_MS / 2 / eachMs) + 1);
    expect(stored[1]).toBe(stored[0]);
  });

  it('owes nothing for what is not queued', async () => {
    const publisher = publisherOf();
    await broker.manager.streams.update('SLUICE_EVENTS', { max_bytes: 1_000 });
    expect(await storedOf(publisher, '1', 5)).toBe(0);
    const debtOfFive = WORK_FREE_MS - 5 * eachMs;
    expect(debtOfFive).toBeGreaterThan(0);
    await broker.manager.streams.update('SLUICE_EVENTS', { max_bytes: -1 });
    expect(await storedOf(publisher, '1', 60)).toBe(Math.floor(WORK_FREE_MS / eachMs) + 1);
  });
});

it("a project at its plan's limit, with large recordings among its events, is never refused", () => {
  const shares = new WorkShares({ link: broker.link, clock, workers: 4, isShared: () => true });
  const event = workOf({ items: [{ type: 'event', length: 2_000 }], privacy });
  const recording = workOf({ items: [{ type: 'replay_recording', length: 5_000_000 }], privacy });
  // A hundred thousand events in a minute, all by one worker, and twelve recordings.
  let refused = 0;
  for (let second = 0; second < 60; second++) {
    for (let count = 0; count < 1_667; count++) {
      if (!shares.allows('1')) refused++;
      shares.add('1', count === 0 && second % 5 === 0 ? recording : event);
      now += 1_000 / 1_667;
    }
  }
  expect(refused).toBe(0);
});

describe('a project that a processor names', () => {
  let shares: WorkShares;
  beforeEach(() => {
    shares = new WorkShares({ link: broker.link, clock, workers: 1, isShared: () => true });
  });
  /** Resolves when the workers have heard it. */
  async function name(projectId: string): Promise<void> {
    broker.link.connection.publish(HEAVY_SUBJECT, projectId);
    await broker.link.connection.flush();
  }

  it('rests for a second; others go on', async () => {
    await name('1');
    expect([shares.allows('1'), shares.allows('2')]).toEqual([false, true]);
    now += WORK_REST_MS - 1;
    expect(shares.allows('1')).toBe(false);
    now += 1;
    expect(shares.allows('1')).toBe(true);
  });

  it('rests on while it is named', async () => {
    for (let count = 0; count < 5; count++) {
      await name('1');
      now += WORK_REST_MS / 2;
      expect(shares.allows('1')).toBe(false);
    }
  });

  it('pays twice as much each time that it begins again, and less when nobody names it', async () => {
    const prices: number[] = [];
    for (let count = 0; count < 3; count++) {
      await name('1');
      now += 10_000;
      prices.push(shares.add('1', 1));
    }
    expect(prices).toEqual([2, 4, 8]);
    now += 60_000;
    expect(shares.add('1', 1)).toBe(2);
    now += 30_000;
    expect(shares.add('1', 1)).toBe(1);
  });
});

describe('the work on an entry', () => {
  it('of an OTLP request is that of its rows', () => {
    const ofOtlp = (length: number): number => workOf({ items: [{ type: 'otlp_traces', length }] });
    expect(ofOtlp(100_000)).toBeGreaterThan(10 * workOf({ items: [{ type: 'span', length: 100_000 }] }));
    expect([isHeavy({ items: [{ type: 'otlp_logs', length: MIB }] }), ofOtlp(2 * MIB)]).toEqual([
      false,
      HEAVY_OWES_MS,
    ]);
    expect(isHeavy({ items: [{ type: 'otlp_logs', length: MIB }], privacy })).toBe(true);
  });

  it('is at most that of one which others wait for', () => {
    expect(workOf({ items: [{ type: 'event', length: 2 * MIB }], privacy })).toBeLessThan(HEAVY_ENTRY_MS);
    expect(workOf({ items: [{ type: 'event', length: 20 * MIB }], privacy })).toBe(HEAVY_OWES_MS);
    expect(workOf({ items: [{ type: 'replay_recording', length: 5 * MIB }], privacy })).toBe(HEAVY_OWES_MS);
  });
});

describe('a heavy entry', () => {
  it('is a scrubbed one that is large, or a recording that may become so', () => {
    const isHeavyOf = (type: 'event' | 'replay_recording', length: number, scrubs = true): boolean =>
      isHeavy({ items: [{ type, length }], ...(scrubs && { privacy }) });
    expect(isHeavyOf('event', 20 * MIB)).toBe(true);
    expect(isHeavyOf('event', MIB)).toBe(false);
    expect(isHeavyOf('event', 20 * MIB, false)).toBe(false);
    expect(isHeavyOf('replay_recording', 60_000)).toBe(true);
    expect(isHeavyOf('replay_recording', 1_000)).toBe(false);
    expect(isHeavyOf('replay_recording', 60_000, false)).toBe(false);
    expect(isHeavyOf('replay_recording', 5 * MIB, false)).toBe(true);
  });

  it('has a frame of its own', async () => {
    const publisher = publisherOf();
    const recording: EnvelopeEntry = {
      ...envelopeOf(3),
      items: [itemOf('event', new Uint8Array(10)), itemOf('replay_recording', new Uint8Array(60_000), 1)],
      privacy,
    };
    const entries = [envelopeOf(1), envelopeOf(2), recording, envelopeOf(4), envelopeOf(5)];
    const publish = (entry: EnvelopeEntry): Promise<PublishResult> =>
      new Promise((resolve) => publisher.publish(entry, { deadline: now + 30_000 }, resolve));
    await Promise.all(entries.map(publish));
    const frames = await broker.frames('SLUICE_EVENTS');
    expect(frames.map((frame) => frame.length)).toEqual([2, 1, 2]);
  });
});
