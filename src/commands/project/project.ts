import { Command } from 'commander';
import { checkedNew, type ProjectJson } from '../../management/project-json.ts';
import type { Project } from '../../projects/project.ts';
import { mintKey } from '../../projects/project-store.ts';
import { printJson, printLine } from '../print.ts';
import { type ApiFlags, type Session, UsageError, withApi, withOperations } from '../session.ts';
import {
  changesOf,
  type ProjectFlags,
  parseProjectId,
  projectsText,
  projectText,
  withProjectFlags,
} from './fields.ts';
import { historyText } from './history.ts';

type Output = ApiFlags & { json?: boolean };

function print({ config }: Session, project: ProjectJson, { json }: Output): void {
  if (json) printJson(project);
  else printLine(projectText(project, config.planLimits));
}

async function create(flags: ProjectFlags & Output & { id?: string; plan: Project['plan'] }): Promise<void> {
  const { alias, key, ...fields } = changesOf(flags);
  const names = { ...(flags.id && { id: flags.id }), ...(alias && { alias }), ...(key && { key }) };
  const wanted = checkedNew({ ...fields, ...names, plan: flags.plan });
  await withOperations(flags, async (operations, session) =>
    print(session, (await operations.createProject(wanted)).project, flags),
  );
}

async function show(id: string, flags: Output): Promise<void> {
  await withOperations(flags, async (operations, session) =>
    print(session, (await operations.getProject(id)).project, flags),
  );
}

async function set(id: string, flags: ProjectFlags & Output): Promise<void> {
  const changes = changesOf(flags);
  if (Object.keys(changes).length === 0) throw new UsageError('Nothing to set: name at least one field.');
  await withOperations(flags, async (operations, session) =>
    print(session, (await operations.setProject(id, changes)).project, flags),
  );
}

async function rotateKey(id: string, flags: Output): Promise<void> {
  await withOperations(flags, async (operations, session) =>
    print(session, (await operations.setProject(id, { key: mintKey() })).project, flags),
  );
}

async function remove(id: string, flags: Output & { keepUsage?: boolean }): Promise<void> {
  await withOperations(flags, async (operations, session) => {
    const deleted = await operations.deleteProject(id, { keepUsage: flags.keepUsage === true });
    if ('dsn' in deleted) print(session, deleted, flags);
    else if (flags.json) printJson(deleted);
    else printLine(`The usage of project ${deleted.id}, which was deleted before, is deleted.`);
  });
}

async function list(flags: Output): Promise<void> {
  await withOperations(flags, async (operations, session) => {
    const projects = await operations.listProjects();
    if (flags.json) printJson(projects);
    else if (projects.length > 0) printLine(projectsText(projects, session.config.planLimits));
    else printLine('There is no project yet; sluice project create --plan Pro makes one.');
  });
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
    .action(show);
  command
    .command('list')
    .description('print all projects')
    .option(...JSON_FLAG)
    .action(list);
  command
    .command('delete')
    .description('delete a project and its usage; what it sent stays')
    .argument('<id>', 'id or alias', parseProjectId)
    .option('--keep-usage', 'the next project of this id goes on from its counts')
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
    .description('give a project a new key; the old one stops working within a second')
    .argument('<id>', 'id or alias', parseProjectId)
    .option(...JSON_FLAG)
    .action(rotateKey);
  for (const sub of command.commands) withApi(sub);
  return command;
}
