/** Frames that are decoded beside their stream: whose turn it is, and that others pass them. */
import { gzipSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  HEAVY_DECODED_BYTES_MAX,
  HEAVY_DECODING_MAX,
  HEAVY_WAIT_MS_MAX,
  HEAVY_WAITING_BYTES_MAX,
} from '../../src/limits.ts';
import { HeavyFrames } from '../../src/processor/heavy-frames.ts';
import type { Privacy } from '../../src/stream/frame.ts';
import { HEAVY_SUBJECT } from '../../src/stream/work.ts';
import { type EnvelopeEntry, envelope, Harness, hexId, item, type StoredRecord } from './harness.ts';

const MIB = 1024 * 1024;

describe('frames that take long', () => {
  let now: number;
  let named: string[];
  let heavy: HeavyFrames;
  let begun: string[];
  const ends = new Map<string, () => void>();
  beforeEach(() => {
    now = 1_000;
    named = [];
    begun = [];
    ends.clear();
    heavy = new HeavyFrames({ clock: { monotonic: () => now }, onTooMany: (id) => named.push(id) });
  });
  const add = (frame: string, projectId: string, bytes = 1): Promise<void> =>
    heavy.run(projectId, bytes, () => {
      begun.push(frame);
      return new Promise((resolve) => ends.set(frame, resolve));
    });
  const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  const end = async (frame: string): Promise<void> => {
    ends.get(frame)?.();
    await turn();
  };

  it('are at work one of each project, in turns, and few together', async () => {
    for (const frame of ['a1', 'a2', 'b1', 'b2', 'c1', 'd1']) void add(frame, frame.charAt(0));
    await turn();
    expect(begun).toEqual(['a1', 'b1']);
    expect(begun.length).toBe(HEAVY_DECODING_MAX);
    await end('a1');
    expect(begun.slice(2)).toEqual(['c1']);
    await end('b1');
    await end('c1');
    await end('d1');
    expect(begun.slice(2)).toEqual(['c1', 'd1', 'a2', 'b2']);
  });

  it('begin when what is decoded is written', async () => {
    heavy.decoded(HEAVY_DECODED_BYTES_MAX);
    void add('a1', 'a');
    await turn();
    expect(begun).toEqual([]);
    heavy.decoded(-1);
    await turn();
    expect(begun).toEqual(['a1']);
  });

  it('go on when one fails', async () => {
    const failed = heavy.run('a', 1, async () => {
      throw new Error('no');
    });
    void add('a2', 'a');
    await expect(failed).rejects.toThrow('no');
    await turn();
    expect(begun).toEqual(['a2']);
  });

  it('name their project when they are too large together, or wait too long', async () => {
    void add('a1', 'a', HEAVY_WAITING_BYTES_MAX);
    await turn();
    void add('a2', 'a', HEAVY_WAITING_BYTES_MAX);
    expect(named).toEqual([]);
    void add('a3', 'a', 1);
    expect(named).toEqual(['a']);
    void add('b1', 'b');
    void add('b2', 'b');
    now += HEAVY_WAIT_MS_MAX + 1;
    expect(named).toEqual(['a']);
    void add('b3', 'b');
    expect(named).toEqual(['a', 'b']);
  });
});

describe('a processor', () => {
  const privacy: Privacy = { scrub: ['emails'], names: [] };
  let harness: Harness;
  beforeEach(async () => {
    // As in production: a frame may take longer than the usual wait of tests, and must not come twice.
    harness = await Harness.start({ ackWaitMs: 10_000 });
  });
  afterEach(() => harness.close());

  /** Large enough that light frames are stored first on any machine. */
  const RECORDING_MIB = 5;
  const emails = (bytes: number): string => `[${'"a@b.cc",'.repeat(bytes / 9)}"a@b.cc"]`;
  const recording = (json: string): Buffer =>
    Buffer.concat([Buffer.from('{"segment_id":0}\n'), gzipSync(json)]);
  const heavyEnvelope = (): EnvelopeEntry =>
    envelope([item('replay_recording', recording(emails(RECORDING_MIB * MIB)))], {
      projectId: 'heavy',
      privacy,
    });
  const eventOf = (number: number): EnvelopeEntry =>
    envelope([item('event', '{}')], { eventId: hexId(number), projectId: 'light' });
  const projects = (): string[] => harness.stored().map(({ project_id }) => project_id);

  it('stores what other projects sent after recordings that take seconds, then these, and names nobody for so few', async () => {
    const named: string[] = [];
    harness.link.subscribe(HEAVY_SUBJECT, ({ data }) => named.push(Buffer.from(data).toString()));
    for (let count = 2; count <= 3; count++)
      await harness.publish([{ ...heavyEnvelope(), eventId: hexId(count) }], { stream: 'replays' });
    await harness.publish([eventOf(1)], { stream: 'replays' });
    await harness.process();
    await harness.drained();
    expect(projects()).toEqual(['light', 'heavy', 'heavy']);
    const [, stored] = harness.stored();
    const { recording: texts } = (stored as StoredRecord).payload as { recording: string[] };
    expect(new Set(texts)).toEqual(new Set(['[Filtered]']));
    expect(named).toEqual([]);
  });

  it('does not let large envelopes of other projects wait for it', async () => {
    const large = new TextEncoder().encode(JSON.stringify({ message: 'y'.repeat(MIB) }));
    const { payload: _payload, ...event } = item('event', large);
    const parts = await harness.chunk(large);
    await harness.publish([heavyEnvelope()], { stream: 'replays' });
    await harness.publish([envelope([event], { projectId: 'light', parts })]);
    await harness.process();
    await harness.storedOnce(1);
    expect(projects()).toEqual(['light']);
    await harness.drained();
    expect(projects().sort()).toEqual(['heavy', 'light']);
  });

  it('gives back what it had no time for, and another stores it once', async () => {
    for (let count = 1; count <= 3; count++)
      await harness.publish([{ ...heavyEnvelope(), eventId: hexId(count) }], { stream: 'replays' });
    await harness.publish([eventOf(9)], { stream: 'replays' });
    const processor = await harness.process();
    await harness.storedOnce(1);
    await processor.stop();
    await harness.process();
    await harness.drained();
    expect(projects().sort()).toEqual(['heavy', 'heavy', 'heavy', 'light']);
  });
});
