import { FairShare, ProjectUse } from '../../lib/fair-share.ts';
import type { NatsLink } from '../nats.ts';
import { CHUNKS_STREAM, CHUNKS_SUBJECT, chunksSubject } from '../topology.ts';

const LOOK_EVERY_MS = 500;
const NOBODY = new ProjectUse();

/**
 * Who holds how much of the chunks stream, over all workers.
 *
 * Each project has a subject of its own in the stream, and the broker counts the messages of each.
 * A worker asks for the counts twice a second while it has large entries or the stream has parts.
 * What it has promised to parts since it last asked is added. So the figure lags by half a second
 * for what other workers write and for what processors remove.
 *
 * While the broker does not say, the last figures hold; before the first ones all is allowed.
 */
export class ChunkShares {
  readonly #link: NatsLink;
  #share = new FairShare('chunks', Number.POSITIVE_INFINITY);
  #uses = new Map<string, ProjectUse>();
  /** Bytes by subject, promised since the last look began. */
  #promised = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;

  constructor(link: NatsLink) {
    this.#link = link;
    link.onClose(() => clearTimeout(this.#timer));
  }

  /** Whether the project may have more parts. */
  allows(projectId: string): boolean {
    return this.#share.allows(this.#uses.get(chunksSubject(projectId)) ?? NOBODY);
  }

  /** Parts of so many bytes are about to be written. */
  promise(projectId: string, bytes: number): void {
    const subject = chunksSubject(projectId);
    this.#promised.set(subject, (this.#promised.get(subject) ?? 0) + bytes);
    this.#hold(subject, bytes);
    this.#timer ??= setTimeout(() => void this.#look(), 0).unref();
  }

  #hold(subject: string, bytes: number): void {
    const use = this.#uses.get(subject) ?? new ProjectUse();
    this.#uses.set(subject, use);
    this.#share.add(use, bytes);
  }

  async #look(): Promise<void> {
    const promised = this.#promised;
    this.#promised = new Map();
    let isEmpty = false;
    try {
      isEmpty = await this.#read();
    } catch {
      // No answer: the figures stay, and what was promised is part of them.
      for (const [subject, bytes] of promised)
        this.#promised.set(subject, (this.#promised.get(subject) ?? 0) + bytes);
    }
    const isIdle = isEmpty && this.#promised.size === 0;
    this.#timer = isIdle ? undefined : setTimeout(() => void this.#look(), LOOK_EVERY_MS).unref();
  }

  /** @returns whether the stream is empty */
  async #read(): Promise<boolean> {
    const manager = await this.#link.manager();
    const { config, state } = await manager.streams.info(CHUNKS_STREAM, {
      subjects_filter: `${CHUNKS_SUBJECT}.>`,
    });
    this.#share = new FairShare('chunks', config.max_bytes > 0 ? config.max_bytes : Infinity);
    this.#uses = new Map();
    const messageBytes = state.messages === 0 ? 0 : state.bytes / state.messages;
    for (const [subject, messages] of Object.entries(state.subjects ?? {}))
      this.#hold(subject, messages * messageBytes);
    for (const [subject, bytes] of this.#promised) this.#hold(subject, bytes);
    return state.messages === 0;
  }
}
