import { Command } from 'commander';
import { systemClock } from '../../lib/clock.ts';
import { replaceKey } from '../../projects/keys.ts';
import type { Project } from '../../projects/project.ts';
import { ProjectStore } from '../../projects/project-store.ts';
import { printJson, printLine } from '../print.ts';
import { type Session, UsageError, withSession } from '../session.ts';
import { applyCommand, exportCommand } from './apply.ts';
import { deleteProject, LeftoverDeleted } from './delete.ts';
import {
  categoryLimits,
  changesOf,
  checked,
  PROJECT_DEFAULTS,
  type ProjectFlags,
  parseProjectId,
  projectJson,
  projectsText,
  projectText,
  withProjectFlags,
} from './fields.ts';
import { historyOf, historyText } from './history.ts';
import { keysCommand, parseDuration } from './keys.ts';

type Output = { json?: boolean };

function print(session: Session, project: Project, { json }: Output): void {
  const { publicUrl, config } = session;
  if (json) printJson(projectJson(project, publicUrl));
  else printLine(projectText(project, publicUrl, config.planLimits));
}

const open = async (session: Session): Promise<ProjectStore> => ProjectStore.open(await session.nats());

/** Runs one action on the store and prints the project that it returns. */
const onProject = (output: Output, action: (store: ProjectStore) => Promise<Project>): Promise<void> =>
  withSession(async (session) => print(session, await action(await open(session)), output));

async function create(flags: ProjectFlags & Output & { id?: string; plan: Project['plan'] }): Promise<void> {
  const rateLimits = categoryLimits(flags.rateLimitFor ?? []);
  const wanted = {
    ...PROJECT_DEFAULTS,
    plan: flags.plan,
    ...changesOf(flags),
    ...(rateLimits && { rateLimits }),
  };
  // Generated names are always legal. A stand-in lets all other fields be checked at once.
  const { id, key, ...rest } = checked({ id: flags.id ?? '1', key: flags.key ?? 'k', ...wanted });
  const names = { ...(flags.id && { id }), ...(flags.key && { key }) };
  await onProject(flags, (store) => store.create({ ...rest, ...names }));
}

async function set(idOrAlias: string, flags: ProjectFlags & Output): Promise<void> {
  const changes = changesOf(flags);
  const { key, rateLimitFor = [] } = flags;
  categoryLimits(rateLimitFor);
  if (Object.keys(changes).length === 0 && key === undefined && rateLimitFor.length === 0)
    throw new UsageError('Nothing to set: name at least one field.');
  const change = (project: Project): Project => {
    const rateLimits = categoryLimits(rateLimitFor, project.rateLimits);
    const changed = { ...project, ...changes, rateLimits };
    return checked(key === undefined ? changed : replaceKey(changed, key, systemClock.now()));
  };
  await onProject(flags, (store) => store.set(idOrAlias, change));
}

async function remove(id: string, flags: Output & { keepUsage?: boolean }): Promise<void> {
  await withSession(async (session) => {
    try {
      print(session, await deleteProject(session, id, { keepUsage: flags.keepUsage === true }), flags);
    } catch (error) {
      if (!(error instanceof LeftoverDeleted)) throw error;
      if (flags.json) printJson({ id: error.id });
      else printLine(error.message);
    }
  });
}

async function list(flags: Output): Promise<void> {
  await withSession(async (session) => {
    const projects = await (await open(session)).list();
    if (flags.json) printJson(projects.map((project) => projectJson(project, session.publicUrl)));
    else if (projects.length > 0) printLine(projectsText(projects, session.config.planLimits));
    else printLine('There is no project yet; sluice project create --plan Pro makes one.');
  });
}

async function history(id: string, flags: Output): Promise<void> {
  await withSession(async (session) => {
    const changes = await historyOf(await session.nats(), id);
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
    .action((id: string, flags: Output) => onProject(flags, (store) => store.get(id)));
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
    .description('give a project a new key; the old ones stop working within a second, or after --overlap')
    .argument('<id>', 'id or alias', parseProjectId)
    .option(
      '--overlap <duration>',
      'how long the old keys stay valid, such as 30d, 12h or 90s',
      parseDuration,
    )
    .option(...JSON_FLAG)
    .action((id: string, flags: Output & { overlap?: number }) =>
      onProject(flags, (store) => store.rotateKey(id, flags.overlap)),
    );
  command
    .command('disable')
    .description('refuse all requests of a project, within a second; nothing of it is lost')
    .argument('<id>', 'id or alias', parseProjectId)
    .option(...JSON_FLAG)
    .action((id: string, flags: Output) =>
      onProject(flags, (store) => store.set(id, (project) => ({ ...project, enabled: false }))),
    );
  command
    .command('enable')
    .description('accept requests of a disabled project again')
    .argument('<id>', 'id or alias', parseProjectId)
    .option(...JSON_FLAG)
    .action((id: string, flags: Output) =>
      onProject(flags, (store) => store.set(id, ({ enabled: _, ...project }) => project)),
    );
  return command.addCommand(keysCommand()).addCommand(applyCommand()).addCommand(exportCommand());
}
