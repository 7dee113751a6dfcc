/** A real broker with the registry's buckets, and a link to it. */
import { Kvm } from '@nats-io/kv';
import { afterAll, beforeAll } from 'vitest';
import { createLog } from '../../src/lib/log.ts';
import type { BucketEntry } from '../../src/projects/bucket-copy.ts';
import type { Plan } from '../../src/projects/project.ts';
import { type NewProject, ProjectStore } from '../../src/projects/project-store.ts';
import type { ProjectView } from '../../src/projects/project-view.ts';
import { NatsLink } from '../../src/stream/nats.ts';
import { natsServer, type TestServer } from '../support/servers.ts';

export const log = createLog('silent');

export type { NatsLink, NewProject };

export const openProjects = (to: NatsLink): Promise<ProjectStore> => ProjectStore.open(to);

export const link = (url: string): Promise<NatsLink> =>
  NatsLink.connect({ urls: [url], name: 'test', log, waitForServer: true });

/** The stream that every change of the registry is recorded in. */
export async function makeAudit(to: NatsLink): Promise<void> {
  await (await to.manager()).streams.add({ name: 'SLUICE_AUDIT', subjects: ['sluice.audit.>'] });
}

export async function makeBuckets(to: NatsLink): Promise<void> {
  await makeAudit(to);
  const kvm = new Kvm(to.js);
  for (const bucket of ['sluice_projects', 'sluice_heartbeats', 'sluice_counters']) await kvm.create(bucket);
}

/**
 * A broker for the tests of a file or a block.
 * @param ready gets a link to it before the first of them
 * @param prepare makes what they find there
 */
export function useBroker(
  ready: (to: NatsLink, url: string) => void,
  prepare: (to: NatsLink) => Promise<void> = makeBuckets,
): void {
  let server: TestServer | undefined;
  let made: NatsLink | undefined;
  beforeAll(async () => {
    server = await natsServer();
    made = await link(server.url);
    await prepare(made);
    ready(made, server.url);
  });
  afterAll(async () => {
    await made?.close();
    await server?.close();
  });
}

/** A fresh snapshot of a bucket that was created at `createdMs`. */
export function replace({ copy }: ProjectView, entries: readonly BucketEntry[], createdMs: number): void {
  copy.startSnapshot(createdMs);
  for (const entry of entries) copy.put(entry);
  for (const _ of copy.endSnapshot());
}

/**
 * Waits until `holds`, asking every 10 ms, as often as `withinMs` allows: where the machine is too busy to ask so often, it waits longer.
 * @returns how long it took, in ms; throws after the last time
 */
export async function eventually(withinMs: number, holds: () => boolean): Promise<number> {
  const began = performance.now();
  for (let times = 0; !holds(); times++) {
    if (times * 10 > withinMs) throw new Error(`not so within ${withinMs} ms`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  return performance.now() - began;
}

/** The same for what has to be asked for. */
export async function eventuallyHolds(holds: () => Promise<boolean>, withinMs = 30_000): Promise<void> {
  const began = performance.now();
  while (!(await holds())) if (performance.now() - began > withinMs) throw new Error('never so');
}

type Seeded = {
  first?: number;
  count: number;
  named?: boolean;
  plan?: Plan;
  /** Name of a project for people, which is the label of its key, too. */
  title?: (n: number) => string;
};

/**
 * Projects `first` to `first + count - 1`, straight into the bucket's stream. `named`: their ids are CUIDs, and the numbers aliases.
 */
export async function seedProjects(
  to: NatsLink,
  { first = 1, count, named = false, plan = 'Pro', title }: Seeded,
): Promise<void> {
  const stream = 'KV_sluice_projects';
  const manager = await to.manager();
  const before = (await manager.streams.info(stream)).state.last_seq;
  const put = (key: string, value: object): void =>
    to.connection.publish(`$KV.sluice_projects.${key}`, JSON.stringify(value));
  for (let n = first; n < first + count; n++) {
    const id = named ? `c${`${n}`.padStart(24, 'a')}` : `${n}`;
    const filters = ['browser-extension', 'localhost', 'crawler'];
    const key = `${n}`.padStart(32, 'b');
    const titled = title && { name: title(n), keys: [{ key, label: title(n), enabled: true }] };
    const record = {
      ...titled,
      key,
      plan,
      overage: false,
      filters,
      allowedOrigins: [],
    };
    if (named) put(`${n}`, { aliasOf: id });
    put(id, { id, ...(named && { alias: `${n}` }), ...record });
  }
  const last = before + count * (named ? 2 : 1);
  await eventuallyHolds(async () => (await manager.streams.info(stream)).state.last_seq >= last);
}
