import type { Clock } from '../lib/clock.ts';
import type { NatsLink } from '../stream/nats.ts';
import { HEARTBEATS_BUCKET, PROJECTS_BUCKET } from '../stream/topology.ts';
import { BucketMirror, type BucketView } from './bucket-mirror.ts';
import type { BucketEntry } from './bucket-watch.ts';
import type { ProjectState } from './project-state.ts';
import { ProjectView, type ProjectViewOptions } from './project-view.ts';

export type ReplicaOptions = ProjectViewOptions & { link: NatsLink; clock: Clock };

/**
 * Every project and every heartbeat token, in this worker's memory. Authentication is a Map
 * look-up, so an unknown key costs neither I/O nor allocation, and a worker goes on while the
 * broker is away. The price is a kilobyte per project and worker. Also, a revoked key stays valid
 * in a worker that is cut off from the broker; such a worker answers 503 anyway, because it cannot
 * queue. bucket-mirror.ts keeps the copy true.
 */
export class Replica {
  readonly #projects: ProjectView;
  readonly #tokens = new TokenView();
  readonly #mirrors: readonly BucketMirror[];

  constructor({ planLimits, ...common }: ReplicaOptions) {
    this.#projects = new ProjectView({ planLimits, log: common.log });
    this.#mirrors = [
      new BucketMirror({ ...common, bucket: PROJECTS_BUCKET, view: this.#projects }),
      new BucketMirror({ ...common, bucket: HEARTBEATS_BUCKET, view: this.#tokens }),
    ];
  }

  /**
   * Resolves when both buckets have been read once. Tries again while NATS or the buckets are away.
   */
  async start(): Promise<void> {
    await Promise.all(this.#mirrors.map((mirror) => mirror.start()));
  }

  get loaded(): boolean {
    return this.#mirrors.every((mirror) => mirror.loaded);
  }

  findProject(idOrAlias: string): ProjectState | undefined {
    return this.#projects.find(idOrAlias);
  }

  hasHeartbeat(token: string): boolean {
    return this.#tokens.has(token);
  }

  async stop(): Promise<void> {
    await Promise.all(this.#mirrors.map((mirror) => mirror.stop()));
  }
}

/** A token is a key; its value says only when it was made. */
class TokenView implements BucketView {
  #tokens = new Set<string>();

  has(token: string): boolean {
    return this.#tokens.has(token);
  }

  replace(entries: readonly BucketEntry[]): void {
    this.#tokens = new Set(entries.map((entry) => entry.key));
  }

  apply(entry: BucketEntry): void {
    if (entry.text === undefined) this.#tokens.delete(entry.key);
    else this.#tokens.add(entry.key);
  }
}
