import { FairShare } from '../../lib/fair-share.ts';
import { newSlot, Slotted } from '../../lib/slots.ts';
import type { NatsLink } from '../nats.ts';
import { CHUNKS_STREAM, PARTS_SUBJECT, partsSubject } from '../topology.ts';

/**
 * Slot for the number of bytes that a project has in the chunks stream. All workers' parts count.
 */
const PARTS = newSlot(() => false);
const LOOK_EVERY_MS = 500;
const NO_USE = new Slotted();

/** Adds bytes to a subject's sum. A sum of 0 is removed. */
function add(sums: Map<string, number>, subject: string, bytes: number): void {
  const sum = (sums.get(subject) ?? 0) + bytes;
  if (sum === 0) sums.delete(subject);
  else sums.set(subject, sum);
}

/**
 * How much of the chunks stream each project holds, over all workers.
 *
 * Each project has a subject of its own in the stream, and the broker counts the messages of each
 * subject. A worker reads these counts twice a second, from its first part until the stream is
 * empty. To them it adds its own parts that are being written or were written since. It notices the
 * parts of other workers, and removed parts, up to half a second late.
 *
 * When the broker does not answer, the last counts stay in force. Before the first answer every
 * project is allowed.
 */
export class PartShares {
  readonly #link: NatsLink;
  #share = new FairShare(Number.POSITIVE_INFINITY, PARTS);
  #uses = new Map<string, Slotted>();
  /** Bytes of this worker's parts that are being written, by subject. */
  readonly #begun = new Map<string, number>();
  /**
   * Bytes of this worker's parts that were written, or given up, since the last reading began, by
   * subject.
   */
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

  /** Notes that parts of this many bytes are about to be written. */
  begin(projectId: string, bytes: number): void {
    const subject = partsSubject(projectId);
    add(this.#begun, subject, bytes);
    this.#hold(subject, bytes);
    this.#timer ??= setTimeout(() => void this.#look(), 0).unref();
  }

  /**
   * Notes that the parts were written or given up. They still count until the broker has been asked
   * again.
   */
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
      // The broker did not answer. The old counts stay in force, so the parts that ended before
      // this reading must still be added to them.
      for (const [subject, bytes] of ended) add(this.#ended, subject, bytes);
    }
    if (this.#isClosed) return;
    const isIdle = isEmpty && this.#begun.size === 0 && this.#ended.size === 0;
    this.#timer = isIdle ? undefined : setTimeout(() => void this.#look(), LOOK_EVERY_MS).unref();
  }

  /** Reads the counts from the broker. @returns whether the stream is empty */
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
