/** The outcomes of a project's requests on one UTC day, as the counters bucket holds them. */
import { z } from 'zod';
import { DAY_MS, HOUR_MS } from '../../lib/clock.ts';
import type { NatsLink } from '../../stream/nats.ts';
import { readMoves } from './moves.ts';
import { putRecord, readRecord, recordKeys, removeRecords } from './records.ts';

/** Numbers of requests: by hour (`00` to `23`), then by outcome and reason ({@link countName}). */
export type DayOfOutcomes = Record<string, Record<string, number>>;

/** Requests with one outcome for one reason. `key` is the id of the refused key. */
export type CountedReason = { outcome: string; reason: string; key?: string; requests: number };

/** Outcomes of one project in one hour. `hour` is RFC 3339 to the hour, `2026-07-01T13:00Z`. */
export type HourOfOutcomes = { hour: string; outcomes: Record<string, number>; reasons?: CountedReason[] };

const SEPARATOR = '|';
/**
 * After this many names in an hour, new names are counted without their key. Otherwise anybody
 * could add names by trying keys.
 */
export const NAMES_MAX = 100;

/**
 * Name of a count with a reason: `outcome|reason` or `outcome|reason|keyId`. A count without a
 * reason is named by its outcome.
 */
export const countName = (outcome: string, reason: string, keyId?: string): string =>
  outcome + SEPARATOR + reason + (keyId === undefined ? '' : SEPARATOR + keyId);

export function addCount(into: Record<string, number>, name: string, requests: number): void {
  const isOneTooMany = into[name] === undefined && Object.keys(into).length >= NAMES_MAX;
  const kept = isOneTooMany ? name.split(SEPARATOR, 2).join(SEPARATOR) : name;
  into[kept] = (into[kept] ?? 0) + requests;
}

/** Sums an hour's counts by outcome and lists them by reason. */
function hourOf(hour: string, counts: Record<string, number>): HourOfOutcomes {
  const outcomes: Record<string, number> = {};
  const reasons: CountedReason[] = [];
  for (const [name, requests] of Object.entries(counts)) {
    const [outcome = '', reason, key] = name.split(SEPARATOR);
    outcomes[outcome] = (outcomes[outcome] ?? 0) + requests;
    if (reason !== undefined) reasons.push({ outcome, reason, ...(key !== undefined && { key }), requests });
  }
  return { hour, outcomes, ...(reasons.length > 0 && { reasons }) };
}

const daySchema = z.record(z.string(), z.record(z.string(), z.int().min(0)));

/** Key of a day: `outcomes.<projectId>.<YYYY-MM-DD>`. */
export const ledgerKey = (projectId: string, date: string): string => `outcomes.${projectId}.${date}`;

/**
 * Key of a day's outcomes in another cell, from which the project has moved:
 * `outcomes.<projectId>.<YYYY-MM-DD>.<cell>`. A cell is a whole installation of sluice.
 */
const copyKey = (projectId: string, date: string, cell: string): string =>
  `${ledgerKey(projectId, date)}.${cell}`;

/**
 * Parses a day. Unreadable text counts as an empty day: these are statistics, and must not stop
 * further counting.
 */
export function parseDay(text = '{}'): DayOfOutcomes {
  try {
    const parsed = daySchema.safeParse(JSON.parse(text));
    return parsed.success ? parsed.data : {};
  } catch {
    return {};
  }
}

/** Adds the counts of `more` to `sum`. */
export function addCounts(sum: DayOfOutcomes, more: DayOfOutcomes): void {
  for (const [hour, outcomes] of Object.entries(more)) {
    const into = sum[hour] ?? {};
    sum[hour] = into;
    for (const [name, requests] of Object.entries(outcomes)) addCount(into, name, requests);
  }
}

/** Sums a project's outcomes of a day: those of this cell, and the copies from other cells. */
async function readDay(
  link: NatsLink,
  projectId: string,
  { date, cells }: { date: string; cells: readonly string[] },
): Promise<DayOfOutcomes> {
  const sum = parseDay(await readRecord(link, ledgerKey(projectId, date)));
  for (const cell of cells) addCounts(sum, parseDay(await readRecord(link, copyKey(projectId, date, cell))));
  return sum;
}

/** A cell: the link to its NATS, and its name. */
type NamedLink = { link: NatsLink; cell: string };

/**
 * Copies all days of a project to another cell. That cell keeps the copies apart from its own
 * counts, so copying again is harmless.
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

/**
 * Reads the last `hours` hours up to `now` (Unix ms), oldest first, without hours that had no
 * request.
 */
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
      if (Date.parse(at) >= first) result.push(hourOf(at, outcomes[hour] ?? {}));
    }
  }
  return result;
}

/**
 * Removes all days of a project.
 * @returns how many were removed
 */
export const removeOutcomes = (link: NatsLink, projectId: string): Promise<number> =>
  removeRecords(link, ledgerKey(projectId, '>'));
