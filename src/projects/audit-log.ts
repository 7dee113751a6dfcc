/**
 * The audit: a record in the stream SLUICE_AUDIT for every change of a project or heartbeat token.
 *
 * The record is written after the change, so that it never tells of something that did not happen.
 * No change goes unrecorded in silence: without the stream nothing is changed, and when the record
 * cannot be written, the error says that the change was made.
 */
import { randomUUID } from 'node:crypto';
import { hostname, userInfo } from 'node:os';
import type { NatsLink } from '../stream/nats.ts';
import { recordHeaders } from '../stream/record-size.ts';
import { storedMessages } from '../stream/stored-messages.ts';
import { AUDIT_STREAM, AUDIT_SUBJECT } from '../stream/topology.ts';
import {
  type Change,
  changeBetween,
  changeSchema,
  fingerprint,
  type RecordedChange,
  removedKeys,
} from './audit-change.ts';

/** The change is made, and the audit does not have it. */
export class UnrecordedError extends Error {
  override name = 'UnrecordedError';
}

/** The user of this process, `user@host`. */
export function operatorName(): string {
  const host = hostname();
  try {
    return `${userInfo().username}@${host}`;
  } catch {
    return `${process.getuid?.() ?? 'unknown'}@${host}`; // in a container, a user without a name
  }
}

type Subject = { project: string } | { heartbeat: string };
type Fields = Readonly<Record<string, unknown>>;

const projectSubject = (id: string): string => `${AUDIT_SUBJECT}.project.${id}`;

const PUBLISH_TRIES = 2;

export class AuditLog {
  readonly #link: NatsLink;
  readonly #by: string;
  #found = false;

  /** `by`: who makes the changes. */
  constructor(link: NatsLink, by: string) {
    this.#link = link;
    this.#by = by;
  }

  /** Called before a change. @throws JetStreamApiError when the stream does not exist */
  async ready(): Promise<void> {
    if (this.#found) return;
    await (await this.#link.manager()).streams.info(AUDIT_STREAM);
    this.#found = true;
  }

  /**
   * Records what differs between two states of a subject; nothing when nothing does.
   * @throws UnrecordedError when the broker does not take the record
   */
  async record(subject: Subject, states: { before?: Fields; after?: Fields }): Promise<void> {
    const difference = changeBetween(states.before, states.after);
    if (!difference) return;
    const name = 'project' in subject ? subject.project : fingerprint(subject.heartbeat);
    const change: Change = {
      at: new Date().toISOString(),
      by: this.#by,
      ...('project' in subject ? { project: name } : { heartbeat: name }),
      ...difference,
    };
    const where = 'project' in subject ? projectSubject(name) : `${AUDIT_SUBJECT}.heartbeat.${name}`;
    await this.#publish(where, JSON.stringify(change)).catch((cause: unknown) => {
      const what = 'project' in subject ? `project ${name}` : `heartbeat token ${name}`;
      throw new UnrecordedError(
        `The change is made (${difference.action} ${what}), but ${AUDIT_STREAM} has no record of it`,
        { cause },
      );
    });
  }

  /** The id makes a repetition harmless. */
  async #publish(subject: string, text: string): Promise<void> {
    const data = Buffer.from(text);
    const headers = recordHeaders(randomUUID(), { subject, data });
    for (let tries = 1; ; tries++)
      try {
        await this.#link.js.publish(subject, data, { headers });
        return;
      } catch (error) {
        if (tries === PUBLISH_TRIES) throw error;
      }
  }
}

/** A page of the audit: at most `limit` records behind the sequence `after`. */
type HistoryPage = { after?: number; limit?: number };

/**
 * The changes of one project, oldest first, also of one that was deleted.
 * @throws JetStreamApiError when the stream does not exist
 */
export async function readHistory(
  link: NatsLink,
  projectId: string,
  { after = 0, limit = Number.POSITIVE_INFINITY }: HistoryPage = {},
): Promise<RecordedChange[]> {
  const changes: RecordedChange[] = [];
  const options = { filter_subjects: projectSubject(projectId), opt_start_seq: after + 1 };
  for await (const message of storedMessages(link, AUDIT_STREAM, options)) {
    changes.push({ sequence: message.seq, ...changeSchema.parse(message.json()) });
    if (changes.length >= limit) break;
  }
  return changes;
}

/** Fingerprints of the keys that were taken from a project, as far back as the audit goes. */
export async function readRemovedKeys(link: NatsLink, projectId: string): Promise<Set<unknown>> {
  const { streams } = await link.manager();
  const last = await streams.getMessage(AUDIT_STREAM, { last_by_subj: projectSubject(projectId) });
  // Most projects that are made are new: one question is enough.
  return last ? removedKeys(await readHistory(link, projectId)) : new Set();
}
