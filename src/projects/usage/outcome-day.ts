/** A project's outcomes of one UTC day, as the counters bucket holds them. */
import { z } from 'zod';
import { DAY_MS, HOUR_MS } from '../../lib/clock.ts';
import type { NatsLink } from '../../stream/nats.ts';
import { readRecord, removeRecords } from './records.ts';

/** Hour (`00` to `23`) → outcome → requests. */
export type DayOfOutcomes = Record<string, Record<string, number>>;

/** One hour of one project; `hour` is RFC 3339 to the hour, `2026-07-01T13:00Z`. */
export type HourOfOutcomes = { hour: string; outcomes: Record<string, number> };

const daySchema = z.record(z.string(), z.record(z.string(), z.int().min(0)));

/** `outcomes.<projectId>.<YYYY-MM-DD>` */
export const ledgerKey = (projectId: string, date: string): string => `outcomes.${projectId}.${date}`;

/**
 * Text that cannot be read counts as nothing: these are statistics, and must not stop further
 * counting.
 */
export function parseDay(text = '{}'): DayOfOutcomes {
  try {
    const parsed = daySchema.safeParse(JSON.parse(text));
    return parsed.success ? parsed.data : {};
  } catch {
    return {};
  }
}

/** Adds `more` into `sum`. */
export function addCounts(sum: DayOfOutcomes, more: DayOfOutcomes): void {
  for (const [hour, outcomes] of Object.entries(more)) {
    const into = sum[hour] ?? {};
    sum[hour] = into;
    for (const [outcome, count] of Object.entries(outcomes)) into[outcome] = (into[outcome] ?? 0) + count;
  }
}

/** The hours with any request among the last `hours` up to `now` (Unix ms), oldest first. */
export async function readOutcomes(
  link: NatsLink,
  projectId: string,
  span: { now: number; hours: number },
): Promise<HourOfOutcomes[]> {
  const first = Math.floor(span.now / HOUR_MS) * HOUR_MS - (span.hours - 1) * HOUR_MS;
  const result: HourOfOutcomes[] = [];
  for (let day = Math.floor(first / DAY_MS) * DAY_MS; day <= span.now; day += DAY_MS) {
    const date = new Date(day).toISOString().slice(0, 10);
    const outcomes = parseDay(await readRecord(link, ledgerKey(projectId, date)));
    for (const hour of Object.keys(outcomes).sort()) {
      const at = `${date}T${hour}:00Z`;
      if (Date.parse(at) >= first) result.push({ hour: at, outcomes: outcomes[hour] ?? {} });
    }
  }
  return result;
}

/** Removes all days of a project. @returns how many */
export const removeOutcomes = (link: NatsLink, projectId: string): Promise<number> =>
  removeRecords(link, ledgerKey(projectId, '*'));
