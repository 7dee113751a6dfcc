/** The summary of a run, as text and as what is kept when a promise was broken. */
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Outcome, Recovery, Report } from './scenario.ts';

export type Row = { stand: string; seed: number; report: Outcome };

const HEADS = ['stand', 'fault', 'held s', 'serves after s', 'stored after s', 'answers meanwhile'];
const seconds = (value: number | undefined): string => (value === undefined ? 'NEVER' : value.toFixed(1));

/** 0 stands for no answer. */
export const answers = (counts: Record<string, number>): string =>
  Object.entries(counts)
    .map(([status, count]) => `${count} × ${status === '0' ? 'none' : status}`)
    .join(', ');

export function markdown(heads: readonly string[], lines: readonly (readonly string[])[]): string {
  const row = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;
  return [row(heads), row(heads.map(() => '---')), ...lines.map(row)].join('\n');
}

export function faultTable(rows: readonly Row[]): string {
  const lines = rows.flatMap(({ stand, report }) =>
    report.recoveries.map((one) => [
      stand,
      one.fault,
      seconds(one.heldSec),
      seconds(one.servesAfterSec),
      seconds(one.storedAfterSec),
      answers(one.during),
    ]),
  );
  return markdown(HEADS, lines);
}

const TOTAL_HEADS = [
  'stand',
  'seed',
  'faults',
  'requests',
  'told 200',
  'refused',
  'unknown',
  'lost',
  'double',
  'over-admitted',
  'usage beyond the 200s (at most)',
  'all stored after s',
  'left in the broker',
];

export function totalTable(rows: readonly Row[]): string {
  const lines = rows.map(({ stand, seed, report: { judgement: j, recoveries, drainedSec, leftovers } }) =>
    [
      stand,
      seed,
      recoveries.length,
      j.requests,
      j.accepted,
      j.refused,
      j.unknown,
      j.lost,
      j.double,
      `${j.overAdmitted} of ${j.windows.map(({ most, allowed }) => `${most}/${allowed}`).join(' ')}`,
      `${j.usageBeyond} (${j.usageBeyondMax})`,
      seconds(drainedSec),
      leftovers,
    ].map(String),
  );
  return markdown(TOTAL_HEADS, lines);
}

const worst = (values: readonly (number | undefined)[]): number | undefined =>
  values.includes(undefined) ? undefined : Math.max(...(values as number[]));

/** Of each fault, how often it struck, where, and the longest that it took until the system was itself again. */
export function recoveryTable(rows: readonly Row[]): string {
  const byFault = new Map<string, (Recovery & { stand: string })[]>();
  for (const { stand, report } of rows)
    for (const one of report.recoveries)
      byFault.set(one.fault, [...(byFault.get(one.fault) ?? []), { ...one, stand }]);
  const lines = [...byFault].map(([fault, all]) => [
    fault,
    [...new Set(all.map(({ stand }) => stand))].join(', '),
    `${all.length}`,
    seconds(worst(all.map(({ servesAfterSec }) => servesAfterSec))),
    seconds(worst(all.map(({ storedAfterSec }) => storedAfterSec))),
  ]);
  return markdown(
    ['fault', 'stands', 'times', 'serves after s, at worst', 'stored after s, at worst'],
    lines,
  );
}

/** Everything together, by stand. */
export function sumTable(rows: readonly Row[]): string {
  const heads = [
    'stand',
    'scenarios',
    'faults',
    'requests',
    'told 200',
    'refused',
    'unknown',
    'lost',
    'double',
  ];
  const lines = [...new Set(rows.map(({ stand }) => stand))].map((stand) => {
    const reports = rows.filter((row) => row.stand === stand).map(({ report }) => report);
    const sum = (of: (report: Outcome) => number): number =>
      reports.reduce((all, report) => all + of(report), 0);
    const j = (of: (judgement: Outcome['judgement']) => number): number => sum((one) => of(one.judgement));
    return [
      stand,
      ...[reports.length, sum(({ recoveries }) => recoveries.length), j((one) => one.requests)],
      ...[j((one) => one.accepted), j((one) => one.refused), j((one) => one.unknown)],
      ...[j((one) => one.lost), j((one) => one.double)],
      `${j((one) => one.overAdmitted)} of ${j((one) => one.windows.length)}`,
      `${j((one) => one.usageBeyond)} (${j((one) => one.usageBeyondMax)})`,
      seconds(worst(reports.map(({ drainedSec }) => drainedSec))),
    ].map(String);
  });
  return markdown([...heads, 'over-admitted', 'usage beyond the 200s (at most)', 'stored after s'], lines);
}

/** Of a soak. @returns the file */
export function writeSamples(report: { seed: number }): string {
  const file = join(mkdtempSync(join(tmpdir(), 'sluice-soak-')), `samples-${report.seed}.json`);
  writeFileSync(file, JSON.stringify(report));
  return file;
}

/** Everything that was told, one JSON object a line, behind what was promised and found. @returns the file */
export function writeHistory({ stand, seed }: Row, report: Report, log: string): string {
  const file = join(mkdtempSync(join(tmpdir(), 'sluice-faults-')), `history-${seed}.jsonl`);
  const { judgement, recoveries, terms, evidence, told } = report;
  const { usage, deadLetters } = evidence;
  const lines = [
    { stand, seed, judgement, recoveries, terms, usage, deadLetters },
    ...told.map((one) => ({ ...one, stored: evidence.stored.get(one.id)?.count ?? 0 })),
    { log },
  ];
  writeFileSync(file, lines.map((line) => JSON.stringify(line)).join('\n'));
  return file;
}
