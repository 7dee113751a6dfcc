/** Changes that applying a file makes in the registry, and their text. Pure. */
import { differences, wantedRecord } from '../../management/project-json.ts';
import type { Project } from '../../projects/project.ts';
import type { FileProject } from './project-file.ts';

export type FieldChange = { field: string; from: unknown; to: unknown };
export type ProjectChange = { project: FileProject; fields: FieldChange[] };
export type Changes = {
  created: FileProject[];
  changed: ProjectChange[];
  removed: Project[];
  unchanged: number;
};

/** As it is printed: a record says nothing of itself while it is enabled. */
const fieldOf = (record: Project, field: keyof Project): unknown =>
  field === 'enabled' ? record.enabled !== false : record[field];

function fieldChanges(before: Project, declared: FileProject, now: number): FieldChange[] {
  const after = wantedRecord(before, declared, now);
  return differences(before, after, now).map((field) => ({
    field,
    from: fieldOf(before, field),
    to: fieldOf(after, field),
  }));
}

/** @param of `now`: Unix ms */
export function changesBetween(
  present: readonly Project[],
  declared: readonly FileProject[],
  { prune, now }: { prune: boolean; now: number },
): Changes {
  const byId = new Map(present.map((project) => [project.id, project]));
  const changes: Changes = { created: [], changed: [], removed: [], unchanged: 0 };
  for (const project of declared) {
    const before = byId.get(project.id);
    byId.delete(project.id);
    const fields = before ? fieldChanges(before, project, now) : [];
    if (!before) changes.created.push(project);
    else if (fields.length > 0) changes.changed.push({ project, fields });
    else changes.unchanged++;
  }
  if (prune) changes.removed.push(...byId.values());
  return changes;
}

/**
 * Names of the file that another project holds now, one sentence for each. A name moves between
 * projects in two steps, so that no crash between two writes leaves it with the wrong one.
 */
export function heldNames(present: readonly Project[], declared: readonly FileProject[]): string[] {
  const owners = new Map<string, Project>();
  for (const project of present)
    for (const name of [project.id, project.alias]) if (name !== undefined) owners.set(name, project);
  return declared.flatMap((project) =>
    (['id', 'alias'] as const).flatMap((field) => {
      const name = project[field];
      const owner = name === undefined ? undefined : owners.get(name);
      if (!owner || owner.id === project.id) return [];
      const held = owner.id === name ? 'the id' : 'the alias';
      return [`project ${project.id}, ${field}: ${name} is ${held} of project ${owner.id}`];
    }),
  );
}

export const isNothing = ({ created, changed, removed }: Changes): boolean =>
  created.length + changed.length + removed.length === 0;

const shown = (value: unknown): string => (value === undefined ? 'none' : JSON.stringify(value));

/** A line for each project, and for each field that changes. */
export function changesText({ created, changed, removed, unchanged }: Changes): string {
  return [
    ...created.map((project) => {
      const { id, ...fields } = project;
      const pairs = Object.entries(fields).map(([field, value]) => `${field} ${shown(value)}`);
      return `+ project ${id}: ${pairs.join(', ')}`;
    }),
    ...changed.flatMap(({ project, fields }) => [
      `~ project ${project.id}`,
      ...fields.map(({ field, from, to }) => `    ${field}: ${shown(from)} → ${shown(to)}`),
    ]),
    ...removed.map(({ id }) => `- project ${id}`),
    `${created.length} to create, ${changed.length} to change, ${removed.length} to remove, ${unchanged} unchanged`,
  ].join('\n');
}
