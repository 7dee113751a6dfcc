/**
 * Files of bench/hostile/apply-file.ts, sound, with one fault, and damaged anywhere, as the command applies them: afterwards the records
 * say what the file says, or nothing has changed.
 */
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { damagedFile, derivedFile, FILE_NAME } from '../../../bench/hostile/apply-file.ts';
import { randomOf } from '../../../bench/hostile/mutations.ts';
import {
  type FileProject,
  ProjectFileError,
  parseProjectFile,
} from '../../../src/commands/project/project-file.ts';
import type { StoredProject } from '../../../src/projects/names.ts';
import { link as connect, makeBuckets, type NatsLink, openProjects } from '../../projects/broker.ts';
import { givenSeed, rounds } from '../../support/rounds.ts';
import { natsServer, redisServer, type TestServer, temporaryFolder } from '../../support/servers.ts';
import type { Project } from '../../support/system.ts';
import { runCommand } from '../run-command.ts';

const PROJECTS_MAX = 15;
const STREAMS = ['KV_sluice_projects', 'SLUICE_AUDIT'];
const folder = temporaryFolder('apply-files');
const file = join(folder, FILE_NAME);
let nats: TestServer;
let redis: TestServer;
let link: NatsLink;
let store: Awaited<ReturnType<typeof openProjects>>;
beforeAll(async () => {
  [nats, redis] = await Promise.all([natsServer(), redisServer()]);
  link = await connect(nats.url);
  await makeBuckets(link);
  store = await openProjects(link);
});
afterAll(async () => {
  await link?.close();
  await Promise.all([nats?.close(), redis?.close()]);
  rmSync(folder, { recursive: true });
});

const apply = () =>
  runCommand(['project', 'apply', '-f', file, '--json'], {
    SLUICE_NATS_URL: nats.url,
    SLUICE_REDIS_URL: redis.url,
    SLUICE_PUBLIC_URL: 'http://localhost:9090',
  });

/** Numbers of the last writes to the registry and to the audit. */
async function writes(): Promise<number[]> {
  const { streams } = await link.manager();
  const infos = await Promise.all(STREAMS.map((stream) => streams.info(stream)));
  return infos.map(({ state }) => state.last_seq);
}
async function empty(): Promise<void> {
  const { streams } = await link.manager();
  await Promise.all(STREAMS.map((stream) => streams.purge(stream)));
}

/** Projects that a damaged file declares; undefined: none, because it is refused. */
function declaredIn(text: string): FileProject[] | undefined {
  try {
    return parseProjectFile(text, FILE_NAME);
  } catch (error) {
    if (error instanceof ProjectFileError) return undefined;
    throw error;
  }
}

/** A record with all that its absent fields mean, and without what is undefined. */
const meaningOf = (record: Project): object =>
  JSON.parse(
    JSON.stringify({
      ...{ rateLimits: {}, tags: [], scrub: [], scrubKeys: [], fillIp: false, enabled: true },
      ...record,
      keys: record.keys ?? [{ key: record.key, enabled: true }],
    }),
  );

/**
 * What a record must mean once the file is applied, by the rules of docs/operations.md.
 * @param before the record until then; of a new project, what the command has minted
 */
function expectedMeaning(declared: FileProject, before: Pick<Project, 'alias' | 'key' | 'keys'>): object {
  const { revision: _, key, keys, alias = before.alias, tags = [], enabled = true, ...fields } = declared;
  const isValid = ({ enabled: isOn, expires }: NonNullable<Project['keys']>[number]): boolean =>
    isOn && (expires === undefined || Date.now() < Date.parse(expires));
  const own = before.keys ?? [{ key: before.key, enabled: true }];
  const first = Math.max(0, own.findIndex(isValid));
  const isReplaced = key !== undefined && !own.some((one) => one.key === key);
  const kept = own.map((one, at) => (isReplaced && at === first ? { ...one, key } : one));
  const all = keys ?? kept;
  const valid = (all.find(isValid) ?? all[0]) as { key: string };
  return meaningOf({
    ...fields,
    ...(alias !== undefined && { alias }),
    tags: [...new Set(tags)],
    keys: all,
    key: valid.key,
    ...({ enabled } as object),
  } as Project);
}

const byId = (projects: readonly StoredProject[]): Map<string, StoredProject> =>
  new Map(projects.map((one) => [one.project.id, one]));
const ids = (projects: readonly { id: string }[]): string[] => projects.map(({ id }) => id).sort();

/** Compares the records, and what the command says, with what the file declares. */
async function expectApplied(declared: FileProject[], before: Map<string, StoredProject>, out: string) {
  const after = byId(await store.listStored());
  expect([...after.keys()].sort()).toEqual([...new Set([...before.keys(), ...ids(declared)])].sort());
  const created = declared.filter(({ id }) => !before.has(id));
  for (const { id, alias, key, keys } of created) {
    const { project } = after.get(id) as StoredProject;
    if (!/^\d/.test(id) && alias === undefined) expect(project.alias).toMatch(/^[1-9]\d+$/);
    if (/^\d/.test(id)) expect(project.alias).toBe(alias);
    if (key === undefined && keys === undefined) expect(project.key).toMatch(/^[0-9a-f]{32}$/);
  }
  const changed: FileProject[] = [];
  for (const project of declared) {
    const [was, is] = [before.get(project.id), after.get(project.id) as StoredProject];
    const { alias, key } = is.project;
    const made = { key: project.key ?? key, ...(alias !== undefined && { alias }) };
    const expected = expectedMeaning(project, was?.project ?? made);
    expect(meaningOf(is.project)).toEqual(expected);
    if (was && !isDeepStrictEqual(meaningOf(was.project), expected)) changed.push(project);
  }
  const isTouched = new Set([...ids(created), ...ids(changed)]);
  for (const [id, was] of before) if (!isTouched.has(id)) expect(after.get(id)).toEqual(was);
  const outcome = JSON.parse(out);
  expect({ ...outcome, created: ids(outcome.created), changed: ids(outcome.changed) }).toEqual({
    created: ids(created),
    changed: ids(changed),
    removed: [],
    unchanged: declared.length - created.length - changed.length,
    failed: [],
    notTried: [],
  });
  return created.length + changed.length;
}

it('makes the records what the file says, or changes nothing and names what is wrong', async () => {
  const { seed = Math.floor(Math.random() * 0x1_0000_0000) } = givenSeed;
  const told = { applied: 0, refused: 0, doubted: 0 };
  const files = rounds(1_500, 120);
  for (let round = 1; round <= files; round++) {
    const random = randomOf(seed, round);
    if ((await store.list()).length > PROJECTS_MAX) await empty();
    const before = await store.listStored();
    const known = before.map(({ project: { id, alias }, revision }) => ({ id, alias, revision }));
    const derived = random() < 0.5 ? derivedFile(random, known) : undefined;
    // As a file holds it: half surrogates are no UTF-8.
    const text = derived?.text ?? Buffer.from(damagedFile(random, known)).toString();
    const declared = derived ? derived.declared : declaredIn(text);
    writeFileSync(file, text);
    const written = await writes();
    const { status, out, err } = await apply();
    try {
      if (declared !== undefined && status === 0) {
        const count = await expectApplied(declared, byId(before), out);
        expect((await writes())[1]).toBe((written[1] as number) + count);
        told.applied++;
        continue;
      }
      expect(await writes()).toEqual(written);
      expect(out).toBe('');
      if (declared === undefined) {
        expect([status, err]).toEqual([
          2,
          expect.stringContaining('nothing is changed; the file has errors:\n'),
        ]);
        expect(err).toContain(derived?.refusal ?? FILE_NAME);
        told.refused++;
      } else {
        // A damaged file may take a name from another project, or say another revision.
        expect(derived).toBeUndefined();
        expect([status, err]).toEqual([1, expect.stringContaining('nothing is changed')]);
        told.doubted++;
      }
    } catch (error) {
      const what = `file ${round} of seed ${seed}, ${derived?.how ?? 'damaged'}: ${JSON.stringify(text)}`;
      throw new Error(`${what}\nstatus ${status}: ${err}`, { cause: error });
    }
  }
  console.log(`seed ${seed}: ${told.applied} applied, ${told.refused} refused, ${told.doubted} doubted`);
  expect(Math.min(told.applied, told.refused)).toBeGreaterThan(files / 10);
});
