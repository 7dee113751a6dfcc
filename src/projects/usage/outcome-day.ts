/** A project's outcomes of one UTC day, as the counters bucket holds them. */
import { z } from 'zod';
import { DAY_MS, HOUR_MS } from '../../lib/clock.ts';
import type { NatsLink } from '../../stream/nats.ts';
import { readMoves } from './moves.ts';
import { putRecord, readRecord, recordKeys, removeRecords } from './records.ts';

/** Hour (`00` to `23`) → outcome → requests. */
export type DayOfOutcomes = Record<string, Record<string, number>>;

/** One hour of one project; `hour` is RFC 3339 to the hour, `2026-07-01T13:00Z`. */
export type HourOfOutcomes = { hour: string; outcomes: Record<string, number> };

const daySchema = z.record(z.string(), z.record(z.string(), z.int().min(0)));

/** `outcomes.<projectId>.<YYYY-MM-DD>` */
export const ledgerKey = (projectId: string, date: string): string => `outcomes.${projectId}.${date}`;

/** The same day as another cell counted it, `outcomes.<projectId>.<YYYY-MM-DD>.<cell>`. */
const copyKey = (projectId: string, date: string, cell: string): string =>
  `${ledgerKey(projectId, date)}.${cell}`;

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

/** A day as this cell counted it and as those others did. */
async function readDay(
  link: NatsLink,
  projectId: string,
  { date, cells }: { date: string; cells: readonly string[] },
): Promise<DayOfOutcomes> {
  const sum = parseDay(await readRecord(link, ledgerKey(projectId, date)));
  for (const cell of cells) addCounts(sum, parseDay(await readRecord(link, copyKey(projectId, date, cell))));
  return sum;
}

/** A cell's counters, and its name. */
type NamedLink = { link: NatsLink; cell: string };

/**
 * Copies all days to another cell, which keeps them beside its own: a copy may be made again.
 */
export async function copyOutcomes(projectId: string, from: NamedLink, to: NamedLink): Promise<void> {
  const others = Object.keys(await readMoves(from.link, projectId)).filter((cell) => cell !== to.cell);
  const keys = await recordKeys(from.link, `${ledgerKey(projectId, '*')}`);
  const copies = await recordKeys(from.link, copyKey(projectId, '*', '*'));
  for (const date of new Set([...keys, ...copies].map((key) => key.split('.')[2] ?? ''))) {
    const day = JSON.stringify(await readDay(from.link, projectId, { date, cells: others }));
    if (day !== '{}') await putRecord(to.link, copyKey(projectId, date, from.cell), day);
  }
}

/** The hours with any request among the last `hours` up to `now` (Unix ms), oldest first. */
export async function readOutcomes(
  link: NatsLink,
  projectId: string,
  span: { now: number; hours: number },
): Promise<HourOfOutcomes[]> {
  const first = Math.floor(span.now / HOUR_MS) * HOUR_MS - (span.hours - 1) * HOUR_MS;
  const cells = Object.keys(await readMoves(link, projectId));
  const result: HourOfOutcomes[] = [];
  for (let day = Math.floor(first / DAY_MS) * DAY_MS; day <= span.now; day += DAY_MS) {
    const date = new Date(day).toISOString().slice(0, 10);
    const outcomes = await readDay(link, projectId, { date, cells });
    for (const hour of Object.keys(outcomes).sort()) {
      const at = `${date}T${hour}:00Z`;
      if (Date.parse(at) >= first) result.push({ hour: at, outcomes: outcomes[hour] ?? {} });
    }
  }
  return result;
}

/** Removes all days of a project. @returns how many */
export const removeOutcomes = (link: NatsLink, projectId: string): Promise<number> =>
  removeRecords(link, ledgerKey(projectId, '>'));
