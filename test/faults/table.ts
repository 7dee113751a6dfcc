/** The summary of a run, as text and as what is kept when a promise was broken. */
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Recovery, Report } from './scenario.ts';

export type Row = { stand: string; seed: number; report: Report };

const HEADS = ['stand', 'fault', 'held s', 'serves after s', 'stored after s', 'answers meanwhile'];
const seconds = (value: number | undefined): string => (value === undefined ? 'NEVER' : value.toFixed(1));

/** 0 stands for no answer. */
const answers = (during: Recovery['during']): string =>
  Object.entries(during)
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

/** Of a soak. @returns the file */
export function writeSamples(report: { seed: number }): string {
  const file = join(mkdtempSync(join(tmpdir(), 'sluice-soak-')), `samples-${report.seed}.json`);
  writeFileSync(file, JSON.stringify(report));
  return file;
}

/** Everything that was told, one JSON object a line, behind what was promised and found. @returns the file */
export function writeHistory({ stand, seed, report }: Row, log: string): string {
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
