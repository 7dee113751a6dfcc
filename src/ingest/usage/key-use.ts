import { z } from 'zod';
import { type Clock, systemClock } from '../../lib/clock.ts';
import type { Log } from '../../lib/log.ts';
import { LEDGER_FLUSH_MS, LEDGER_WRITES_PER_FLUSH_MAX, PROJECT_KEYS_MAX } from '../../limits.ts';
import { isConflict } from '../../projects/bucket.ts';
import { keyId, keysOf, type Project } from '../../projects/project.ts';
import type { Access } from '../../projects/project-state.ts';
import { changeRecord, readRecord, removeRecords } from '../../projects/usage/records.ts';
import type { NatsLink } from '../../stream/nats.ts';

/** Key's id → the hour of its last use, RFC 3339 to the hour: `2026-07-01T13:00Z`. */
type HoursOfUse = Record<string, string>;

/** `used.<projectId>` */
const useKey = (projectId: string): string => `used.${projectId}`;
const hourOf = (ms: number): string => `${new Date(ms).toISOString().slice(0, 13)}:00Z`;

/**
 * When each key was last used, to the hour, over all workers: `sluice project keys list` shows it,
 * so that an old key can be removed when no app has it any more.
 *
 * The hot path looks at a flag of the key, and sets it at the first request of an hour. So a worker
 * reads one record per active project and hour, and the first worker writes it. What cannot be
 * written is tried again with the next flush.
 */
export class KeyUse {
  readonly #options: { link: NatsLink; log: Log; clock: Clock };
  readonly #timer: NodeJS.Timeout;
  /** Not written yet. */
  #fresh: Access[] = [];
  /** Of this hour. */
  #noted: Access[] = [];
  #hour = '';
  #flushing: Promise<void> | undefined;

  constructor({ clock = systemClock, ...options }: { link: NatsLink; log: Log; clock?: Clock }) {
    this.#options = { ...options, clock };
    this.#timer = setInterval(() => void this.flush(LEDGER_WRITES_PER_FLUSH_MAX), LEDGER_FLUSH_MS);
    this.#timer.unref();
  }

  note(access: Access): void {
    if (access.isKeyUseNoted) return;
    access.isKeyUseNoted = true;
    this.#fresh.push(access);
  }

  /** Never throws. */
  async flush(keys = Infinity): Promise<void> {
    while (this.#flushing) await this.#flushing;
    const hour = hourOf(this.#options.clock.now());
    if (hour !== this.#hour) for (const access of this.#noted.splice(0)) access.isKeyUseNoted = false;
    this.#hour = hour;
    if (this.#fresh.length === 0 || !this.#options.link.connected) return;
    this.#flushing = this.#write(this.#fresh.splice(0, keys), hour);
    await this.#flushing;
    this.#flushing = undefined;
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    await this.flush();
  }

  /** Until the broker is away: then one line says so. */
  async #write(used: readonly Access[], hour: string): Promise<void> {
    for (const [at, access] of used.entries()) {
      const { project, keyId } = access;
      try {
        await changeRecord(this.#options.link, useKey(project.id), (text) => {
          if (project.isDeleted) return undefined;
          const hours = parse(text);
          if ((hours[keyId] ?? '') >= hour) return undefined;
          return JSON.stringify(bounded({ ...hours, [keyId]: hour }, project.record));
        });
        this.#noted.push(access);
      } catch (error) {
        this.#options.log.warn(
          { project: project.id, err: error },
          'use of keys not written, kept for later',
        );
        this.#fresh.push(access);
        if (isConflict(error)) continue;
        this.#fresh = used.slice(at + 1).concat(this.#fresh);
        return;
      }
    }
  }
}

const hoursSchema = z.record(z.string(), z.string());

/**
 * As many as a project may have keys: its own, and the newest of those that were removed. A record
 * that lags behind may lack a new key, so removed ones are not left out before that.
 */
function bounded(hours: HoursOfUse, project: Project): HoursOfUse {
  const all = Object.entries(hours);
  if (all.length <= PROJECT_KEYS_MAX) return hours;
  const own = new Set(keysOf(project).map(({ key }) => keyId(key)));
  const rank = ([id, hour]: [string, string]): string => `${own.has(id) ? 1 : 0} ${hour}`;
  all.sort((one, other) => (rank(one) < rank(other) ? 1 : -1));
  return Object.fromEntries(all.slice(0, PROJECT_KEYS_MAX));
}

/** What cannot be read counts as nothing: it is statistics, and is written anew. */
function parse(text = '{}'): HoursOfUse {
  try {
    return hoursSchema.catch({}).parse(JSON.parse(text));
  } catch {
    return {};
  }
}

export const readUse = async (link: NatsLink, projectId: string): Promise<HoursOfUse> =>
  parse(await readRecord(link, useKey(projectId)));

/** Of each key the later hour of the two: what another cell noted, and what is there. */
export const mergeUse = (link: NatsLink, project: Project, other: HoursOfUse): Promise<void> =>
  changeRecord(link, useKey(project.id), (text) => {
    const hours = parse(text);
    const later = Object.entries(other).filter(([id, hour]) => hour > (hours[id] ?? ''));
    if (later.length === 0) return undefined;
    return JSON.stringify(bounded({ ...hours, ...Object.fromEntries(later) }, project));
  });

export async function removeUse(link: NatsLink, projectId: string): Promise<void> {
  await removeRecords(link, useKey(projectId));
}
