import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { NameTakenError, RegistryError } from '../projects/names.ts';
import type { Project } from '../projects/project.ts';
import { type NewProject, ProjectStore } from '../projects/project-store.ts';
import type { NatsLink } from '../stream/nats.ts';

const FIRST_ID = '1';
/** No quota, no filters: what one sends is what one finds. */
const DEMO: NewProject = { plan: 'Platform', overage: false, filters: [], allowedOrigins: [] };

/** The demo project of a data folder: the same one at every start, made at the first. */
export async function demoProject(link: NatsLink, dataDir: string): Promise<Project> {
  const store = await ProjectStore.open(link);
  const file = join(dataDir, 'demo-project');
  const known = existsSync(file) ? await find(store, readFileSync(file, 'utf8').trim()) : undefined;
  if (known) return known;
  const project = await create(store);
  writeFileSync(file, `${project.id}\n`);
  return project;
}

async function find(store: ProjectStore, id: string): Promise<Project | undefined> {
  try {
    return await store.get(id);
  } catch (error) {
    if (error instanceof RegistryError) return undefined;
    throw error;
  }
}

async function create(store: ProjectStore): Promise<Project> {
  try {
    return await store.create({ ...DEMO, id: FIRST_ID });
  } catch (error) {
    if (error instanceof NameTakenError) return store.create(DEMO);
    throw error;
  }
}
