/** A project's record as the command line and the API take it and show it. Pure. */
import { z } from 'zod';
import { originPatternProblem } from '../filter/inbound.ts';
import { ALLOWED_ORIGINS_MAX } from '../limits.ts';
import { FILTERS, type Project, projectSchema } from '../projects/project.ts';
import type { NewProject } from '../projects/project-store.ts';
import { type FieldProblem, InvalidError } from './failure.ts';

export type ProjectJson = Project & { dsn: string };

/** A project to be made; what is printed of one may be sent back, and its DSN says nothing. */
export const newProjectSchema = projectSchema
  .partial()
  .required({ plan: true })
  .extend({ dsn: z.string().optional() });

/** Null clears a field. */
export const patchSchema = projectSchema.omit({ id: true }).partial().extend({
  rateLimit: projectSchema.shape.rateLimit.nullable(),
  quota: projectSchema.shape.quota.nullable(),
});

/** The fields that change; undefined clears one. */
export type ProjectChanges = { [Name in keyof Omit<Project, 'id'>]?: Project[Name] | undefined };

/** A project to be made; what is left open has a default or is minted. */
export type WantedProject = Pick<NewProject, 'plan'> & {
  [Name in keyof NewProject]?: NewProject[Name] | undefined;
};

/** What a new project has where nothing is said. */
export const PROJECT_DEFAULTS = { overage: false, filters: [...FILTERS], allowedOrigins: [] };

/** `http://KEY@host:port/<numeric id or alias>` */
export const dsnOf = (project: Project, publicUrl: string): string =>
  `${publicUrl.replace('://', `://${project.key}@`)}/${project.alias ?? project.id}`;

/** The fields of contract part 4, in its order. */
export const projectJson = (project: Project, publicUrl: string): ProjectJson => ({
  id: project.id,
  ...(project.alias !== undefined && { alias: project.alias }),
  key: project.key,
  dsn: dsnOf(project, publicUrl),
  plan: project.plan,
  ...(project.rateLimit !== undefined && { rateLimit: project.rateLimit }),
  ...(project.quota !== undefined && { quota: project.quota }),
  overage: project.overage,
  filters: project.filters,
  allowedOrigins: project.allowedOrigins,
});

/** One problem for each field that is wrong; an unknown field is named by itself. */
export const fieldProblems = (error: z.ZodError): FieldProblem[] =>
  error.issues.flatMap((issue) =>
    issue.code === 'unrecognized_keys'
      ? issue.keys.map((name) => ({ field: [...issue.path, name].join('.'), detail: 'unknown field' }))
      : [{ field: issue.path.join('.'), detail: issue.message }],
  );

function originProblems({ allowedOrigins }: Project): FieldProblem[] {
  const problems = allowedOrigins.flatMap((pattern) => originPatternProblem(pattern) ?? []);
  if (allowedOrigins.length > ALLOWED_ORIGINS_MAX) problems.push(`at most ${ALLOWED_ORIGINS_MAX} patterns`);
  return problems.map((detail) => ({ field: 'allowedOrigins', detail }));
}

/**
 * The project with all its fields checked together. @throws InvalidError naming each wrong field
 */
export function checked(project: Project): Project {
  const parsed = projectSchema.safeParse(project);
  const problems = parsed.success ? [] : fieldProblems(parsed.error);
  if (project.alias === project.id) problems.push({ field: 'alias', detail: 'it must differ from the id' });
  problems.push(...originProblems(project));
  if (problems.length > 0) throw new InvalidError(problems);
  return project;
}

/**
 * A project to be made, with defaults for what is left open but id, alias and key, all its fields
 * checked together.
 * @throws InvalidError
 */
export function checkedNew(wanted: WantedProject): NewProject {
  const given = Object.entries(wanted).filter(([, value]) => value !== undefined);
  const { plan } = wanted;
  const filled: NewProject = {
    ...PROJECT_DEFAULTS,
    ...(Object.fromEntries(given) as Partial<NewProject>),
    plan,
  };
  // Generated names are always legal. A stand-in lets all other fields be checked at once.
  checked({ ...filled, id: wanted.id ?? '1', key: wanted.key ?? 'k' });
  return filled;
}
