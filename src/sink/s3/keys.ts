/** The keys of objects: stream, UTC date, hour, and a name that depends on the object's rows. */
import { hash } from 'node:crypto';
import type { Compression } from './address.ts';

export const HOUR_MS = 3_600_000;
const NAME_CHARACTERS = 32;
const ENDINGS: Readonly<Record<Compression, string>> = { none: '', gzip: '.gz', zstd: '.zst' };

/** Returns the number of hours since 1970. */
export const hourOf = (ms: number): number => Math.floor(ms / HOUR_MS);

/** Returns an hour, given as its number since 1970, as `2026-01-02T03`. */
export const hourText = (hour: number): string => new Date(hour * HOUR_MS).toISOString().slice(0, 13);

/** Returns a folder like `events/2026-01-02/03/`. */
export const hourFolder = (stream: string, hour: number): string =>
  `${stream}/${hourText(hour).replace('T', '/')}/`;

/**
 * Returns the name of an object. The same rows in the same order have the same name, so a repeated
 * write finds the object that is there.
 */
export function objectName(rowKeys: readonly string[], compression: Compression): string {
  const name = hash('sha256', rowKeys.join(''), 'hex').slice(0, NAME_CHARACTERS);
  return `${name}-${rowKeys.length}.ndjson${ENDINGS[compression]}`;
}

const NAME = /\/(\d{4}-\d{2}-\d{2})\/(\d{2})\/(?:([0-9a-f]{32})-(\d+)\.ndjson|(_manifest\.json))/;
export const MANIFEST = '_manifest.json';

/** Returns the hour and the rows of an object's or a manifest's key; undefined for other keys. */
export function readKey(key: string): { hour: number; rows: number | undefined } | undefined {
  const [, date, hour, , rows, manifest] = NAME.exec(key) ?? [];
  if (!date || (!rows && !manifest)) return undefined;
  const at = hourOf(Date.parse(`${date}T${hour}:00:00Z`));
  return { hour: at, rows: manifest ? undefined : Number(rows) };
}
