/** A processor in this process beside a real nats-server, frames for it, and what it stored. */
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { JetStreamManager } from '@nats-io/jetstream';
import { headers, nanos } from '@nats-io/transport-node';
import { type Config, loadConfig } from '../../src/config.ts';
import { systemClock as clock } from '../../src/lib/clock.ts';
import type { ItemType } from '../../src/lib/item-types.ts';
import { createLog } from '../../src/lib/log.ts';
import { DELIVERIES_BEFORE_ALONE } from '../../src/limits.ts';
import { DeadLetterBox, type FiledDeadLetter } from '../../src/management/dead-letters/box.ts';
import { entryOf, Replay } from '../../src/management/dead-letters/replay.ts';
import { CrashCounts } from '../../src/processor/crash-counts.ts';
import type { Delivery } from '../../src/processor/delivery.ts';
import { FrameBlocks } from '../../src/processor/frames-in-hand.ts';
import { type ProcessorOptions, type RunningProcessor, runProcessor } from '../../src/processor/processor.ts';
import { readTally } from '../../src/sink/ndjson/tally.ts';
import type { CommitOptions } from '../../src/sink/sink.ts';
import type { TallyOfMonth } from '../../src/sink/tally.ts';
import { type Entry, type EnvelopeEntry, encodeEntry, encodeFrame } from '../../src/stream/frame.ts';
import { NatsLink } from '../../src/stream/nats.ts';
import { setupTopology } from '../../src/stream/setup/setup.ts';
import { FRAME_STREAMS, type FrameStream, streamName } from '../../src/stream/topology.ts';
import { lastingPort, natsServerWith, type TestServer, temporaryFolder } from '../support/servers.ts';

export const log = createLog('silent');
/** How a test commits a batch by itself. */
export const NOW: CommitOptions = { now: true, held: () => undefined };
export type { DeadLetterBox, Entry, EnvelopeEntry, FiledDeadLetter, NatsLink, RunningProcessor };
export { encodeEntry, encodeFrame, entryOf };

const MIB = 1024 * 1024;
export const EVENT_ID = 'c0ffee00c0ffee00c0ffee00c0ffee00';
export const RECEIVED_AT = Date.UTC(2026, 0, 2, 3, 4, 5, 678);

export type StoredRecord = {
  project_id: string;
  event_id: string;
  item_index: number;
  type: string;
  payload: unknown;
  [field: string]: unknown;
};

// Who looks at a frame's bytes after it was settled finds other ones, here at once and not only under load.
const { release } = FrameBlocks.prototype;
FrameBlocks.prototype.release = function (kept) {
  kept.bytes.fill(0xff);
  release.call(this, kept);
};

export type Readiness = { code: number; status: string; checks: Record<string, string> };

const utf8 = (text: string): Uint8Array => new Uint8Array(Buffer.from(text));

export const item = (
  type: ItemType,
  payload: string | Uint8Array,
  more: { index?: number; header?: string } = {},
): EnvelopeEntry['items'][number] => {
  const bytes = typeof payload === 'string' ? utf8(payload) : payload;
  const header = utf8(more.header ?? `{"type":"${type}"}`);
  return { index: more.index ?? 0, type, header, length: bytes.length, payload: bytes };
};

export const envelope = (
  items: EnvelopeEntry['items'],
  more: Partial<EnvelopeEntry> = {},
): EnvelopeEntry => ({
  kind: 'envelope',
  projectId: '42',
  eventId: EVENT_ID,
  receivedAt: RECEIVED_AT,
  items,
  ...more,
});

/** As a worker publishes these entries. */
export const frameOf = (...entries: readonly Entry[]): Uint8Array => encodeFrame(entries.map(encodeEntry));

export const hexId = (n: number): string => n.toString(16).padStart(32, '0');

/** An event with a number, which is also its event id. */
export const event = (n: number, more: Partial<EnvelopeEntry> = {}): EnvelopeEntry =>
  envelope([item('event', `{"n":${n}}`)], { eventId: hexId(n), ...more });
export const numbersTo = (count: number): number[] => Array.from({ length: count }, (_, at) => at + 1);
/** The numbers of such events, in ascending order. */
export const numbersIn = (records: readonly StoredRecord[]): number[] =>
  records.map(({ payload }) => (payload as { n: number }).n).sort((a, b) => a - b);

export async function eventually<T>(look: () => T | Promise<T>, withinMs = 60_000): Promise<NonNullable<T>> {
  for (const until = performance.now() + withinMs; ; ) {
    const found = await look();
    if (found) return found as NonNullable<T>;
    if (performance.now() > until) throw new Error(`not so within ${withinMs} ms: ${look}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

export class Harness {
  readonly nats: TestServer;
  readonly link: NatsLink;
  readonly dir = temporaryFolder('sink');
  readonly adminPort: number;
  readonly manager: JetStreamManager;
  readonly #running: RunningProcessor[] = [];
  #frames = 0;

  private constructor(
    nats: TestServer,
    link: NatsLink,
    rest: { adminPort: number; manager: JetStreamManager },
  ) {
    this.nats = nats;
    this.link = link;
    this.adminPort = rest.adminPort;
    this.manager = rest.manager;
  }

  /**
   * @param ackWaitMs how long the broker waits before it delivers again; a test does not want to wait for ten seconds
   * @param brokerLines of its configuration
   */
  static async start({
    ackWaitMs = 2_000,
    maxBytes = 256 * MIB,
    brokerLines = [] as string[],
  } = {}): Promise<Harness> {
    const nats = await natsServerWith(...brokerLines);
    const link = await NatsLink.connect({ urls: [nats.url], name: 'test', log });
    await setupTopology(link, { replicas: 1, shards: 1, maxBytes });
    const manager = await link.manager();
    for (const stream of FRAME_STREAMS)
      await manager.consumers.update(streamName(stream, 0, 1), 'processor', { ack_wait: nanos(ackWaitMs) });
    return new Harness(nats, link, { adminPort: await lastingPort(), manager });
  }

  /** Settings of a processor on our servers. */
  environment(more: Record<string, string> = {}): Record<string, string> {
    return {
      SLUICE_NATS_URL: this.nats.url,
      SLUICE_SINK: `ndjson:${this.dir}`,
      SLUICE_ADMIN_PORT: `${this.adminPort}`,
      SLUICE_LOG_LEVEL: 'silent',
      ...more,
    };
  }

  config(more: Record<string, string> = {}): Config {
    return loadConfig(this.environment(more)).config;
  }

  async process(options: ProcessorOptions = {}): Promise<RunningProcessor> {
    const processor = await this.run({}, options);
    this.#running.push(processor);
    return processor;
  }

  /** With settings of its own; who asks for it stops it. */
  run(
    settings: Record<string, string> = {},
    options: ProcessorOptions = {},
    to = log,
  ): Promise<RunningProcessor> {
    return runProcessor(this.config(settings), to, options);
  }

  /** Of the sink in our folder. */
  tally(projectId: string, month: string): Promise<TallyOfMonth> {
    return readTally(this.dir, projectId, month);
  }

  /** How often a frame of the events has ended a process. */
  crashesOf(sequence: number): Promise<number> {
    return new CrashCounts(this.link).read({ stream: 'SLUICE_EVENTS', sequence } as Delivery);
  }

  noteCrashes(sequence: number, crashes: number): Promise<void> {
    return new CrashCounts(this.link).write({ stream: 'SLUICE_EVENTS', sequence } as Delivery, crashes);
  }

  /** @returns the subject that it went to */
  async replay(letter: FiledDeadLetter): Promise<string> {
    const replay = new Replay({ link: this.link, box: await this.letters(), shards: 1, clock, log });
    return (await replay.run(letter)).subject;
  }

  letters(): Promise<DeadLetterBox> {
    return DeadLetterBox.open(this.link);
  }

  /** A frame of these entries, as a worker would publish it. @returns its sequence */
  async publish(entries: readonly Entry[], { stream = 'events', id = '' } = {}): Promise<number> {
    return this.publishBytes(frameOf(...entries), { stream, id });
  }

  async publishBytes(bytes: Uint8Array, { stream = 'events', id = '' } = {}): Promise<number> {
    const out = headers();
    out.set('Nats-Msg-Id', id || `test:${++this.#frames}`);
    const { seq } = await this.link.js.publish(`sluice.${stream}.0`, bytes, { headers: out });
    return seq;
  }

  /** Under the id of one that was published before, as soon as the broker has forgotten that id. @returns its sequence */
  async publishAgain(bytes: Uint8Array, to: { stream?: FrameStream; id: string }): Promise<number> {
    const name = streamName(to.stream ?? 'events', 0, 1);
    const { config, state } = await this.manager.streams.info(name);
    let attempt = 0;
    return eventually(async () => {
      // A new window each time: the broker looks at once, and when it does so before it has set the window, it
      // looks again after the old one, unless the window changes once more (nats-server 2.15: 3 of 300 updates).
      const duplicate_window = nanos(100 + (attempt++ % 2));
      await this.manager.streams.update(name, { ...config, duplicate_window });
      const sequence = await this.publishBytes(bytes, to);
      return sequence > state.last_seq ? sequence : undefined;
    });
  }

  /** The first frame of the events was handed out so often that it is handled alone. */
  async deliverOften(): Promise<void> {
    const consumer = await this.link.js.consumers.get('SLUICE_EVENTS', 'processor');
    for (let delivery = 1; delivery < DELIVERIES_BEFORE_ALONE; delivery++) (await consumer.next())?.nak();
  }

  /** Puts payloads into the chunks stream in pieces. @returns what the frame says of them */
  async chunk(whole: Uint8Array, pieceBytes = 500_000): Promise<NonNullable<EnvelopeEntry['parts']>> {
    const sequences: number[] = [];
    for (let at = 0; at < whole.length; at += pieceBytes)
      sequences.push((await this.link.js.publish('sluice.chunks', whole.subarray(at, at + pieceBytes))).seq);
    return {
      sequences,
      length: whole.length,
      sha256: new Uint8Array(createHash('sha256').update(whole).digest()),
    };
  }

  /** Paths of the data files, in order. */
  files(): string[] {
    if (!existsSync(this.dir)) return [];
    const names = readdirSync(this.dir, { recursive: true, encoding: 'utf8' });
    return names.filter((name) => name.endsWith('.ndjson')).sort();
  }

  lines(): string[] {
    return this.files().flatMap((name) => readFileSync(join(this.dir, name), 'utf8').trimEnd().split('\n'));
  }

  stored(): StoredRecord[] {
    return this.lines().map((line) => JSON.parse(line) as StoredRecord);
  }

  /** The records once there are at least so many. */
  storedOnce(count: number): Promise<StoredRecord[]> {
    return eventually(() => {
      const records = this.stored();
      return records.length >= count ? records : undefined;
    });
  }

  /** Resolves when every frame is acknowledged. */
  async drained(withinMs = 120_000): Promise<void> {
    await eventually(async () => {
      for (const stream of FRAME_STREAMS)
        if ((await this.manager.streams.info(streamName(stream, 0, 1))).state.messages > 0) return false;
      return true;
    }, withinMs);
  }

  async messages(stream: string): Promise<number> {
    return (await this.manager.streams.info(stream)).state.messages;
  }

  async readiness(): Promise<Readiness> {
    const answer = await fetch(`http://127.0.0.1:${this.adminPort}/readyz`);
    return { code: answer.status, ...((await answer.json()) as Omit<Readiness, 'code'>) };
  }

  async metric(name: string, labels = ''): Promise<number> {
    const text = await (await fetch(`http://127.0.0.1:${this.adminPort}/metrics`)).text();
    const line = text.split('\n').find((one) => one.startsWith(`${name}${labels} `));
    return line ? Number(line.slice(line.lastIndexOf(' ') + 1)) : 0;
  }

  async close(): Promise<void> {
    for (const processor of this.#running) await processor.stop();
    await this.link.close();
    await this.nats.close();
    rmSync(this.dir, { recursive: true, force: true });
  }
}
