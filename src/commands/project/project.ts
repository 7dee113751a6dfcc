import { createInterface } from 'node:readline/promises';
import { Command, Option } from 'commander';
import { systemClock } from '../../lib/clock.ts';
import type { Operations, StoredProjectJson } from '../../management/operations.ts';
import {
  checkedWanted,
  type ProjectJson,
  projectJson,
  type WantedProject,
} from '../../management/project-json.ts';
import type { RecordedChange } from '../../projects/audit-change.ts';
import { UnreadableError } from '../../projects/names.ts';
import type { Plan } from '../../projects/project.ts';
import { CommandError, UsageError } from '../command-error.ts';
import { harmless, inOneLine, printJson, printLine, printStates, table } from '../print.ts';
import { type ApiFlags, printUrls, remarkOnUrls, type Session, withApi, withOperations } from '../session.ts';
import { applyCommand, exportCommand } from './apply.ts';
import { changesOf, type ProjectFlags, parseProjectId, projectText, withProjectFlags } from './fields.ts';
import { keysCommand, parseDuration } from './keys.ts';
import {
  chosenOf,
  PROJECT_STATES,
  type ProjectStatus,
  projectsText,
  SORT_FIELDS,
  type SortField,
  STATES,
} from './list.ts';
import { moveCommand } from './move.ts';

type Output = ApiFlags & { json?: boolean };
type Printed = { operations: Operations; session: Session; json?: boolean | undefined };

function print(project: ProjectJson, { operations, session, json }: Printed): void {
  if (json) return printUrls(operations, project);
  const { planLimits } = session.config;
  printLine(projectText(project, { planLimits, remark: remarkOnUrls(operations) }));
}

/** Does one operation on a project, then prints the project as it is after the operation. */
const onProject = (
  flags: Output,
  work: (operations: Operations) => Promise<StoredProjectJson>,
): Promise<void> =>
  withOperations(flags, async (operations, session) =>
    print((await work(operations)).project, { operations, session, json: flags.json }),
  );

/** Removes null fields: a new project has nothing that null could clear. */
function withoutNulls(fields: object): object {
  const given = Object.entries(fields).filter(([, value]) => value !== null);
  return Object.fromEntries(given);
}

async function create(flags: ProjectFlags & Output & { id?: string; plan: Plan }): Promise<void> {
  const { rateLimits, ...fields } = changesOf(flags);
  const names = { ...(flags.id !== undefined && { id: flags.id }), plan: flags.plan };
  const limits = rateLimits && { rateLimits: withoutNulls(rateLimits) };
  const wanted: WantedProject = { ...withoutNulls(fields), ...limits, ...names };
  checkedWanted(wanted);
  await onProject(flags, (operations) => operations.createProject(wanted));
}

async function set(id: string, flags: ProjectFlags & Output): Promise<void> {
  const changes = changesOf(flags);
  if (Object.keys(changes).length === 0) throw new UsageError('Nothing to set: name at least one field.');
  await onProject(flags, (operations) => operations.setProject(id, changes));
}

/**
 * Asks the user to type the project's id.
 * @throws CommandError when the answer is not the id
 */
async function confirm(operations: Operations, id: string): Promise<void> {
  const { project } = await operations.getProject(id);
  const { current, month } = await operations.usageOf(id, 0);
  const { keys, plan, name = '' } = project;
  const lines = createInterface({ input: process.stdin, output: process.stdout });
  const answer = await lines.question(
    harmless(
      `Project ${project.id} ${name && `"${inOneLine(name)}" `}(${plan}, ${keys.length} keys) has ${current} requests counted in ${month}.\nType ${project.id} to delete it: `,
    ),
  );
  lines.close();
  if (answer.trim() !== project.id) throw new CommandError('nothing is deleted.');
}

type DeleteFlags = Output & { keepUsage?: boolean; yes?: boolean };

async function remove(id: string, flags: DeleteFlags): Promise<void> {
  const isAsked = !flags.yes && process.stdin.isTTY && process.stdout.isTTY && !flags.json;
  if (!flags.yes && !isAsked) throw new UsageError('Say --yes: nobody is there to be asked.');
  await withOperations(flags, async (operations, session) => {
    if (isAsked) await confirm(operations, id);
    const deleted = await operations.deleteProject(id, { keepUsage: flags.keepUsage === true });
    const usage = flags.keepUsage ? 'its usage stays' : 'with its usage';
    if (flags.json) return printJson(deleted);
    if ('plan' in deleted) {
      printLine(`Deleted, ${usage}; what it sent stays:`);
      print(deleted, { operations, session });
    } else printLine(`The usage of project ${deleted.id}, which was deleted before, is deleted.`);
  });
}

type ListFlags = Output & { search?: string; tag?: string; state?: ProjectStatus; sort: SortField };

/** Lists the projects. If some records cannot be read, the command lists the others, then fails. */
async function list(flags: ListFlags): Promise<void> {
  await withOperations(flags, async (operations, { config, publicUrl }) => {
    let unreadable: UnreadableError | undefined;
    const all = await operations.listProjects().catch((error: unknown) => {
      if (!(error instanceof UnreadableError)) throw error;
      unreadable = error;
      return error.readable.map(({ project, revision }) => ({
        ...projectJson(project, { publicUrl, now: systemClock.now() }),
        revision,
      }));
    });
    const projects = chosenOf(all, { ...flags, planLimits: config.planLimits });
    if (flags.json) printUrls(operations, projects);
    else if (projects.length > 0) printStates(projectsText(projects, config.planLimits), STATES);
    else if (all.length > 0) printLine(`None of ${all.length} projects is wanted.`);
    else if (!unreadable) printLine('There is no project yet; sluice project create --plan Pro makes one.');
    if (unreadable) throw unreadable;
  });
}

const valueText = (value: unknown): string => {
  if (value === undefined) return 'none';
  return typeof value === 'string' ? value : JSON.stringify(value);
};

function changeText({ action, from = {}, to = {} }: RecordedChange): string {
  const names = Object.keys({ ...from, ...to });
  const texts = names.map((name) => {
    if (action !== 'change') return `${name} ${valueText({ ...from, ...to }[name])}`;
    return `${name} ${valueText(from[name])} → ${valueText(to[name])}`;
  });
  return texts.join(', ');
}

function historyText(changes: readonly RecordedChange[]): string {
  const rows = changes.map((change) => [change.at, change.by, change.action, changeText(change)]);
  return table(['WHEN', 'BY', 'ACTION', 'FIELDS'], rows);
}

async function history(id: string, flags: Output): Promise<void> {
  await withOperations(flags, async (operations) => {
    const changes = await operations.history(id);
    if (flags.json) printJson(changes);
    else if (changes.length > 0) printLine(historyText(changes));
    else printLine(`No change of project ${id} is recorded yet.`);
  });
}

const JSON_FLAG = ['--json', 'print JSON'] as const;
const SWITCHES = [
  ['disable', false, 'refuse all requests of a project, within a second; nothing of it is lost'],
  ['enable', true, 'accept requests of a disabled project again'],
] as const;

export function projectCommand(): Command {
  const command = new Command('project').description('create, look at and change projects');
  withProjectFlags(command.command('create').description('create a project and print it'))
    .option('--id <id>', 'numeric or a CUID; minted when left out', parseProjectId)
    .option(...JSON_FLAG)
    .action((flags) => {
      if (flags.plan === undefined)
        throw new UsageError('--plan is needed: see sluice project create --help.');
      return create(flags);
    });
  withProjectFlags(command.command('set').argument('<id>', 'id or alias', parseProjectId))
    .description('change fields of a project; those not named stay')
    .option(...JSON_FLAG)
    .action(set);
  command
    .command('show')
    .description('print one project')
    .argument('<id>', 'id or alias', parseProjectId)
    .option(...JSON_FLAG)
    .action((id: string, flags: Output) => onProject(flags, (operations) => operations.getProject(id)));
  command
    .command('list')
    .description('print all projects, or those that are wanted')
    .option('--search <text>', 'only those with this text in id, alias, name, tag, plan or label of a key')
    .option('--tag <tag>', 'only those with this tag')
    .addOption(new Option('--state <state>', 'only those in this state').choices(PROJECT_STATES))
    .addOption(new Option('--sort <field>', 'in this order').choices(SORT_FIELDS).default('id'))
    .option(...JSON_FLAG)
    .action(list);
  command
    .command('delete')
    .description('delete a project and its usage; what it sent stays')
    .argument('<id>', 'id or alias', parseProjectId)
    .option('--keep-usage', 'the next project of this id goes on from its counts')
    .option('--yes', 'do not ask; needed where no terminal is there to ask on')
    .option(...JSON_FLAG)
    .action(remove);
  command
    .command('history')
    .description('print who changed a project, when, from what to what; keys are shown as fingerprints')
    .argument('<id>', 'id or alias; of a project that was deleted, its id', parseProjectId)
    .option(...JSON_FLAG)
    .action(history);
  command
    .command('rotate-key')
    .description('give a project a new key; the old ones stop working within a second, or after --overlap')
    .argument('<id>', 'id or alias', parseProjectId)
    .option(
      '--overlap <duration>',
      'how long the old keys stay valid, such as 30d, 12h or 90s',
      parseDuration,
    )
    .option(...JSON_FLAG)
    .action((id: string, flags: Output & { overlap?: number }) =>
      onProject(flags, (operations) => operations.rotateKey(id, flags.overlap)),
    );
  for (const [name, enabled, description] of SWITCHES)
    command
      .command(name)
      .description(description)
      .argument('<id>', 'id or alias', parseProjectId)
      .option(...JSON_FLAG)
      .action((id: string, flags: Output) =>
        onProject(flags, (operations) => operations.setProject(id, { enabled })),
      );
  command.addCommand(applyCommand()).addCommand(exportCommand());
  for (const sub of command.commands) withApi(sub);
  return command.addCommand(keysCommand()).addCommand(moveCommand());
}
