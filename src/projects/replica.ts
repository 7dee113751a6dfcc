import { setImmediate as afterPoll } from 'node:timers/promises';
import type { Clock } from '../lib/clock.ts';
import type { NatsLink } from '../stream/nats.ts';
import { HEARTBEATS_BUCKET, PROJECTS_BUCKET } from '../stream/topology.ts';
import { BucketCopy } from './bucket-copy.ts';
import { BucketMirror } from './bucket-mirror.ts';
import type { ProjectState } from './project-state.ts';
import { ProjectView, type ProjectViewOptions } from './project-view.ts';

/**
 * How often unused projects are looked for. One that two sweeps find unused is only the text of its
 * record again: after 15 to 30 minutes without a request.
 */
const PROJECT_SWEEP_MS = 15 * 60_000;

export type ReplicaOptions = ProjectViewOptions & { link: NatsLink; clock: Clock };

/**
 * Every project and every heartbeat token, in this worker's memory. Authentication is a look-up
 * there, so an unknown key costs no I/O, and a worker goes on while the broker is away. The price
 * is a quarter of a kilobyte per project and worker, and a kilobyte for one that has had a request
 * of late. Also, a revoked key stays valid in a worker that is cut off from the broker; such a
 * worker answers 503 anyway, because it cannot queue. A key that it does not know yet gets 401.
 *
 * How a record comes here: broker → BucketWatch (reads the entries of one bucket in their order) →
 * BucketMirror (keeps a watch open, and knows how far it has come) → BucketCopy (keeps the newest
 * text of each key) → ProjectView (finds a project by its id or alias) → ProjectState (all that the
 * worker keeps of a project that has requests).
 */
export class Replica {
  readonly #projects: ProjectView;
  /** A token is a key; its value says only when it was made. */
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
   * Resolves when both buckets have been read once. Tries again while NATS or the buckets are away.
   */
  async start(): Promise<void> {
    this.#sweeper = setInterval(() => void this.#sweep(), PROJECT_SWEEP_MS).unref();
    await Promise.all(this.#mirrors.map((mirror) => mirror.start()));
  }

  findProject(idOrAlias: string): ProjectState | undefined {
    return this.#projects.find(idOrAlias);
  }

  /** Aliases count, too: a project that was alone and got one is no longer taken for that. */
  get hasSeveralProjects(): boolean {
    return this.#projects.copy.size > 1;
  }

  hasHeartbeat(token: string): boolean {
    return this.#tokens.has(token);
  }

  /** Whether JetStream answers what both buckets are asked. */
  get brokerAnswers(): boolean {
    return this.#mirrors.every(({ found }) => found !== 'away');
  }

  /** Whether a bucket was deleted; the copy of it stays. */
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
