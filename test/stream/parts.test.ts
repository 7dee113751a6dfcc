import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, open, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { headers } from '@nats-io/transport-node';
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import type { ByteSource } from '../../src/lib/files/byte-source.ts';
import { LARGE_ENTRIES_ACTIVE_MAX } from '../../src/limits.ts';
import type { EnvelopeEntry, PartsRef } from '../../src/stream/frame.ts';
import {
  CorruptPartsError,
  joinParts,
  MissingPartError,
  moveHeaders,
  readParts,
  sourceOf,
} from '../../src/stream/parts.ts';
import { Broker, bytesOf, envelopeOf, idOf, itemOf, MIB, numbersTo, Tally } from './broker.ts';

let broker: Broker;
afterEach(() => broker?.close());
const start = async (maxBytes = 256 * MIB): Promise<void> => {
  broker = await Broker.start({ maxBytes });
};

const spooled = (entry: EnvelopeEntry): EnvelopeEntry => ({
  ...entry,
  items: entry.items.map(({ payload: _, ...item }) => item),
});

/** The entry as a processor gets it: out of its frame, joined with its parts. */
async function received(stream = 'SLUICE_EVENTS'): Promise<EnvelopeEntry> {
  const [[entry]] = (await broker.frames(stream)) as [[EnvelopeEntry]];
  expect(entry.items.every(({ payload }) => payload === undefined)).toBe(true);
  return joinParts(entry, plain(await readParts(broker.link, entry.parts as PartsRef)));
}
const plain = (bytes: Uint8Array): Uint8Array => new Uint8Array(bytes);
const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
/** The entry with digests in the place of bytes: a megabyte is compared in no time, and a difference is printable. */
const digested = (entry: EnvelopeEntry) => ({
  ...entry,
  items: entry.items.map((item) => ({
    ...item,
    header: sha256(item.header),
    payload: sha256(item.payload as Uint8Array),
  })),
});

describe('a large entry', () => {
  it('of several items comes out of a file', async () => {
    await start();
    const payloads = [1_500_000, 0, 300, 700_000].map((length) => plain(randomBytes(length)));
    const entry = { ...envelopeOf(1), items: payloads.map((bytes, at) => itemOf('log', bytes, at * 2)) };
    const dir = await mkdtemp(join(tmpdir(), 'sluice-chunks-'));
    const file = await open(join(dir, 'spool'), 'w+');
    await file.write(Buffer.concat(payloads));
    const source: ByteSource = {
      length: 2_200_300,
      read: async (offset, length) => (await file.read(Buffer.alloc(length), 0, length, offset)).buffer,
    };
    const tally = new Tally(broker.publisher);
    tally.publish(spooled(entry), 5_000, source);
    await broker.publisher.drain();
    expect(tally.counts()).toEqual({ stored: 1 });
    expect(digested(await received('SLUICE_LOGS'))).toEqual(digested(entry));
    await file.close();
    await rm(dir, { recursive: true });
  });

  it('that was spooled and is small goes into its frame all the same', async () => {
    await start();
    const entry = envelopeOf(1, plain(randomBytes(20_000)));
    const tally = new Tally(broker.publisher);
    tally.publish(spooled(entry), 5_000, sourceOf(entry));
    await broker.publisher.drain();
    expect(tally.counts()).toEqual({ stored: 1 });
    expect(await broker.frames('SLUICE_EVENTS')).toEqual([[entry]]);
    expect(await broker.messageCount('SLUICE_CHUNKS')).toBe(0);
  });

  it('with a hundred headers as long as headers may be comes back with them', async () => {
    await start();
    const items = numbersTo(100).map((index) => ({
      ...itemOf('log', bytesOf(`{"items":[${index}]}`), index),
      header: bytesOf(`{"type":"log","filler":"${'x'.repeat(16_000)}${index}"}`),
    }));
    const entry = { ...envelopeOf(1), items };
    expect(await broker.publish(entry)).toBe('stored');
    expect(digested(await received('SLUICE_LOGS'))).toEqual(digested(entry));
  });

  it('waits for its turn when many come together', async () => {
    await start();
    const payload = randomBytes(1_200_000);
    let reading = 0;
    let most = 0;
    const source: ByteSource = {
      length: payload.length,
      read: async (offset, length) => {
        most = Math.max(most, ++reading);
        await new Promise((resolve) => setTimeout(resolve, 2));
        reading--;
        return payload.subarray(offset, offset + length);
      },
    };
    const tally = new Tally(broker.publisher);
    for (const number of numbersTo(30)) tally.publish(spooled(envelopeOf(number, payload)), 10_000, source);
    await broker.publisher.drain();
    expect(tally.counts()).toEqual({ stored: 30 });
    expect(most).toBe(LARGE_ENTRIES_ACTIVE_MAX);
    expect((await broker.eventIds('SLUICE_EVENTS')).sort()).toEqual(numbersTo(30).map(idOf));
  });

  it('is refused when its parts find the stream full, and small ones go on', async () => {
    await start(2 * MIB);
    expect(await broker.publish(envelopeOf(1, randomBytes(3_000_000)))).toBe('refused');
    expect(await broker.publish(envelopeOf(2))).toBe('stored');
    expect(await broker.eventIds('SLUICE_EVENTS')).toEqual([idOf(2)]);
  });

  it('is over at its deadline, whatever its source does', async () => {
    await start();
    const stuck: ByteSource = { length: 2_000_000, read: () => new Promise(() => undefined) };
    const tally = new Tally(broker.publisher);
    for (const number of numbersTo(LARGE_ENTRIES_ACTIVE_MAX + 1))
      tally.publish(spooled(envelopeOf(number, new Uint8Array(2_000_000))), 200, stuck);
    await broker.publisher.drain();
    expect(tally.counts()).toEqual({ refused: LARGE_ENTRIES_ACTIVE_MAX + 1 });
  });

  it.each([
    ['never ends, at its deadline', () => new Promise<never>(() => undefined)],
    ['fails', () => Promise.reject(new Error('EIO'))],
  ])('is refused when the read of a later part %s: no frame names the others', async (_how, read) => {
    await start();
    const source: ByteSource = {
      length: 2_000_000,
      read: (offset, length) => (offset === 0 ? Promise.resolve(randomBytes(length)) : read()),
    };
    const tally = new Tally(broker.publisher);
    tally.publish(spooled(envelopeOf(1, new Uint8Array(2_000_000))), 200, source);
    await broker.publisher.drain();
    expect(tally.counts()).toEqual({ refused: 1 });
    expect(await broker.messageCount('SLUICE_EVENTS')).toBe(0);
  });

  it('survives a broker that stands still, and no part is there twice', async () => {
    await start();
    const payload = plain(randomBytes(4_900_000));
    await broker.freeze();
    const result = broker.publish(envelopeOf(1, payload), 8_000);
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    broker.thaw();
    expect(await result).toBe('stored');
    expect(await broker.messageCount('SLUICE_CHUNKS')).toBe(10);
    expect(broker.publisher.inFlightBytes).toBe(0);
    expect(digested(await received())).toEqual(digested(envelopeOf(1, payload)));
  });
});

const LARGE = plain(randomBytes(1_200_000));
/** @param lines of the broker's configuration */
async function publishLarge(lines: string[] = []): Promise<PartsRef> {
  broker = await Broker.start({ lines });
  await broker.publish(envelopeOf(1, LARGE));
  const [[entry]] = (await broker.frames('SLUICE_EVENTS')) as [[EnvelopeEntry]];
  return entry.parts as PartsRef;
}

describe('reading parts', () => {
  it('says when one is gone', async () => {
    const ref = await publishLarge();
    await broker.manager.streams.deleteMessage('SLUICE_CHUNKS', ref.sequences[1]!);
    await expect(readParts(broker.link, ref)).rejects.toThrow(MissingPartError);
  });

  it('says when they are not what the frame means', async () => {
    const ref = await publishLarge();
    const wrong: PartsRef[] = [
      { ...ref, sequences: [...ref.sequences].reverse() },
      { ...ref, sequences: ref.sequences.slice(1) },
      { ...ref, length: ref.length - 1 },
      { ...ref, length: 2 ** 40 },
      { ...ref, sha256: new Uint8Array(32) },
    ];
    for (const one of wrong) await expect(readParts(broker.link, one)).rejects.toThrow(CorruptPartsError);
  });

  it('tells a broker that is away from a part that is gone', async () => {
    const ref = await publishLarge();
    await broker.freeze();
    const failure = await readParts(broker.link, ref).catch((error) => error);
    broker.thaw();
    expect(failure).toBeInstanceOf(Error);
    expect(failure).not.toBeInstanceOf(MissingPartError);
    expect(failure).not.toBeInstanceOf(CorruptPartsError);
  });
});

describe('where parts are read', () => {
  /** How often the leader was asked for a message while `work` ran. */
  const asksOfLeader = async (work: () => Promise<unknown>): Promise<number> => {
    let asked = 0;
    const listener = broker.link.subscribe('$JS.API.STREAM.MSG.GET.>', () => asked++);
    await broker.link.connection.flush();
    await work();
    await listener.drain();
    return asked;
  };
  const readsThem = async (ref: PartsRef): Promise<void> => {
    expect(sha256(await readParts(broker.link, ref))).toBe(sha256(LARGE));
  };

  it('at the leader where an earlier setup made the stream, and directly once a setup allows it', async () => {
    const ref = await publishLarge();
    await broker.manager.streams.update('SLUICE_CHUNKS', { allow_direct: false });
    expect(await asksOfLeader(() => readsThem(ref))).toBe(ref.sequences.length);
    await broker.manager.streams.update('SLUICE_CHUNKS', { allow_direct: true });
    expect(await asksOfLeader(() => readsThem(ref))).toBe(0);
  });

  it('at the leader, the one part that a replica does not have yet', async () => {
    const ref = await publishLarge(['mappings: { "$JS.API.DIRECT.GET.SLUICE_CHUNKS": "replica" }']);
    const parts = new Map<number, Uint8Array>();
    for (const seq of ref.sequences.slice(0, -1))
      parts.set(seq, (await broker.manager.streams.getMessage('SLUICE_CHUNKS', { seq }))!.data);
    broker.link.subscribe('replica', (request) => {
      const data = parts.get(request.json<{ seq: number }>().seq);
      const answerHeaders = data ? headers() : headers(404, 'Message Not Found');
      answerHeaders.set('Nats-Stream', 'SLUICE_CHUNKS');
      request.respond(data ?? new Uint8Array(), { headers: answerHeaders });
    });
    expect(await asksOfLeader(() => readsThem(ref))).toBe(1);
  });

  it.each([
    ['lags behind', new Uint8Array(), headers(404, 'Message Not Found')],
    ['has other bytes', randomBytes(500), headers()],
  ])('at the leader when a replica %s', async (_name, bytes, answerHeaders) => {
    const ref = await publishLarge(['mappings: { "$JS.API.DIRECT.GET.SLUICE_CHUNKS": "replica" }']);
    answerHeaders.set('Nats-Stream', 'SLUICE_CHUNKS');
    let asked = 0;
    broker.link.subscribe('replica', (request) => {
      asked++;
      request.respond(bytes, { headers: answerHeaders });
    });
    expect(await asksOfLeader(() => readsThem(ref))).toBe(ref.sequences.length);
    expect(asked).toBe(ref.sequences.length);
  });
});

describe('headers that move behind the payloads', () => {
  it('are read with them in pieces of any size and joined again', async () => {
    const bytes = fc.uint8Array({ maxLength: 40 });
    const items = fc.array(fc.record({ header: bytes, payload: bytes }), { minLength: 1, maxLength: 6 });
    await fc.assert(
      fc.asyncProperty(items, fc.integer({ min: 1, max: 50 }), async (parts, step) => {
        const entry = {
          ...envelopeOf(1),
          items: parts.map(({ header, payload }, at) => ({ ...itemOf('log', payload, at), header })),
        };
        const moved = moveHeaders(spooled(entry), sourceOf(entry));
        const pieces: Uint8Array[] = [];
        for (let at = 0; at < moved.source.length; at += step)
          pieces.push(await moved.source.read(at, Math.min(step, moved.source.length - at)));
        expect(joinParts(moved.entry, plain(Buffer.concat(pieces)))).toEqual(entry);
      }),
    );
  });
});
