/**
 * The audit: the stream SLUICE_AUDIT has a record for every change of a project or heartbeat token.
 *
 * A record is written after its change, so that it never reports a change that did not happen. If
 * the stream is missing, nothing is changed. If the record cannot be written, the error says that
 * the change was made.
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

/** The change was made, but the audit has no record of it. */
export class UnrecordedError extends Error {
  override name = 'UnrecordedError';
}

/** Name of the user of this process, `user@host`. */
export function operatorName(): string {
  const host = hostname();
  try {
    return `${userInfo().username}@${host}`;
  } catch {
    return `${process.getuid?.() ?? 'unknown'}@${host}`; // a container's user may lack a name
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

  /** @param by name of the person or program that makes the changes */
  constructor(link: NatsLink, by: string) {
    this.#link = link;
    this.#by = by;
  }

  /**
   * Checks, before a change, that the audit's stream exists.
   * @throws JetStreamApiError when it does not
   */
  async ready(): Promise<void> {
    if (this.#found) return;
    await (await this.#link.manager()).streams.info(AUDIT_STREAM);
    this.#found = true;
  }

  /**
   * Records the difference between two states of a project or token; nothing when there is no
   * difference.
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

  /**
   * Publishes a record, and repeats that once after a failure. The message id makes the repetition
   * harmless.
   */
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

/** A page of the audit: at most `limit` records, beginning after the sequence `after`. */
type HistoryPage = { after?: number; limit?: number };

/**
 * Reads the changes of one project, oldest first. The project may have been deleted.
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

/** Fingerprints of the keys that were removed from a project, as far back as the audit goes. */
export async function readRemovedKeys(link: NatsLink, projectId: string): Promise<Set<unknown>> {
  const { streams } = await link.manager();
  const last = await streams.getMessage(AUDIT_STREAM, { last_by_subj: projectSubject(projectId) });
  // For a new project this one request is enough.
  return last ? removedKeys(await readHistory(link, projectId)) : new Set();
}
