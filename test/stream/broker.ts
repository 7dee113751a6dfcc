/** A nats-server with the topology, a link and a publisher, and ways to see what stands in its streams. */

import type { JetStreamManager } from '@nats-io/jetstream';
import { assert } from '../../src/lib/assert.ts';
import { type Clock, systemClock } from '../../src/lib/clock.ts';
import type { ByteSource } from '../../src/lib/files/byte-source.ts';
import { ITEM_TYPES, type ItemType } from '../../src/lib/item-types.ts';
import { createLog } from '../../src/lib/log.ts';
import { decodeFrame, type Entry, type EntryItem, type EnvelopeEntry } from '../../src/stream/frame.ts';
import { NatsLink } from '../../src/stream/nats.ts';
import { Publisher, type PublishResult } from '../../src/stream/publish/publisher.ts';
import { setupTopology } from '../../src/stream/setup/setup.ts';
import { freeze, thaw } from '../support/freeze.ts';
import { natsServer, natsServerWith, type TestServer } from '../support/servers.ts';

export const MIB = 1024 * 1024;
/** The deadline of an entry where a test is not about deadlines. */
const PATIENT_MS = 30_000;

/** @param lines of the server's configuration */
export type BrokerOptions = { shards?: number; maxBytes?: number; clock?: Clock; lines?: string[] };

export const numbersTo = (count: number): number[] => Array.from({ length: count }, (_, at) => at);

/** What became of each entry; a second answer for one is an error at once. */
export class Tally {
  readonly #publisher: Publisher;
  readonly #results: { id: string; result: PublishResult | undefined }[] = [];

  constructor(publisher: Publisher) {
    this.#publisher = publisher;
  }

  publish(entry: Entry, ms = PATIENT_MS, source?: ByteSource): void {
    const row: { id: string; result: PublishResult | undefined } = { id: nameOf(entry), result: undefined };
    this.#results.push(row);
    this.#publisher.publish(entry, { deadline: performance.now() + ms, source }, (result) => {
      assert(row.result === undefined, `${row.id} was ${row.result} and then ${result}`);
      row.result = result;
    });
  }

  counts(): Partial<Record<PublishResult, number>> {
    const counts: Partial<Record<PublishResult, number>> = {};
    for (const { result } of this.#results) if (result) counts[result] = (counts[result] ?? 0) + 1;
    return counts;
  }

  idsOf(wanted: PublishResult): string[] {
    return this.#results.filter(({ result }) => result === wanted).map(({ id }) => id);
  }

  get open(): number {
    return this.#results.filter(({ result }) => result === undefined).length;
  }
}

export const nameOf = (entry: Entry): string => (entry.kind === 'envelope' ? entry.eventId : entry.token);

export class Broker {
  server: TestServer;
  readonly link: NatsLink;
  readonly manager: JetStreamManager;
  readonly publisher: Publisher;

  private constructor(parts: Pick<Broker, 'server' | 'link' | 'manager' | 'publisher'>) {
    this.server = parts.server;
    this.link = parts.link;
    this.manager = parts.manager;
    this.publisher = parts.publisher;
  }

  static async start({
    shards = 1,
    maxBytes = 64 * MIB,
    clock = systemClock,
    lines = [],
  }: BrokerOptions = {}): Promise<Broker> {
    const server = await natsServerWith(...lines);
    const log = createLog('silent');
    const link = await NatsLink.connect({ urls: [server.url], name: 'test', log });
    await setupTopology(link, { replicas: 1, shards, maxBytes });
    const publisher = new Publisher({ link, shards, clock, log });
    return new Broker({ server, link, manager: await link.manager(), publisher });
  }

  /** The server stands still, its connections stay open. */
  freeze(): Promise<void> {
    return freeze(this.server.pid);
  }

  thaw(): void {
    thaw(this.server.pid);
  }

  async close(): Promise<void> {
    this.thaw(); // after a test that failed while it stood still
    await this.link.close();
    await this.server.close();
  }

  /** The same server again, after it was killed. */
  async restart(): Promise<void> {
    await this.server.exited;
    this.server = await natsServer(this.server);
  }

  /** Publishes and waits for the result. */
  publish(entry: Entry, ms = PATIENT_MS): Promise<PublishResult> {
    const deadline = performance.now() + ms;
    return new Promise((resolve) => this.publisher.publish(entry, { deadline }, resolve));
  }

  async messageCount(stream: string): Promise<number> {
    return (await this.manager.streams.info(stream)).state.messages;
  }

  /** The entries of each frame of a stream, in stream order. */
  async frames(stream: string): Promise<Entry[][]> {
    const { state } = await this.manager.streams.info(stream);
    const frames: Entry[][] = [];
    for (let seq = state.first_seq; seq <= state.last_seq; seq++) {
      const message = await this.manager.streams.getMessage(stream, { seq });
      if (!message) continue;
      frames.push(
        decodeFrame(message.data).map((slot) => {
          if (!slot.ok) throw slot.error;
          return slot.entry;
        }),
      );
    }
    return frames;
  }

  async eventIds(stream: string): Promise<string[]> {
    const frames = await this.frames(stream);
    return frames.flat().map(nameOf);
  }
}

export const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);

export const idOf = (number: number): string => number.toString(16).padStart(32, '0');

export function itemOf(type: ItemType, payload: Uint8Array, index = 0): EntryItem {
  const header = bytesOf(JSON.stringify({ type, length: payload.length }));
  return { index, type, header, length: payload.length, payload };
}

export function envelopeOf(
  number: number,
  payload: Uint8Array = bytesOf(`payload ${number}`),
): EnvelopeEntry {
  return {
    kind: 'envelope',
    projectId: '4711',
    eventId: idOf(number),
    receivedAt: 1_790_000_000_000 + number,
    items: [itemOf(ITEM_TYPES[0], payload)],
  };
}
