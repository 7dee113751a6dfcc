import { Command } from 'commander';
import { OUTCOME_DAYS_KEPT } from '../../limits.ts';
import type { Operations } from '../../management/operations.ts';
import type { Usage } from '../../management/usage.ts';
import type { HourOfOutcomes } from '../../projects/usage/outcome-day.ts';
import { printJson, printLine, record, table } from '../print.ts';
import { integerIn, parseProjectId, quotaText } from '../project/fields.ts';
import { type ApiFlags, withApi, withOperations } from '../session.ts';
import { reconcileCommand } from './reconcile.ts';

type Flags = ApiFlags & { json?: boolean; hours: number };

const HOURS_DEFAULT = 24;
const HOURS_MAX = OUTCOME_DAYS_KEPT * 24;

const percentText = ({ percent }: Usage): string => (percent === undefined ? '' : `${percent} %`);

function hoursText(hours: readonly HourOfOutcomes[]): string {
  const outcomes = [...new Set(hours.flatMap((hour) => Object.keys(hour.outcomes)))].sort();
  const titles = outcomes.map((outcome) => outcome.toUpperCase());
  const rows = hours.map(({ hour, outcomes: counts }) => [
    hour,
    ...outcomes.map((outcome) => `${counts[outcome] ?? 0}`),
  ]);
  return table(['HOUR (UTC)', ...titles], rows, titles);
}

/** Makes the table of reasons why requests were refused or stored nothing, most frequent first. */
function reasonsText(hours: readonly HourOfOutcomes[]): string {
  const sums: Record<string, number> = {};
  for (const { outcome, reason, key = '', requests } of hours.flatMap(({ reasons = [] }) => reasons)) {
    const name = [outcome, reason, key].join('\t');
    sums[name] = (sums[name] ?? 0) + requests;
  }
  const sorted = Object.entries(sums).sort(([, one], [, other]) => other - one);
  const rows = sorted.map(([name, requests]) => [...name.split('\t'), `${requests}`]);
  return table(['OUTCOME', 'REASON', 'KEY', 'REQUESTS'], rows, ['REQUESTS']);
}

async function showOne(operations: Operations, id: string, flags: Flags): Promise<void> {
  const usage = await operations.usageOf(id, flags.hours);
  if (flags.json) return printJson(usage);
  const percent = percentText(usage);
  printLine(
    record([
      ['project', usage.id],
      ['month', usage.month],
      ['usage', `${usage.current} of ${quotaText(usage)}${percent && `, ${percent}`}`],
    ]),
  );
  printLine('');
  if (usage.hours.length > 0) printLine(hoursText(usage.hours));
  if (usage.hours.some(({ reasons }) => reasons)) printLine(`\n${reasonsText(usage.hours)}`);
  if (usage.hours.length === 0) printLine(`No requests in the last ${flags.hours} hours.`);
}

async function showAll(operations: Operations, flags: Flags): Promise<void> {
  const all = await operations.usageOfAll();
  if (flags.json) return printJson(all);
  if (all.length === 0) return printLine('There is no project yet.');
  const rows = all.map((usage) => [
    usage.id,
    usage.month,
    `${usage.current}`,
    quotaText(usage),
    percentText(usage),
  ]);
  printLine(table(['ID', 'MONTH', 'USAGE', 'QUOTA', 'PERCENT'], rows, ['USAGE', 'QUOTA', 'PERCENT']));
}

export function usageCommand(): Command {
  const command = new Command('usage')
    .description('usage against quota; for one project also what became of its requests, by hour')
    .argument('[id]', 'id or alias', parseProjectId)
    .option('--hours <n>', 'how far back', integerIn(1, HOURS_MAX), HOURS_DEFAULT)
    .option('--json', 'print JSON')
    .addCommand(reconcileCommand())
    .action((id: string | undefined, flags: Flags) =>
      withOperations(flags, (operations) =>
        id === undefined ? showAll(operations, flags) : showOne(operations, id, flags),
      ),
    );
  return withApi(command);
}
