/** Projects in a file: what apply says, does and refuses, and that export writes what apply reads. */
import { spawn } from 'node:child_process';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { fingerprint } from '../../../src/projects/audit-change.ts';
import { link as connect, makeBuckets, type NatsLink, openProjects } from '../../projects/broker.ts';
import { rounds } from '../../support/rounds.ts';
import { natsServer, redisServer, type TestServer, temporaryFolder } from '../../support/servers.ts';
import type { Project } from '../../support/system.ts';
import { type Ran, runCommand } from '../run-command.ts';

type ProjectKey = NonNullable<Project['keys']>[number];
const CLI = new URL('../../../dist/cli.js', import.meta.url).pathname;
const CUID = 'cjld2cjxh0000qzrmn831i7rn';
const folder = temporaryFolder('apply');
const file = join(folder, 'projects.yaml');
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
/** The audit remembers keys that were removed. */
const empty = async () => {
  const { streams } = await link.manager();
  await Promise.all(['KV_sluice_projects', 'SLUICE_AUDIT'].map((stream) => streams.purge(stream)));
};
beforeEach(async () => {
  await empty();
});
afterAll(async () => {
  await link?.close();
  await Promise.all([nats?.close(), redis?.close()]);
  rmSync(folder, { recursive: true });
});

const env = () => ({
  SLUICE_NATS_URL: nats.url,
  SLUICE_REDIS_URL: redis.url,
  SLUICE_PUBLIC_URL: 'http://localhost:9090',
});
const sluice = (...args: string[]): Promise<Ran> => runCommand(['project', ...args], env());
function apply(content: string | object, ...flags: string[]): Promise<Ran> {
  writeFileSync(file, typeof content === 'string' ? content : JSON.stringify(content));
  return sluice('apply', '-f', file, ...flags);
}
/** What `project list` prints, without what says the same as its absence. */
const listed = async (): Promise<object[]> =>
  outcomeOf(await sluice('list', '--json')).map(
    ({ revision: _, ...project }: Project & { revision: number }) => ({
      rateLimits: {},
      scrub: [],
      scrubKeys: [],
      fillIp: false,
      ...project,
    }),
  );
const outcomeOf = (ran: Ran) => {
  expect(ran, ran.err).toMatchObject({ status: 0, err: '' });
  return JSON.parse(ran.out);
};

const anyLimit = fc.integer({ min: 1, max: 100_000 });
const anyMoment = fc
  .date({ min: new Date('2020-01-01'), max: new Date('2130-01-01'), noInvalidDate: true })
  .map((date) => date.toISOString());
const anyKey: fc.Arbitrary<ProjectKey> = fc.record(
  {
    key: fc.stringMatching(/^[\w-]{1,64}$/),
    label: fc.oneof(
      fc.string({ unit: 'grapheme', minLength: 1, maxLength: 40 }).filter((text) => text.length <= 100),
      fc.constantFrom('007', 'null', '- a', '# b'),
    ),
    enabled: fc.boolean(),
    expires: anyMoment,
    rateLimit: anyLimit,
  },
  { requiredKeys: ['key', 'enabled'] },
);
/** As any build of it may have left it in the registry. */
const anyProject: fc.Arbitrary<Project> = fc
  .record(
    {
      id: fc.oneof(fc.stringMatching(/^[1-9]\d{0,18}$/), fc.stringMatching(/^[a-z][a-z0-9]{19,31}$/)),
      alias: fc.stringMatching(/^[1-9]\d{14,18}$/),
      enabled: fc.constant(false as const),
      key: fc.stringMatching(/^[\w-]{1,64}$/),
      keys: fc.uniqueArray(anyKey, { minLength: 1, maxLength: 5, selector: ({ key }) => key }),
      plan: fc.constantFrom('Free', 'Starter', 'Pro', 'Business', 'Scale', 'Platform'),
      rateLimit: anyLimit,
      rateLimits: fc.record(
        { errors: anyLimit, transactions: anyLimit, spans: anyLimit, logs: anyLimit, replays: anyLimit },
        { requiredKeys: [] },
      ),
      quota: fc.maxSafeNat(),
      overage: fc.boolean(),
      filters: fc.uniqueArray(fc.constantFrom('browser-extension', 'localhost', 'crawler')),
      allowedOrigins: fc.uniqueArray(fc.constantFrom('*.x.com', 'https://y.org', 'localhost:3000')),
      scrub: fc.uniqueArray(fc.constantFrom('emails', 'cards', 'ips', 'user-ip', 'keys')),
      scrubKeys: fc.uniqueArray(fc.constantFrom('ssn', 'birth date', '007'), { maxLength: 3 }),
      fillIp: fc.boolean(),
    },
    { requiredKeys: ['id', 'key', 'plan', 'overage', 'filters', 'allowedOrigins'] },
  )
  // A project with a CUID has an alias from its creation on.
  .filter(({ id, alias }) => /^\d/.test(id) || alias !== undefined)
  .filter(({ scrub = [], fillIp }) => !fillIp || !scrub.some((one) => one === 'ips' || one === 'user-ip'))
  .map(({ key, keys, ...project }) => ({ ...project, key: keys?.[0]?.key ?? key, ...(keys && { keys }) }));

function haveOwnNames(projects: readonly Project[]): boolean {
  const names = projects.flatMap(({ id, alias }) => (alias === undefined ? id : [id, alias]));
  return new Set(names).size === names.length;
}

const ALL_FIELDS = {
  id: '42',
  alias: '4200',
  key: 'abc',
  plan: 'Free',
  rateLimit: 9,
  quota: 5,
  overage: true,
  filters: ['localhost'],
  allowedOrigins: ['*.x.com'],
  scrub: ['emails', 'keys'],
  scrubKeys: ['ssn'],
  fillIp: true,
} as const;

describe('project apply', () => {
  it('makes what the file says, in YAML and in JSON, and says so', async () => {
    const ran = await apply(`
projects:
  - id: 42
    alias: 4200
    key: 0123
    plan: Pro
    quota: 1000
  - { id: ${CUID}, plan: Free, filters: [localhost] }
`);
    expect(ran).toMatchObject({ status: 0, err: '' });
    expect(ran.out).toContain('+ project 42: ');
    expect(ran.out).toContain('2 to create, 0 to change, 0 to remove, 0 unchanged\nDone: created 2, ');
    expect(await store.get('4200')).toEqual({
      id: '42',
      alias: '4200',
      key: '0123',
      plan: 'Pro',
      quota: 1000,
      overage: false,
      filters: ['browser-extension', 'localhost', 'crawler'],
      allowedOrigins: [],
    });
    const minted = await store.get(CUID);
    expect(minted).toMatchObject({ key: expect.stringMatching(/^[0-9a-f]{32}$/), filters: ['localhost'] });
    expect(minted.alias).toMatch(/^\d+$/);

    const outcome = outcomeOf(await apply({ projects: [ALL_FIELDS] }, '--json'));
    expect(outcome).toEqual({
      created: [],
      changed: [{ id: '42', fields: expect.objectContaining({ plan: { from: 'Pro', to: 'Free' } }) }],
      removed: [],
      unchanged: 0,
      failed: [],
      notTried: [],
    });
    expect(await store.get('42')).toEqual(ALL_FIELDS);
  });

  it('shows each field that changes; a field that is left out has its default, names stay', async () => {
    await apply({ projects: [ALL_FIELDS] });
    const ran = await apply({ projects: [{ id: '42', plan: 'Scale', quota: 6 }] });
    expect(ran.out.split('\n')).toEqual([
      '~ project 42',
      '    plan: "Free" → "Scale"',
      '    quota: 5 → 6',
      '    overage: true → false',
      '    filters: ["localhost"] → ["browser-extension","localhost","crawler"]',
      '    allowedOrigins: ["*.x.com"] → []',
      '    rateLimit: 9 → none',
      '    scrub: ["emails","keys"] → none',
      '    scrubKeys: ["ssn"] → none',
      '    fillIp: true → none',
      '0 to create, 1 to change, 0 to remove, 0 unchanged',
      'Done: created 0, changed 1, removed 0, unchanged 0.',
      '',
    ]);
    const { rateLimit: _, scrub: _s, scrubKeys: _k, fillIp: _f, ...fields } = ALL_FIELDS;
    expect(await store.get('42')).toEqual({
      ...fields,
      plan: 'Scale',
      quota: 6,
      overage: false,
      filters: ['browser-extension', 'localhost', 'crawler'],
      allowedOrigins: [],
    });
  });

  it('takes the example of docs/operations.md', async () => {
    const runbook = readFileSync(new URL('../../../docs/operations.md', import.meta.url), 'utf8');
    const example = /```yaml\n(projects:\n[\s\S]*?)```/.exec(runbook)?.[1] ?? '';
    expect((await apply(example)).out).toContain('\nDone: created 1, ');
    expect((await apply(example)).out).toBe('No change: 1 projects are as the file says.\n');
  });

  it('changes nothing in a dry run', async () => {
    const ran = await apply({ projects: [ALL_FIELDS] }, '--dry-run');
    expect(ran).toMatchObject({ status: 0, out: expect.stringContaining('+ project 42: ') });
    expect(ran.out).not.toContain('Done');
    const outcome = outcomeOf(await apply({ projects: [ALL_FIELDS] }, '--dry-run', '--json'));
    const created = [{ ...ALL_FIELDS, key: fingerprint(ALL_FIELDS.key) }];
    expect(outcome).toEqual({ dryRun: true, created, changed: [], removed: [], unchanged: 0 });
    expect(await store.list()).toEqual([]);
  });

  it('removes what the file does not have with --prune alone, with its usage', async () => {
    await apply({ projects: [ALL_FIELDS, { id: '43', plan: 'Pro' }] });
    expect((await apply({ projects: [ALL_FIELDS] })).out).toBe(
      'No change: 1 projects are as the file says.\n',
    );
    const dry = await apply({ projects: [ALL_FIELDS] }, '--prune', '--dry-run');
    expect(dry.out).toContain('- project 43\n0 to create, 0 to change, 1 to remove, 1 unchanged\n');
    const refused = await apply({ projects: [ALL_FIELDS] }, '--prune');
    expect(refused.status).toBe(1);
    expect(refused.err).toContain('--force:\n--prune would remove 1 of 2 projects');
    expect(await store.list()).toHaveLength(2);
    const outcome = outcomeOf(await apply({ projects: [ALL_FIELDS] }, '--prune', '--force', '--json'));
    expect(outcome).toMatchObject({ removed: ['43'], unchanged: 1, failed: [] });
    expect((await store.list()).map(({ id }) => id)).toEqual(['42']);
  });

  it('takes 1,000 projects in one command, and again without a change', async () => {
    const projects = Array.from({ length: 1_000 }, (_, at) => ({
      id: `${1_000 + at}`,
      plan: 'Pro',
      ...(at % 10 === 0 && { alias: `${90_000 + at}` }),
    }));
    const began = performance.now();
    const { out } = await apply({ projects });
    expect(performance.now() - began).toBeLessThan(30_000);
    expect(out).toContain('\nDone: created 1000, changed 0, removed 0, unchanged 0.\n');
    const before = await store.list();
    expect(before).toHaveLength(1_000);
    expect((await apply({ projects })).out).toBe('No change: 1000 projects are as the file says.\n');
    const exported = (await sluice('export')).out;
    expect((await apply(exported)).out).toBe('No change: 1000 projects are as the file says.\n');
    expect(await store.list()).toEqual(before);
  });

  it('reads standard input', async () => {
    const child = spawn(process.execPath, [CLI, 'project', 'apply', '-f', '-', '--json'], {
      env: { ...process.env, ...env() },
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    child.stdin.end('projects: [{ id: 7, plan: Pro }]');
    expect(JSON.parse(await text(child.stdout))).toMatchObject({ created: [{ id: '7', plan: 'Pro' }] });
    expect(await store.get('7')).toMatchObject({ plan: 'Pro' });
  });

  it('says what failed and what was done, and does the rest when it is repeated', async () => {
    const { streams } = await link.manager();
    const stream = 'KV_sluice_projects';
    await streams.update(stream, { max_msg_size: 1_000 });
    const allowedOrigins = Array.from({ length: 50 }, (_, at) => `https://host-${at}.example.org`);
    const projects = Array.from({ length: 200 }, (_, at) => ({
      id: `${at + 400}`,
      plan: 'Pro',
      ...(at === 100 && { allowedOrigins }),
    }));
    const ran = await apply({ projects }, '--json');
    expect(ran.status).toBe(1);
    expect(ran.err).toContain('not all is applied. project 500: message size exceeds');
    const { created, failed, notTried } = JSON.parse(ran.out);
    expect(failed).toEqual([{ id: '500', reason: expect.stringContaining('size exceeds') }]);
    expect(created.length + failed.length + notTried.length).toBe(200);
    expect(await store.list()).toHaveLength(created.length);

    await streams.update(stream, { max_msg_size: -1 });
    expect(outcomeOf(await apply({ projects }, '--json'))).toMatchObject({ unchanged: created.length });
    expect(await store.list()).toHaveLength(200);
  });
});

describe('keys in a file', () => {
  const keys = [
    { key: 'first', label: 'iOS', enabled: true, rateLimit: 7 },
    { key: 'second', enabled: false, expires: '2127-01-01T00:00:00.000Z' },
  ];
  const present = async () => {
    const { keys: all, key, enabled } = await store.get('42');
    return [key, all, enabled];
  };
  const applied = async (fields: object): Promise<string> =>
    (await apply({ projects: [{ ...ALL_FIELDS, key: undefined, ...fields }] })).out;
  const NO_CHANGE = 'No change: 1 projects are as the file says.\n';
  beforeEach(async () => {
    await applied({ keys });
  });

  it('makes them', async () => {
    expect(await present()).toEqual(['first', keys, undefined]);
    expect(await applied({ keys })).toBe(NO_CHANGE);
  });

  it('stay where the file names none, and where it names one that the project has', async () => {
    for (const fields of [{}, { key: 'first' }]) expect(await applied(fields)).toBe(NO_CHANGE);
    expect(await present()).toEqual(['first', keys, undefined]);
  });

  it('another key replaces the first as set --key does', async () => {
    const change = `    key: "${fingerprint('first')}" → "${fingerprint('third')}"\n`;
    expect(await applied({ key: 'third' })).toContain(change);
    const replaced = [{ ...keys[0], key: 'third' }, keys[1]];
    expect(await present()).toEqual(['third', replaced, undefined]);
    await empty();
    await applied({ keys });
    await sluice('set', '42', '--key', 'third');
    expect(await present()).toEqual(['third', replaced, undefined]);
  });

  it('are those of the file where it has a list', async () => {
    expect(await applied({ keys: [{ key: 'fourth' }] })).toContain('keys: [{');
    expect(await present()).toEqual(['fourth', undefined, undefined]);
  });

  it('are switched off and on with the project', async () => {
    expect(await applied({ enabled: false })).toContain('    enabled: true → false\n');
    expect(await present()).toEqual(['first', keys, false]);
    expect(await applied({ enabled: true })).toContain('    enabled: false → true\n');
    expect(await applied({})).toBe(NO_CHANGE);
    expect(await present()).toEqual(['first', keys, undefined]);
  });

  it.each([
    ['a key that is not in the list', 'key: x\n    keys: [{ key: y }]', ':4: project 2, key: it is none'],
    ['a key twice', 'keys: [{ key: y }, { key: y }]', ':4: project 2, keys: a key is there twice'],
    ['an empty list', 'keys: []', ':4: project 2, keys: '],
    ['an expiry that is no moment', 'keys: [{ key: y, expires: 30d }]', 'project 2, keys.0.expires: '],
    ['a limit of no category', 'rateLimits: { sessions: 5 }', 'project 2, rateLimits'],
  ])('refuses %s', async (_what, fields, message) => {
    const ran = await apply(`projects:\n  - id: 2\n    plan: Pro\n    ${fields}\n`);
    expect(ran).toMatchObject({ status: 2, out: '', err: expect.stringContaining(message) });
  });
});

describe('an older file', () => {
  const exported = async (): Promise<string> => (await sluice('export')).out;
  beforeEach(async () => {
    await apply({ projects: [{ ...ALL_FIELDS, key: 'leaked' }] });
  });

  it('brings no key back that was taken away, not even with --force', async () => {
    const before = await exported();
    const { key: fresh } = outcomeOf(await sluice('rotate-key', '42', '--json'));
    const plain = before.replace(/ *revision: .*\n/, '');
    expect(await apply(before)).toMatchObject({ status: 1, err: expect.stringContaining('was changed') });
    for (const ran of [await apply(before, '--force'), await apply(plain)])
      expect(ran).toMatchObject({ status: 1, err: expect.stringContaining(fingerprint('leaked')) });
    for (const args of [
      ['set', '42', '--key', 'leaked'],
      ['keys', 'add', '42', '--key', 'leaked'],
    ])
      expect(await sluice(...args)).toMatchObject({
        status: 1,
        err: expect.stringContaining(`${fingerprint('leaked')} was removed from project 42`),
      });
    expect((await store.get('42')).key).toBe(fresh);
    // Not by a detour either.
    await store.delete('42');
    expect(await apply(before)).toMatchObject({ status: 1, err: expect.stringContaining('was removed') });
    await expect(store.get('42')).rejects.toThrow('no project');
  });

  it('takes a key back that the project had when it was deleted, as a backup does', async () => {
    await sluice('keys', 'add', '42', '--key', 'second', '--label', 'x');
    await sluice('set', '42', '--quota', '9');
    const before = await exported();
    await store.delete('42');
    expect(await apply(before)).toMatchObject({ status: 0, err: '' });
    expect((await store.get('42')).keys?.map(({ key }) => key)).toEqual(['leaked', 'second']);
  });

  it('says which later changes it would undo, and does so with --force alone', async () => {
    const before = await exported();
    await sluice('set', '42', '--quota', '77', '--plan', 'Scale');
    for (const flags of [[], ['--dry-run'], ['--json']]) {
      const ran = await apply(before, ...flags);
      expect(ran.status).toBe(1);
      expect(ran.err).toContain('project 42 was changed since it was exported; this would undo: plan, quota');
    }
    expect(await store.get('42')).toMatchObject({ quota: 77, plan: 'Scale' });
    expect(await apply(before, '--force')).toMatchObject({ status: 0, err: '' });
    expect(await store.get('42')).toMatchObject({ quota: 5, plan: 'Free' });
    // As another change of the same state: no change is lost, and a file without revisions has the last word.
    const edited = (await exported()).replace('quota: 5', 'quota: 6');
    expect(await apply(edited)).toMatchObject({ status: 0, err: '' });
    const kept = edited.replace(/ *revision: .*\n/, '').replace('quota: 6', 'quota: 8');
    expect(await apply(kept)).toMatchObject({ status: 0, err: '' });
    expect((await store.get('42')).quota).toBe(8);
  });

  it('is not "no change" where its only key has expired or is disabled', async () => {
    const before = await exported();
    await store.rotateKey('42', 1);
    const late = await apply(before.replace(/ *revision: .*\n/, ''));
    expect(late).toMatchObject({
      status: 1,
      err: expect.stringContaining(`its key ${fingerprint('leaked')} has expired`),
    });
    await apply({
      projects: [{ ...ALL_FIELDS, key: undefined, keys: [{ key: 'a' }, { key: 'b', enabled: false }] }],
    });
    const disabled = await apply({ projects: [{ ...ALL_FIELDS, key: 'b' }] });
    expect(disabled).toMatchObject({ status: 1, err: expect.stringContaining('is disabled') });
  });

  it('shows no key in what it prints for people', async () => {
    const said = [
      await apply({
        projects: [
          { ...ALL_FIELDS, key: 'secret-one' },
          { id: '43', plan: 'Pro', key: 'secret-two' },
        ],
      }),
      await apply({ projects: [{ id: '44', plan: 'Pro', keys: [{ key: 'secret-three' }] }] }, '--dry-run'),
    ];
    for (const { status, out, err } of said) {
      expect(status).toBe(0);
      expect(out + err).not.toMatch(/secret|leaked/);
      expect(out).toContain('sha256:');
    }
  });
});

describe('a file with errors changes nothing, and each error is named:', () => {
  const good = '  - { id: 1, plan: Pro }\n';
  it.each([
    ['no YAML', 'projects: [', 'projects.yaml:1: '],
    ['no list', 'projects: 7', 'projects.yaml:1: projects: it must be a list'],
    ['empty', '', 'projects.yaml: it must be an object'],
    ['a project that is no object', `projects:\n${good}  - 5`, ':3: project number 2: it must be an object'],
    [
      'a field beside projects',
      `projects: []\nproject: []`,
      'projects.yaml:2: project: there is no such field',
    ],
    [
      'an unknown field',
      `projects:\n${good}  - { id: 2, plan: Pro,\n      colour: red }`,
      ':4: project 2, colour: there is no such field',
    ],
    [
      'a field with a name of JavaScript',
      `projects:\n${good}  - { id: 2, plan: Pro,\n      __proto__: {} }`,
      ':4: project 2, __proto__: there is no such field',
    ],
    ...['spam', '__proto__'].map((name) => [
      `a category with the name ${name}`,
      `projects:\n${good}  - { id: 2, plan: Pro,\n      rateLimits: { errors: 5,\n        ${name}: 1 } }`,
      `:5: project 2, rateLimits.${name}: there is no such field`,
    ]),
    ['a missing field', `projects:\n${good}  - id: 2`, ':3: project 2, plan: '],
    ['a missing id', `projects:\n${good}  - plan: Pro`, ':3: project number 2, id: '],
    [
      'a wrong type',
      `projects:\n${good}  - id: 2\n    plan: Pro\n    rateLimit: many`,
      ':5: project 2, rateLimit: ',
    ],
    [
      'a value out of bounds',
      `projects:\n${good}  - id: 2\n    plan: Pro\n    rateLimit: 100001`,
      ':5: project 2, rateLimit: ',
    ],
    [
      'a wrong element',
      `projects:\n${good}  - id: 2\n    plan: Pro\n    filters:\n      - crawler\n      - spam`,
      ':7: project 2, filters.1: ',
    ],
    [
      'a wrong origin',
      `projects:\n${good}  - id: 2\n    plan: Pro\n    allowedOrigins: ["ftp://x"]`,
      ':5: project 2, allowedOrigins: ',
    ],
    [
      'an alias that is the id',
      `projects:\n${good}  - id: 2\n    plan: Pro\n    alias: 2`,
      ':5: project 2, alias: it must differ from the id',
    ],
    [
      'the same id twice',
      `projects:\n${good}${good}`,
      ':3: project 1, id: 1 is also the id or alias of project number 1',
    ],
    [
      'an alias twice',
      `projects:\n  - { id: 2, plan: Pro, alias: 9 }\n  - { id: 3, plan: Pro, alias: 9 }`,
      ':3: project 3, alias: 9 is also',
    ],
    [
      'an alias of YAML without an anchor',
      `projects:\n${good}  - *other`,
      ':3: no anchor before the alias *other',
    ],
    [
      'too many aliases of YAML',
      `projects:\n  - &one { id: 1, plan: Pro }\n${'  - *one\n'.repeat(101)}`,
      ':3: Excessive alias count',
    ],
    ['the same field twice', 'projects:\n  - id: 2\n    id: 3\n    plan: Pro', ':3: Map keys must be unique'],
  ])('%s', async (_what, content, message) => {
    const ran = await apply(content);
    expect(ran.err).toContain(message);
    expect(ran).toMatchObject({ status: 2, out: '' });
    expect(await store.list()).toEqual([]);
  });

  it('several at once', async () => {
    const { err } = await apply('projects:\n  - { id: 1, plan: Gold }\n  - { id: 2, plan: Pro, quota: -1 }');
    expect(err.trimEnd().split('\n').slice(1)).toEqual([
      expect.stringMatching(/projects\.yaml:2: project 1, plan: it must be one of Free, .*Platform$/),
      expect.stringMatching(/projects\.yaml:3: project 2, quota: /),
    ]);
  });

  it('names that another project holds', async () => {
    await store.create({
      id: '1',
      alias: '10',
      plan: 'Pro',
      overage: false,
      filters: [],
      allowedOrigins: [],
    });
    const before = await store.list();
    const byAlias = await apply({
      projects: [
        { id: '2', plan: 'Pro', alias: '10' },
        { id: '3', plan: 'Pro', alias: '1' },
      ],
    });
    expect(byAlias.status).toBe(1);
    expect(byAlias.err).toContain('project 2, alias: 10 is the alias of project 1\n');
    expect(byAlias.err).toContain('project 3, alias: 1 is the id of project 1\n');
    const byId = await apply({ projects: [{ id: '10', plan: 'Pro' }] });
    expect(byId.err).toContain('project 10, id: 10 is the alias of project 1\n');
    expect(await store.list()).toEqual(before);
  });

  it('a file that is not there', async () => {
    const ran = await sluice('apply', '-f', join(folder, 'none.yaml'));
    expect(ran).toMatchObject({ status: 2, err: expect.stringContaining('none.yaml cannot be read') });
  });
});

describe('project export', () => {
  it('writes what apply reads, with keys', async () => {
    await apply({ projects: [ALL_FIELDS, { id: CUID, plan: 'Pro' }] });
    const before = await store.list();
    const { out } = await sluice('export');
    expect(out).toMatch(/^# .*\n# The keys are in it/);
    const stored = await store.listStored();
    const declared = stored.map(({ project, revision }) => ({ ...project, revision }));
    expect((parse(out) as { projects: unknown }).projects).toEqual(declared);
    const json = outcomeOf(await sluice('export', '--json'));
    expect(json).toEqual({ projects: declared });

    await (await link.manager()).streams.purge('KV_sluice_projects');
    await apply(out);
    expect(await store.list()).toEqual(before);
  });

  it('of any projects is applied without a change', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(anyProject, { minLength: 1, maxLength: 8 }).filter(haveOwnNames),
        async (projects) => {
          await empty();
          for (const project of projects)
            await link.js.publish(`$KV.sluice_projects.${project.id}`, JSON.stringify(project));
          const { out } = await sluice('export');
          expect(await apply(out)).toMatchObject({ err: '', out: expect.stringMatching(/^No change: /) });
          expect((await apply(outcomeOf(await sluice('export', '--json')))).out).toMatch(/^No change: /);
          const before = await listed();
          await empty();
          expect(outcomeOf(await apply(out, '--json'))).toMatchObject({ failed: [], notTried: [] });
          expect(await listed()).toEqual(before);
          expect(await store.list()).toHaveLength(projects.length);
        },
      ),
      { numRuns: rounds(100, 8) },
    );
  });

  it('is an empty list without projects', async () => {
    expect((await sluice('export')).out).toContain('\nprojects: []\n');
  });
});
