/** Changes that `apply` makes in the registry, and the text that shows them. */
import { differences, wantedRecord } from '../../management/project-json.ts';
import { fingerprint, withoutKeys } from '../../projects/audit-change.ts';
import type { StoredProject } from '../../projects/names.ts';
import { keysOf, type Project, validUntil } from '../../projects/project.ts';
import type { FileProject } from './project-file.ts';

export type FieldChange = { field: string; from: unknown; to: unknown };
/** Change of a project. `revision` is the present revision of its record. */
export type ProjectChange = { project: FileProject; fields: FieldChange[]; revision: number };
export type Changes = {
  created: FileProject[];
  changed: ProjectChange[];
  removed: Project[];
  unchanged: number;
};

/**
 * Returns a field's value as it is printed. The record of an enabled project has no field
 * `enabled`, so the value is filled in. The printed changes reach the logs of build servers, so
 * keys are shown as fingerprints.
 */
const fieldOf = (record: Project, field: keyof Project): unknown => {
  if (field === 'enabled') return record.enabled !== false;
  return field === 'key' ? fingerprint(record.key) : withoutKeys(record[field]);
};

function fieldChanges(before: Project, declared: FileProject, now: number): FieldChange[] {
  const after = wantedRecord(before, declared, now);
  return differences(before, after, now).map((field) => ({
    field,
    from: fieldOf(before, field),
    to: fieldOf(after, field),
  }));
}

/** Compares the projects of a file with the present ones. `now` is in Unix ms. */
export function changesBetween(
  present: readonly StoredProject[],
  declared: readonly FileProject[],
  { prune, now }: { prune: boolean; now: number },
): Changes {
  const byId = new Map(present.map((one) => [one.project.id, one]));
  const changes: Changes = { created: [], changed: [], removed: [], unchanged: 0 };
  for (const project of declared) {
    const before = byId.get(project.id);
    byId.delete(project.id);
    const fields = before ? fieldChanges(before.project, project, now) : [];
    if (!before) changes.created.push(project);
    else if (fields.length > 0) changes.changed.push({ project, fields, revision: before.revision });
    else changes.unchanged++;
  }
  if (prune) changes.removed.push(...[...byId.values()].map(({ project }) => project));
  return changes;
}

/** Largest fraction of the projects that `--prune` removes without `--force`. */
const PRUNED_SHARE_MAX = 0.1;

/**
 * Returns reasons to doubt a file, one sentence each: it is older than the registry or incomplete,
 * or names a key that is disabled or has expired.
 * @param now Unix ms
 */
export function doubtsOf(
  present: readonly StoredProject[],
  declared: readonly FileProject[],
  { changed, removed, now }: Changes & { now: number },
): string[] {
  const isMany = removed.length > present.length * PRUNED_SHARE_MAX;
  const pruned = isMany ? [`--prune would remove ${removed.length} of ${present.length} projects`] : [];
  const undone = changed
    .filter(({ project, revision }) => project.revision !== undefined && project.revision !== revision)
    .map(({ project: { id }, fields }) => {
      const names = fields.map(({ field }) => field).join(', ');
      return `project ${id} was changed since it was exported; this would undo: ${names}`;
    });
  const keyOf = new Map(declared.map(({ id, key, keys }) => [id, keys ? undefined : key]));
  const dead = present.flatMap(({ project }) => {
    const key = keysOf(project).find((one) => one.key === keyOf.get(project.id));
    if (!key || now < validUntil(key)) return [];
    const state = key.enabled ? 'has expired' : 'is disabled';
    return [`project ${project.id}: its key ${fingerprint(key.key)} ${state}, and stays so`];
  });
  return [...undone, ...dead, ...pruned];
}

/**
 * Returns a sentence for each id or alias in the file that belongs to another project in the
 * registry. `apply` then changes nothing: one run must take the name from its old project, and a
 * second run can give it to the new one. If one run did both, a crash between its two writes could
 * leave the name with the wrong project.
 */
export function heldNames(present: readonly StoredProject[], declared: readonly FileProject[]): string[] {
  const owners = new Map<string, Project>();
  for (const { project } of present)
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

/** Makes a line for each project, and for each field that changes. */
export function changesText({ created, changed, removed, unchanged }: Changes): string {
  return [
    ...created.map((project) => {
      const { id, revision: _, ...fields } = project;
      const pairs = Object.entries(withoutKeys(fields) as object).map(
        ([field, value]) => `${field} ${shown(value)}`,
      );
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
