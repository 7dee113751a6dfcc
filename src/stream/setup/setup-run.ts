/**
 * One run of setup. It looks at all streams and buckets, refuses what is impossible, and only then
 * changes anything. When the broker refuses to create a stream for want of storage, setup undoes
 * its earlier changes. Setup refuses changes that would lose data. One exception: when two setups
 * run at once, a deleted stream may lose frames that it took just before.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import {
  type ConsumerConfig,
  type ConsumerInfo,
  type JetStreamManager,
  StorageType,
  type StreamConfig,
  type StreamInfo,
} from '@nats-io/jetstream';
import { Kvm } from '@nats-io/kv';
import { readBacklog } from '../backlog.ts';
import type { NatsLink } from '../nats.ts';
import { streamInfos } from '../stream-watch.ts';
import { bytesText, changesBetween, type FieldChange } from './config-diff.ts';
import {
  API_CODES,
  explained,
  isApiError,
  isMissing,
  orMissing,
  SetupError,
  StorageError,
} from './setup-error.ts';

/**
 * A stream as wanted. Setup controls only the fields that are given; the server chooses the others.
 */
export type WantedStream = {
  config: Partial<StreamConfig> & Pick<StreamConfig, 'name' | 'subjects' | 'max_bytes' | 'num_replicas'>;
  consumer?: Partial<ConsumerConfig> & { durable_name: string };
};

type Wanted = {
  streams: readonly WantedStream[];
  /**
   * `isKept`: the bucket's content exists nowhere else. So if the bucket is missing while streams
   * exist, setup does not replace it with an empty one.
   */
  buckets: readonly { bucket: string; replicas: number; isKept: boolean }[];
  /** Whether a stream of this name is one of sluice's frame streams, wanted or not. */
  isOurs(name: string): boolean;
  /** Name of the consumer that each frame stream has. */
  consumer: string;
};

type StreamPlan = WantedStream & { current: StreamInfo | undefined; changes: FieldChange[] };

/**
 * Value of `max_msg_size` with which a stream is *closed*: it refuses every frame, because frames
 * are larger. A stream that belongs to another number of shards is closed before it is deleted.
 */
const CLOSED_BYTES = 1;
/** Value of `max_msg_size` for an open stream: no limit. */
const OPEN_BYTES = -1;

const ADD_TRIES = 10;
const ADD_PAUSE_MS = 200;

/** Fields of streams and consumers that the server refuses to change. */
const FIXED = ['retention', 'storage', 'ack_policy'];

function refuseFixed(what: string, changes: readonly FieldChange[]): void {
  const fixed = changes.find(({ field }) => FIXED.includes(field));
  if (fixed)
    throw new SetupError(
      `${what}: ${fixed.text} cannot be changed. Let the processor empty it, delete it, and run setup again`,
    );
}

export class SetupRun {
  readonly #link: NatsLink;
  readonly #manager: JetStreamManager;
  readonly #wanted: Wanted;
  readonly #said: string[] = [];
  /** Functions that undo the changes made so far, in the order of the changes. */
  readonly #takeBack: (() => Promise<unknown>)[] = [];

  private constructor(link: NatsLink, manager: JetStreamManager, wanted: Wanted) {
    this.#link = link;
    this.#manager = manager;
    this.#wanted = wanted;
  }

  static async start(link: NatsLink, wanted: Wanted): Promise<SetupRun> {
    return new SetupRun(link, await link.manager(), wanted);
  }

  /**
   * Runs setup.
   * @returns a line for each change, in order
   */
  async apply(): Promise<string[]> {
    this.#refuseReplicas();
    const surplus = await this.#surplus();
    const names = surplus.map(({ config }) => config.name);
    const plans = await this.#openIfFails(names, async () => {
      const found = await this.#plans(surplus);
      if (surplus.length > 0 || found.some(({ current }) => current)) await this.#refuseLostBuckets();
      await this.#retire(surplus);
      return found;
    });
    // Buckets are made before streams. So when a stream exists but a bucket does not, the bucket
    // was deleted.
    for (const { bucket, replicas } of this.#wanted.buckets) await this.#makeBucket(bucket, replicas);
    await this.#makeAll(plans);
    return this.#said;
  }

  /**
   * Refuses to replace a bucket that somebody deleted. An empty bucket of projects would refuse
   * every key.
   */
  async #refuseLostBuckets(): Promise<void> {
    for (const { bucket, isKept } of this.#wanted.buckets) {
      if (!isKept || (await orMissing(this.#manager.streams.info(`KV_${bucket}`)))) continue;
      throw new SetupError(
        `the bucket ${bucket} is missing, though streams are there: somebody deleted it. Workers that run keep ` +
          'their copy. Restore it (docs/operations.md, "A bucket that was deleted"), or make an empty one, which ' +
          'refuses every key, with sluice setup --empty-buckets',
      );
    }
  }

  #refuseReplicas(): void {
    const { config } = this.#wanted.streams[0] as WantedStream;
    if (config.num_replicas > 1 && !this.#link.connection.info?.cluster)
      throw new SetupError(
        `${config.num_replicas} replicas need a NATS cluster; this is a single server: ` +
          'set SLUICE_STREAM_REPLICAS=1',
      );
  }

  /**
   * Creates a stream or bucket, and tries again when the server cannot do so yet. When the last
   * stream of an account is deleted, nats-server (2.15) removes the account's folders in the
   * background, and cannot create a stream meanwhile.
   * @throws the server's error
   */
  async #add(make: () => Promise<unknown>): Promise<void> {
    for (let tries = 1; ; tries++)
      try {
        await make();
        return;
      } catch (error) {
        const isFolder = isApiError(error, API_CODES.streamCreate) && /creating store/.test(error.message);
        if (tries === ADD_TRIES || !isFolder) throw error;
        await sleep(ADD_PAUSE_MS);
      }
  }

  async #plan(wanted: WantedStream): Promise<StreamPlan> {
    const { config } = wanted;
    const current = await orMissing(this.#manager.streams.info(config.name));
    const changes = current ? changesBetween(current.config, config) : [];
    refuseFixed(`stream ${config.name}`, changes);
    if (
      current &&
      changes.some(({ field }) => field === 'max_bytes') &&
      config.max_bytes < current.state.bytes
    )
      throw new SetupError(
        `stream ${config.name} holds ${bytesText(current.state.bytes)}, ` +
          `more than the new bound of ${bytesText(config.max_bytes)}`,
      );
    return { ...wanted, current, changes };
  }

  /** Whether deleting the stream might lose frames. */
  async #holdsFrames(stream: string): Promise<boolean> {
    const { first, last } = await readBacklog(this.#manager, { stream, consumer: this.#wanted.consumer });
    return first <= last;
  }

  /**
   * Plans all streams.
   * @throws SetupError when a stream cannot be made as wanted, or frames would be lost
   */
  async #plans(surplus: readonly StreamInfo[]): Promise<StreamPlan[]> {
    const plans: StreamPlan[] = [];
    for (const wanted of this.#wanted.streams) plans.push(await this.#plan(wanted));
    await this.#refuseFull(surplus.map(({ config }) => config.name));
    return plans;
  }

  /** Frame streams that exist but belong to another number of shards. */
  #surplus(): Promise<StreamInfo[]> {
    const wanted = new Set(this.#wanted.streams.map(({ config }) => config.name));
    return streamInfos(this.#manager, (name) => this.#wanted.isOurs(name) && !wanted.has(name));
  }

  async #refuseFull(names: readonly string[]): Promise<void> {
    const full: StreamInfo[] = [];
    for (const name of names)
      if (await this.#holdsFrames(name)) full.push(await this.#manager.streams.info(name));
    if (full.length > 0) throw surplusFull(full);
  }

  /**
   * Deletes streams of another number of shards, which were empty a moment ago. A worker may still
   * publish to them. So all are closed first ({@link CLOSED_BYTES}), and all stay if one of them
   * has taken a frame. If the run is killed here, they stay closed until the next run opens or
   * deletes them.
   */
  async #retire(surplus: readonly StreamInfo[]): Promise<void> {
    const { consumers, streams } = this.#manager;
    const names = surplus.map(({ config }) => config.name);
    for (const name of names) await streams.update(name, { max_msg_size: CLOSED_BYTES });
    await this.#refuseFull(names);
    for (const { config } of surplus) {
      const { name } = config;
      await this.#refuseOpened(name);
      const consumer = await orMissing(consumers.info(name, this.#wanted.consumer));
      await streams.delete(name);
      this.#takeBack.push(async () => {
        await this.#add(() => this.#manager.streams.add({ ...config, max_msg_size: OPEN_BYTES }));
        if (consumer) await consumers.add(name, consumer.config);
      });
      this.#said.push(`deleted stream ${name}, which was empty and belongs to another number of shards`);
    }
  }

  /**
   * Refuses to delete a stream that another setup has opened again: the stream may have taken
   * frames since. Frames that come between this check and the deletion are lost.
   */
  async #refuseOpened(name: string): Promise<void> {
    const { config } = await this.#manager.streams.info(name);
    if (config.max_msg_size !== CLOSED_BYTES)
      throw new SetupError(`stream ${name}: another setup runs at the same time: run setup again`);
  }

  /** Runs `work`. If it fails, opens the named streams, so that they take frames again. */
  async #openIfFails<T>(names: readonly string[], work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      // If one of the streams is missing, another setup is deleting them all: the rest stay closed.
      if (!isMissing(error)) await Promise.allSettled(names.map((name) => this.#open(name)));
      throw error;
    }
  }

  /** Opens a stream that this run, or an earlier run that was killed, has closed. */
  async #open(name: string): Promise<void> {
    const { streams } = this.#manager;
    const { config } = await streams.info(name);
    if (config.max_msg_size === CLOSED_BYTES) await streams.update(name, { max_msg_size: OPEN_BYTES });
  }

  /**
   * Makes all streams.
   * @throws SetupError with the bytes needed when there is not enough storage; the changes are
   * undone then
   */
  async #makeAll(plans: readonly StreamPlan[]): Promise<void> {
    try {
      for (const plan of plans) await this.#make(plan);
    } catch (error) {
      if (!(error instanceof StorageError)) throw error;
      for (const takeBack of this.#takeBack.reverse()) await takeBack();
      const bytes = plans.reduce((sum, { config }) => sum + config.max_bytes * config.num_replicas, 0);
      throw new SetupError(
        `the streams need ${bytesText(bytes)} of storage in all, and ${error.message}. ` +
          'Nothing was changed: lower SLUICE_STREAM_MAX_BYTES, or raise max_file_store of the server ' +
          '(or the storage limit of the account)',
        { cause: error.cause },
      );
    }
  }

  /** Undoes the creation of a stream, unless the stream has taken a message. */
  async #deleteIfEmpty(name: string): Promise<void> {
    const { streams } = this.#manager;
    const { state } = await streams.info(name);
    if (state.messages === 0) await streams.delete(name);
  }

  async #make({ config, consumer, current, changes }: StreamPlan): Promise<void> {
    const { name, max_bytes: maxBytes, num_replicas: replicas } = config;
    try {
      if (!current) {
        await this.#add(() => this.#manager.streams.add(config));
        this.#takeBack.push(() => this.#deleteIfEmpty(name));
        this.#said.push(`created stream ${name}, ${bytesText(maxBytes)}, replicas ${replicas}`);
      } else if (changes.length > 0) {
        await this.#manager.streams.update(name, config);
        this.#takeBack.push(() => this.#manager.streams.update(name, current.config));
        for (const { text } of changes) this.#said.push(`stream ${name}: ${text}`);
      }
    } catch (error) {
      throw explained(`stream ${name} of ${bytesText(maxBytes)}`, error);
    }
    if (consumer) await this.#makeConsumer(name, consumer);
  }

  async #makeConsumer(stream: string, wanted: NonNullable<WantedStream['consumer']>): Promise<void> {
    const { consumers } = this.#manager;
    const name = wanted.durable_name;
    const current: ConsumerInfo | undefined = await orMissing(consumers.info(stream, name));
    if (!current) {
      await consumers.add(stream, wanted).catch((error) => {
        throw explained(`consumer ${name} of ${stream}`, error);
      });
      this.#said.push(`created consumer ${name} of ${stream}`);
      return;
    }
    const changes = changesBetween(current.config, wanted);
    refuseFixed(`consumer ${name} of ${stream}`, changes);
    if (changes.length === 0) return;
    await consumers.update(stream, name, wanted);
    for (const { text } of changes) this.#said.push(`consumer ${name} of ${stream}: ${text}`);
  }

  async #makeBucket(bucket: string, replicas: number): Promise<void> {
    const stream = `KV_${bucket}`;
    let current = await orMissing(this.#manager.streams.info(stream));
    const isNew = !current;
    if (!current) {
      const kvm = new Kvm(this.#link.js);
      const options = { history: 1, storage: StorageType.File, replicas };
      await this.#add(() => kvm.create(bucket, options));
      this.#takeBack.push(() => this.#deleteIfEmpty(stream));
      this.#said.push(`created bucket ${bucket}, replicas ${replicas}`);
      current = await this.#manager.streams.info(stream);
    }
    // Rollups are forbidden: they would let a client that may write one key remove all others.
    const wanted = { num_replicas: replicas, allow_rollup_hdrs: false };
    const changes = changesBetween(
      { ...current.config, allow_rollup_hdrs: current.config.allow_rollup_hdrs ?? false },
      wanted,
    );
    if (changes.length === 0) return;
    await this.#manager.streams.update(stream, { ...current.config, ...wanted });
    if (isNew) return;
    for (const { text } of changes) this.#said.push(`bucket ${bucket}: ${text}`);
  }
}

function surplusFull(full: readonly StreamInfo[]): SetupError {
  const names = full.map(({ config, state }) => `${config.name} (messages: ${state.messages})`).join(', ');
  return new SetupError(
    `another number of shards would leave messages behind in ${names}: ` +
      'stop ingest, let the processor empty them, run setup again',
  );
}
