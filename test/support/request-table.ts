/** A table of requests, each sent to a project of its own, and what must be stored of each. */
import { ProjectStore } from '../../src/projects/project-store.ts';
import { runCommand } from '../commands/run-command.ts';
import type { Project, StoredRecord, System } from './system.ts';

/** Types that SDKs send and sluice stores only where an operator names them. */
export const FURTHER_TYPES =
  'attachment,check_in,session,sessions,feedback,user_report,profile,profile_chunk,trace_metric,client_report,replay_video';

/** Creates a project for each name, because the requests share event ids. Resolves when ingest knows them. */
export async function projectForEach(
  system: System,
  names: readonly string[],
): Promise<(name: string) => Project> {
  const store = await ProjectStore.open(system.link);
  const projects = new Map<string, Project>();
  for (const name of names)
    projects.set(
      name,
      await store.create({ plan: 'Platform', overage: false, filters: [], allowedOrigins: [] }),
    );
  await system.registryKnown();
  return (name) => projects.get(name) as Project;
}

/** What is stored of a project, in the order of its items. */
export const recordsOf = (system: System, { id }: Project): StoredRecord[] =>
  system
    .stored()
    .filter(({ project_id }) => project_id === id)
    .sort((one, other) => one.item_index - other.item_index);

/** As the table writes an item: bytes where they are stored as bytes. */
export const itemOf = (record: StoredRecord & { payload_base64?: string }): [string, unknown] => [
  record.type,
  record.payload_base64 === undefined ? record.payload : Buffer.from(record.payload_base64, 'base64'),
];

type Row = { stored?: readonly (readonly [string, unknown, ...unknown[]])[] | undefined };
export const expected = ({ stored = [] }: Row): [string, unknown][] =>
  stored.map(([type, payload]) => [type, payload instanceof Uint8Array ? Buffer.from(payload) : payload]);

/** The project of each dead letter. */
export async function projectsOfLetters({ env }: System): Promise<(string | undefined)[]> {
  const { out } = await runCommand(['dead-letters', 'list', '--json'], env);
  return (JSON.parse(out) as { project_id?: string; projectId?: string }[]).map(
    ({ project_id, projectId }) => project_id ?? projectId,
  );
}
