/**
 * Compares a present configuration with a wanted one, field by field, and describes the differences
 * for an operator. Pure.
 */

/** Writes a number of bytes for people: 1 GiB, 1.5 MiB, 17 B. */
export function bytesText(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'] as const;
  let at = 0;
  let value = bytes;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    at++;
  }
  return `${Number.isInteger(value) ? value : value.toFixed(1)} ${units[at]}`;
}

const durationText = (nanoseconds: number): string => (nanoseconds === 0 ? 'none' : `${nanoseconds / 1e9} s`);

const boundText = (bytes: number): string => (bytes < 0 ? 'unlimited' : bytesText(bytes));

const TEXT_OF: Readonly<Record<string, (value: never) => string>> = {
  max_bytes: boundText,
  max_msg_size: boundText,
  max_age: durationText,
  duplicate_window: durationText,
  ack_wait: durationText,
  subjects: (value: string[]) => value.join(' '),
};

export type FieldChange = { field: string; text: string };

const isSame = (one: unknown, other: unknown): boolean => JSON.stringify(one) === JSON.stringify(other);

/**
 * The fields of `wanted` whose value in `current` differs. Fields that only `current` has are left
 * to the server.
 */
export function changesBetween(current: object, wanted: object): FieldChange[] {
  const present = current as Record<string, unknown>;
  return Object.entries(wanted)
    .filter(([field, value]) => !isSame(present[field], value))
    .map(([field, value]) => {
      const words = (TEXT_OF[field] ?? String) as (value: unknown) => string;
      return { field, text: `${field} ${words(present[field])} → ${words(value)}` };
    });
}
