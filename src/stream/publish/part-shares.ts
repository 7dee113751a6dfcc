import { FairShare } from '../../lib/fair-share.ts';
import { newSlot, Slotted } from '../../lib/slots.ts';
import type { NatsLink } from '../nats.ts';
import { CHUNKS_STREAM, PARTS_SUBJECT, partsSubject } from '../topology.ts';

/** Bytes of parts in the chunks stream, of all workers. */
const PARTS = newSlot(() => false);
const LOOK_EVERY_MS = 500;
const NO_USE = new Slotted();

/** Entries that come to nothing are removed. */
function add(sums: Map<string, number>, subject: string, bytes: number): void {
  const sum = (sums.get(subject) ?? 0) + bytes;
  if (sum === 0) sums.delete(subject);
  else sums.set(subject, sum);
}

/**
 * Who holds how much of the chunks stream, over all workers.
 *
 * Each project has a subject of its own in the stream, and the broker counts the messages of each.
 * A worker asks for the counts twice a second, from its first part on until the stream is empty.
 * Its own parts that are being written, or were since it last asked, are added. So the figure lags
 * by half a second for what other workers write and for what processors remove.
 *
 * While the broker does not say, the last figures hold; before the first ones all is allowed.
 */
export class PartShares {
  readonly #link: NatsLink;
  #share = new FairShare(Number.POSITIVE_INFINITY, PARTS);
  #uses = new Map<string, Slotted>();
  /** Bytes of parts that are being written, by subject. */
  readonly #begun = new Map<string, number>();
  /** Bytes of parts that were written, or given up, since the last look began, by subject. */
  #ended = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(link: NatsLink) {
    this.#link = link;
    link.onClose(() => {
      this.#isClosed = true;
      clearTimeout(this.#timer);
    });
  }

  /** Whether the project may have more parts. */
  allows(projectId: string): boolean {
    return this.#share.allows(this.#uses.get(partsSubject(projectId)) ?? NO_USE);
  }

  /** Parts of so many bytes are about to be written. */
  begin(projectId: string, bytes: number): void {
    const subject = partsSubject(projectId);
    add(this.#begun, subject, bytes);
    this.#hold(subject, bytes);
    this.#timer ??= setTimeout(() => void this.#look(), 0).unref();
  }

  /** They are written, or given up. They count on until the broker has been asked again. */
  end(projectId: string, bytes: number): void {
    const subject = partsSubject(projectId);
    add(this.#begun, subject, -bytes);
    add(this.#ended, subject, bytes);
  }

  #hold(subject: string, bytes: number): void {
    const project = this.#uses.get(subject) ?? new Slotted();
    this.#uses.set(subject, project);
    this.#share.add(project, bytes);
  }

  async #look(): Promise<void> {
    const ended = this.#ended;
    this.#ended = new Map();
    let isEmpty = false;
    try {
      isEmpty = await this.#read();
    } catch {
      // No answer: the figures stay, and these are part of them.
      for (const [subject, bytes] of ended) add(this.#ended, subject, bytes);
    }
    if (this.#isClosed) return;
    const isIdle = isEmpty && this.#begun.size === 0 && this.#ended.size === 0;
    this.#timer = isIdle ? undefined : setTimeout(() => void this.#look(), LOOK_EVERY_MS).unref();
  }

  /** @returns whether the stream is empty */
  async #read(): Promise<boolean> {
    const manager = await this.#link.manager();
    const { config, state } = await manager.streams.info(CHUNKS_STREAM, {
      subjects_filter: `${PARTS_SUBJECT}.>`,
    });
    this.#share = new FairShare(config.max_bytes > 0 ? config.max_bytes : Infinity, PARTS);
    this.#uses = new Map();
    const messageBytes = state.messages === 0 ? 0 : state.bytes / state.messages;
    for (const [subject, messages] of Object.entries(state.subjects ?? {}))
      this.#hold(subject, messages * messageBytes);
    for (const own of [this.#begun, this.#ended])
      for (const [subject, bytes] of own) this.#hold(subject, bytes);
    return state.messages === 0;
  }
}
