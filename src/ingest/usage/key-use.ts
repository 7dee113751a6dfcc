import { z } from 'zod';
import { type Clock, systemClock } from '../../lib/clock.ts';
import type { Log } from '../../lib/log.ts';
import { LEDGER_FLUSH_MS, LEDGER_WRITES_PER_FLUSH_MAX, PROJECT_KEYS_MAX } from '../../limits.ts';
import { isConflict } from '../../projects/bucket.ts';
import { keyId, keysOf, type Project } from '../../projects/project.ts';
import type { Access } from '../../projects/project-state.ts';
import { changeRecord, readRecord, removeRecords } from '../../projects/usage/records.ts';
import type { NatsLink } from '../../stream/nats.ts';

/** Maps a key's id to the hour of the key's last use, RFC 3339 to the hour: `2026-07-01T13:00Z`. */
type HoursOfUse = Record<string, string>;

const useKey = (projectId: string): string => `used.${projectId}`;
const hourOf = (ms: number): string => `${new Date(ms).toISOString().slice(0, 13)}:00Z`;

/**
 * Records when each key was last used, to the hour, over all workers. `sluice project keys list`
 * shows these hours, so that an operator can remove a key that no app has any more.
 *
 * The hot path only checks a flag of the key, and sets the flag at the key's first request of an
 * hour. So a worker reads one record per active key and hour, and the first worker writes the
 * record. Uses that cannot be written are tried again with the next flush.
 */
export class KeyUse {
  readonly #options: { link: NatsLink; log: Log; clock: Clock };
  readonly #timer: NodeJS.Timeout;
  /** Keys that were used and whose use is not written yet. */
  #fresh: Access[] = [];
  /** Keys whose use in this hour is written. When the hour ends, their flags are cleared. */
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

  /** Writes the use of at most `keys` keys. Never throws. */
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

  /**
   * Writes the use of these keys, one after another. A conflict (another worker has changed the
   * same record) puts off only that key. Any other error means that the broker is away: one log
   * line says so, and the remaining keys wait for the next flush.
   */
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
 * Bounds a record to PROJECT_KEYS_MAX keys. The project's own keys stay, then the removed keys that
 * were used last. Removed keys stay while there is room, because this worker's copy of the project
 * may be old, and a key that seems removed may be new.
 */
function bounded(hours: HoursOfUse, project: Project): HoursOfUse {
  const all = Object.entries(hours);
  if (all.length <= PROJECT_KEYS_MAX) return hours;
  const own = new Set(keysOf(project).map(({ key }) => keyId(key)));
  const rank = ([id, hour]: [string, string]): string => `${own.has(id) ? 1 : 0} ${hour}`;
  all.sort((one, other) => (rank(one) < rank(other) ? 1 : -1));
  return Object.fromEntries(all.slice(0, PROJECT_KEYS_MAX));
}

/**
 * Parses a record. An unreadable record counts as empty: it holds statistics and is written anew.
 */
function parse(text = '{}'): HoursOfUse {
  try {
    return hoursSchema.catch({}).parse(JSON.parse(text));
  } catch {
    return {};
  }
}

export const readUse = async (link: NatsLink, projectId: string): Promise<HoursOfUse> =>
  parse(await readRecord(link, useKey(projectId)));

/**
 * Merges the hours of another cell (another installation of sluice, from which the project moves)
 * into the record. Each key keeps the later of its two hours.
 */
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
