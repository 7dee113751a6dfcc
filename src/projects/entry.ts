/**
 * What a key of the projects bucket holds: a record under a project's id, a claim under its alias.
 * Pure.
 */
import { z } from 'zod';
import { isNumericId, type Project, projectSchema } from './project.ts';

const claimSchema = z.strictObject({ aliasOf: z.string() });

export type ParsedEntry =
  | { kind: 'project'; project: Project }
  | { kind: 'alias'; id: string }
  | { kind: 'broken'; reason: string };

export const projectText = (project: Project): string => JSON.stringify(project);
export const claimText = (id: string): string => JSON.stringify({ aliasOf: id });

/** Never throws: a record that another program spoiled must not end a worker. */
export function parseEntry(key: string, text: string): ParsedEntry {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return { kind: 'broken', reason: 'not JSON' };
  }
  const claim = claimSchema.safeParse(value);
  if (claim.success && isNumericId(key)) return { kind: 'alias', id: claim.data.aliasOf };
  const record = projectSchema.safeParse(value);
  if (!record.success) return { kind: 'broken', reason: problems(record.error).join('; ') };
  if (record.data.id !== key) return { kind: 'broken', reason: `the record's id is ${record.data.id}` };
  return { kind: 'project', project: record.data };
}

/** One sentence for each field that is wrong. */
export const problems = (error: z.ZodError): string[] =>
  error.issues.map((issue) =>
    issue.path.length > 0 ? `${issue.path.join('.')}: ${issue.message}` : issue.message,
  );
