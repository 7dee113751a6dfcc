import { Command } from 'commander';
import { systemClock } from '../../lib/clock.ts';
import { readUsage } from '../../limit/month-count.ts';
import { OUTCOME_DAYS_KEPT } from '../../limits.ts';
import type { Project } from '../../projects/project.ts';
import { ProjectStore } from '../../projects/project-store.ts';
import { CounterBucket } from '../../usage/counters.ts';
import { type HourOfOutcomes, readOutcomes } from '../../usage/outcome-day.ts';
import { printJson, printLine, record, table } from '../print.ts';
import { integerIn, parseProjectId } from '../project/fields.ts';
import { type Session, withSession } from '../session.ts';
import { reconcileCommand } from './reconcile.ts';

type Flags = { json?: boolean; hours: number };
/** `month` is `YYYY-MM`; `percent` is absent without a quota. */
type Usage = {
  id: string;
  month: string;
  current: number;
  quota?: number;
  overage: boolean;
  percent?: number;
};

const HOURS_DEFAULT = 24;
const HOURS_MAX = OUTCOME_DAYS_KEPT * 24;
/** Projects asked about in one go: they must all be answered within the session's time-out. */
const BATCH = 100;

/** As the answers of ingest say it (contract part 2): rounded down, and 100 of no quota at all. */
const percentOf = (current: number, quota: number): number =>
  quota === 0 ? 100 : Math.floor((100 * current) / quota);

/**
 * The counter of this month; where Redis has none, the checkpoint from which counting would resume.
 */
async function usageOf(session: Session, project: Project, checkpoints: Checkpoints): Promise<Usage> {
  const { month, count } = await readUsage(await session.redis(), project.id);
  const figure = count ?? (await (await checkpoints()).read(project.id, month)) ?? 0;
  return {
    id: project.id,
    month,
    current: figure,
    ...(project.quota !== undefined && { quota: project.quota }),
    overage: project.overage,
    ...(project.quota !== undefined && { percent: percentOf(figure, project.quota) }),
  };
}

/** Asked for when the first checkpoint is needed; its reads are shared. */
type Checkpoints = () => Promise<CounterBucket>;

function checkpointsOf(session: Session): Checkpoints {
  let bucket: Promise<CounterBucket> | undefined;
  return () => {
    bucket ??= session.nats().then((link) => new CounterBucket({ link, log: session.log }));
    return bucket;
  };
}

async function usageOfAll(session: Session, projects: readonly Project[]): Promise<Usage[]> {
  const all: Usage[] = [];
  const checkpoints = checkpointsOf(session);
  for (let at = 0; at < projects.length; at += BATCH)
    all.push(
      ...(await Promise.all(
        projects.slice(at, at + BATCH).map((project) => usageOf(session, project, checkpoints)),
      )),
    );
  return all;
}

const quotaText = ({ quota, overage }: Usage): string =>
  quota === undefined ? 'unlimited' : `${quota}${overage ? ' + overage' : ''}`;
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

async function showOne(session: Session, id: string, flags: Flags): Promise<void> {
  const link = await session.nats();
  const project = await (await ProjectStore.open(link)).get(id);
  const usage = await usageOf(session, project, checkpointsOf(session));
  const hours = await readOutcomes(link, project.id, { now: systemClock.now(), hours: flags.hours });
  if (flags.json) return printJson({ ...usage, hours });
  const percent = percentText(usage);
  printLine(
    record([
      ['project', usage.id],
      ['month', usage.month],
      ['usage', `${usage.current} of ${quotaText(usage)}${percent && `, ${percent}`}`],
    ]),
  );
  printLine('');
  if (hours.length > 0) printLine(hoursText(hours));
  else printLine(`No requests in the last ${flags.hours} hours.`);
}

async function showAll(session: Session, flags: Flags): Promise<void> {
  const projects = await (await ProjectStore.open(await session.nats())).list();
  const all = await usageOfAll(session, projects);
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
  return new Command('usage')
    .description('usage against quota; for one project also what became of its requests, by hour')
    .argument('[id]', 'id or alias', parseProjectId)
    .option('--hours <n>', 'how far back', integerIn(1, HOURS_MAX), HOURS_DEFAULT)
    .option('--json', 'print JSON')
    .addCommand(reconcileCommand())
    .action((id: string | undefined, flags: Flags) =>
      withSession((session) => (id === undefined ? showAll(session, flags) : showOne(session, id, flags))),
    );
}
