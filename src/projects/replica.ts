import { setImmediate as afterPoll } from 'node:timers/promises';
import type { Clock } from '../lib/clock.ts';
import type { NatsLink } from '../stream/nats.ts';
import { HEARTBEATS_BUCKET, PROJECTS_BUCKET } from '../stream/topology.ts';
import { BucketCopy } from './bucket-copy.ts';
import { BucketMirror } from './bucket-mirror.ts';
import type { ProjectState } from './project-state.ts';
import { ProjectView, type ProjectViewOptions } from './project-view.ts';

/**
 * How often unused projects are looked for. A project is reduced to the text of its record 15 to 30
 * minutes after its last request.
 */
const PROJECT_SWEEP_MS = 15 * 60_000;

export type ReplicaOptions = ProjectViewOptions & { link: NatsLink; clock: Clock };

/**
 * All projects and heartbeat tokens, in this worker's memory. Authentication is a look-up here, so
 * an unknown key costs no I/O, and a worker goes on while the broker is away.
 *
 * In each worker a project takes a quarter of a kilobyte, or a kilobyte if it had requests lately.
 * A worker that is cut off from the broker answers 401 to a new key. To a revoked key it answers
 * 503, because it cannot queue.
 *
 * A record comes here in this way: broker → BucketWatch (reads the entries of one bucket in order)
 * → BucketMirror (keeps a watch open and knows how far it has read) → BucketCopy (keeps the newest
 * text of each key) → ProjectView (finds a project by id or alias) → ProjectState (all that the
 * worker keeps about a project with requests).
 */
export class Replica {
  readonly #projects: ProjectView;
  /**
   * The heartbeat tokens. Each token is a key of the bucket; its value says only when it was made.
   */
  readonly #tokens = new BucketCopy();
  readonly #mirrors: readonly BucketMirror[];
  #sweeper: NodeJS.Timeout | undefined;

  constructor({ planLimits, ...common }: ReplicaOptions) {
    this.#projects = new ProjectView({ planLimits, log: common.log });
    this.#mirrors = [
      new BucketMirror({ ...common, bucket: PROJECTS_BUCKET, copy: this.#projects.copy }),
      new BucketMirror({ ...common, bucket: HEARTBEATS_BUCKET, copy: this.#tokens }),
    ];
  }

  /**
   * Resolves when both buckets have been read once. While NATS or a bucket is away, reading is
   * repeated.
   */
  async start(): Promise<void> {
    this.#sweeper = setInterval(() => void this.#sweep(), PROJECT_SWEEP_MS).unref();
    await Promise.all(this.#mirrors.map((mirror) => mirror.start()));
  }

  findProject(idOrAlias: string): ProjectState | undefined {
    return this.#projects.find(idOrAlias);
  }

  /**
   * Whether the bucket has several names of projects. Aliases and deleted names count too, so a
   * single project with an alias counts as several.
   */
  get hasSeveralProjects(): boolean {
    return this.#projects.copy.size > 1;
  }

  hasHeartbeat(token: string): boolean {
    return this.#tokens.has(token);
  }

  /** Whether JetStream answered the last request about each of the two buckets. */
  get brokerAnswers(): boolean {
    return this.#mirrors.every(({ found }) => found !== 'away');
  }

  /** Whether a bucket is missing. Its copy in this worker stays. */
  get bucketIsMissing(): boolean {
    return this.#mirrors.some(({ found }) => found === 'missing');
  }

  async stop(): Promise<void> {
    clearInterval(this.#sweeper);
    await Promise.all(this.#mirrors.map((mirror) => mirror.stop()));
  }

  async #sweep(): Promise<void> {
    for (const _ of this.#projects.sweep()) await afterPoll();
  }
}
