/** `sluice project apply` and `export`: all projects in one file. */
import { readFile } from 'node:fs/promises';
import { text } from 'node:stream/consumers';
import { Command } from 'commander';
import { systemClock } from '../../lib/clock.ts';
import { reasonOf } from '../../management/operation-error.ts';
import type { Operations } from '../../management/operations.ts';
import { type ProjectJson, recordOf } from '../../management/project-json.ts';
import { withoutKeys } from '../../projects/audit-change.ts';
import type { StoredProject } from '../../projects/names.ts';
import { compareIds } from '../../projects/project-store.ts';
import { CommandError, UsageError } from '../command-error.ts';
import { printJson, printLine } from '../print.ts';
import { type ApiFlags, printUrls, withOperations } from '../session.ts';
import { type Changes, changesBetween, changesText, doubtsOf, heldNames, isNothing } from './changes.ts';
import {
  type FileProject,
  fileProject,
  ProjectFileError,
  parseProjectFile,
  projectFileText,
} from './project-file.ts';

/** Number of writes at the same time. The bound leaves the broker time for other clients. */
const WRITES_AT_ONCE = 32;
/** Number of removals at the same time. Each waits three seconds for requests under way. */
const REMOVALS_AT_ONCE = 250;

type ApplyFlags = ApiFlags & {
  file: string;
  prune?: boolean;
  keepUsage?: boolean;
  dryRun?: boolean;
  force?: boolean;
  json?: boolean;
};

/** Changes that were made, as `--json` prints them. */
type Outcome = {
  created: ProjectJson[];
  changed: { id: string; fields: object }[];
  removed: string[];
  unchanged: number;
  failed: { id: string; reason: string }[];
  notTried: string[];
};

async function readDeclared(file: string): Promise<FileProject[]> {
  const isStdin = file === '-';
  const source = await (isStdin ? text(process.stdin) : readFile(file, 'utf8')).catch((error: Error) => {
    throw new UsageError(`${file} cannot be read: ${reasonOf(error)}.`);
  });
  try {
    return parseProjectFile(source, isStdin ? 'standard input' : file);
  } catch (error) {
    if (!(error instanceof ProjectFileError)) throw error;
    throw new UsageError(`nothing is changed; the file has errors:\n${error.message}`);
  }
}

const fieldsJson = (fields: Changes['changed'][number]['fields']): object =>
  Object.fromEntries(fields.map(({ field, from, to }) => [field, { from, to }]));

type Step = { id: string; run(outcome: Outcome): Promise<void> };

/** Takes the steps, `atOnce` of them at the same time. After a failure, no further step begins. */
async function takeSteps(steps: readonly Step[], atOnce: number, outcome: Outcome): Promise<void> {
  const waiting = [...steps].reverse();
  const takeNext = async (): Promise<void> => {
    for (let step = waiting.pop(); step; step = waiting.pop()) {
      const { id } = step;
      if (outcome.failed.length > 0) outcome.notTried.push(id);
      else
        await step
          .run(outcome)
          .catch((error: unknown) => outcome.failed.push({ id, reason: reasonOf(error) }));
    }
  };
  await Promise.all(Array.from({ length: atOnce }, takeNext));
}

async function carryOut(operations: Operations, changes: Changes, keepUsage: boolean): Promise<Outcome> {
  const { unchanged } = changes;
  const outcome: Outcome = { created: [], changed: [], removed: [], unchanged, failed: [], notTried: [] };
  const creations = changes.created.map((project) => ({
    id: project.id,
    run: async ({ created }: Outcome) => {
      created.push((await operations.createProject(project)).project);
    },
  }));
  const updates = changes.changed.map(({ project, fields, revision }) => ({
    id: project.id,
    run: async ({ changed }: Outcome) => {
      await operations.putProject(project, { presence: 'there', revision });
      changed.push({ id: project.id, fields: fieldsJson(fields) });
    },
  }));
  const removals = changes.removed.map(({ id }) => ({
    id,
    run: async ({ removed }: Outcome) => {
      await operations.deleteProject(id, { keepUsage });
      removed.push(id);
    },
  }));
  await takeSteps([...creations, ...updates], WRITES_AT_ONCE, outcome);
  await takeSteps(removals, REMOVALS_AT_ONCE, outcome);
  outcome.created.sort((one, other) => compareIds(one.id, other.id));
  return outcome;
}

const count = ({ created, changed, removed, unchanged }: Outcome): string =>
  `created ${created.length}, changed ${changed.length}, removed ${removed.length}, unchanged ${unchanged}`;

const plannedJson = ({ created, changed, removed, unchanged }: Changes): object => ({
  dryRun: true,
  created: created.map(({ revision: _, ...project }) => withoutKeys(project)),
  changed: changed.map(({ project, fields }) => ({ id: project.id, fields: fieldsJson(fields) })),
  removed: removed.map(({ id }) => id),
  unchanged,
});

/**
 * Prints the outcome.
 * @throws CommandError naming each failure, when there is any
 */
function report(outcome: Outcome, { json }: ApplyFlags, operations: Operations): void {
  const { failed, notTried, created } = outcome;
  if (json && created.length > 0) printUrls(operations, outcome);
  else if (json) printJson(outcome);
  else printLine(`Done: ${count(outcome)}.`);
  if (failed.length === 0) return;
  const why = failed.map(({ id, reason }) => `project ${id}: ${reason}`).join('; ');
  throw new CommandError(
    `not all is applied. ${why}. ${notTried.length} more were not tried. The same command does the rest.`,
  );
}

async function presentRecords(operations: Operations, now: number): Promise<StoredProject[]> {
  const projects = await operations.listProjects();
  return projects.map((project) => ({ project: recordOf(project, now), revision: project.revision ?? 0 }));
}

async function apply(flags: ApplyFlags): Promise<void> {
  const { json, dryRun = false, prune = false, keepUsage = false, force = false } = flags;
  const declared = await readDeclared(flags.file);
  await withOperations(flags, async (operations) => {
    const now = systemClock.now();
    const present = await presentRecords(operations, now);
    const held = heldNames(present, declared);
    if (held.length > 0)
      throw new CommandError(`nothing is changed; names of the file are in use:\n${held.join('\n')}`);
    const changes = changesBetween(present, declared, { prune, now });
    const doubts = force ? [] : doubtsOf(present, declared, { ...changes, now });
    if (json && dryRun) printJson(plannedJson(changes));
    if (!json && !isNothing(changes)) printLine(changesText(changes));
    if (doubts.length > 0)
      throw new CommandError(`nothing is changed without --force:\n${doubts.join('\n')}`);
    if (!json && isNothing(changes))
      return printLine(`No change: ${changes.unchanged} projects are as the file says.`);
    if (!dryRun) report(await carryOut(operations, changes, keepUsage), flags, operations);
  });
}

async function exportAll(flags: ApiFlags & { json?: boolean }): Promise<void> {
  await withOperations(flags, async (operations) => {
    const projects = await presentRecords(operations, systemClock.now());
    if (flags.json) printJson({ projects: projects.map(fileProject) });
    else process.stdout.write(projectFileText(projects));
  });
}

export const applyCommand = (): Command =>
  new Command('apply')
    .description('make the projects as a file says; prints what changes')
    .requiredOption('-f, --file <file>', 'YAML or JSON as project export writes it; - is standard input')
    .option('--prune', 'remove projects that are not in the file, with their usage')
    .option('--keep-usage', 'with --prune: the next project of an id goes on from its counts')
    .option('--force', 'also undo changes that were made after the export, or prune more than a tenth')
    .option('--dry-run', 'print what would change, and change nothing')
    .option('--json', 'print JSON')
    .action(apply);

export const exportCommand = (): Command =>
  new Command('export')
    .description('print all projects with their keys, as YAML for project apply')
    .option('--json', 'print JSON, which apply reads too')
    .action(exportAll);
