import { hostname, userInfo } from 'node:os';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { link as connect, makeAudit, makeBuckets, type NatsLink } from '../../projects/broker.ts';
import { natsServer, type TestServer } from '../../support/servers.ts';
import { type Ran, runCommand } from '../run-command.ts';

const CUID = 'cjld2cjxh0000qzrmn831i7rn';
const OTHER_CUID = 'cjld2cyuq0000t3rmniod1foy';
let server: TestServer;
let link: NatsLink;
beforeAll(async () => {
  server = await natsServer();
  link = await connect(server.url);
  await makeBuckets(link);
});
afterAll(async () => {
  await link?.close();
  await server?.close();
});

const sluiceWith = (more: Record<string, string>, ...args: string[]): Promise<Ran> => {
  const env = { SLUICE_NATS_URL: server.url, SLUICE_REDIS_URL: 'redis://127.0.0.1:1', SLUICE_PORT: '9090' };
  return runCommand(args, { ...env, ...more });
};
const sluice = (...args: string[]): Promise<Ran> => sluiceWith({}, ...args);
const json = async (...args: string[]): Promise<Record<string, unknown>> => {
  const ran = await sluiceWith({ SLUICE_PUBLIC_URL: 'http://localhost:9090' }, ...args, '--json');
  expect(ran, ran.err).toMatchObject({ status: 0, err: '' });
  return JSON.parse(ran.out) as Record<string, unknown>;
};
const idOf = async (...flags: string[]): Promise<string> =>
  String((await json('project', 'create', '--plan', 'Pro', ...flags)).id);

describe('project create', () => {
  it('mints id and key, turns the three filters on, and prints the DSN', async () => {
    const project = await json('project', 'create', '--plan', 'Pro');
    expect(project).toEqual({
      id: expect.stringMatching(/^[1-9]\d+$/),
      key: expect.stringMatching(/^[0-9a-f]{32}$/),
      dsn: `http://${project.key}@localhost:9090/${project.id}`,
      enabled: true,
      keys: [{ id: expect.any(String), key: project.key, enabled: true, dsn: project.dsn }],
      plan: 'Pro',
      overage: false,
      filters: ['browser-extension', 'localhost', 'crawler'],
      allowedOrigins: [],
    });
  });

  it('takes every field', async () => {
    const flags =
      '--id 77 --key abc --plan Free --quota 5 --overage --rate-limit 9 --filter localhost,crawler';
    const project = await json(
      'project',
      'create',
      ...flags.split(' '),
      '--allow-origin',
      '*.x.com',
      'https://y.org',
    );
    expect(project).toEqual({
      id: '77',
      key: 'abc',
      dsn: 'http://abc@localhost:9090/77',
      enabled: true,
      keys: [{ id: 'ba7816bf', key: 'abc', enabled: true, dsn: 'http://abc@localhost:9090/77' }],
      plan: 'Free',
      rateLimit: 9,
      quota: 5,
      overage: true,
      filters: ['localhost', 'crawler'],
      allowedOrigins: ['*.x.com', 'https://y.org'],
    });
  });

  it('gives a CUID project an alias, which the DSN carries', async () => {
    const project = await json('project', 'create', '--plan', 'Pro', '--id', CUID);
    expect(project.alias).toMatch(/^[1-9]\d+$/);
    expect(project.dsn).toBe(`http://${project.key}@localhost:9090/${project.alias}`);
    expect(await json('project', 'show', String(project.alias))).toEqual(project);
  });

  it('fails with status 1 when the id or the alias is in use', async () => {
    const id = await idOf();
    const again = await sluice('project', 'create', '--plan', 'Pro', '--id', id);
    expect(again).toEqual({
      status: 1,
      out: '',
      err: `sluice: ${id} is already in use, as a project's id or alias\n`,
    });
    expect((await sluice('project', 'create', '--plan', 'Pro', '--alias', id)).status).toBe(1);
  });

  it.each([
    [['--plan', 'Gold'], 'Allowed choices are Free, Starter, Pro, Business, Scale, Platform'],
    [['--plan', 'Pro', '--rate-limit', '0'], 'an integer from 1 to 100000, or none'],
    [['--plan', 'Pro', '--rate-limit', '100001'], 'an integer from 1 to 100000, or none'],
    [['--plan', 'Pro', '--quota', '-1'], 'an integer from 0 to 9007199254740991, or none'],
    [['--plan', 'Pro', '--quota', '1.5'], 'an integer from 0'],
    [['--plan', 'Pro', '--key', 'a.b'], 'letters, digits, underscores or hyphens'],
    [['--plan', 'Pro', '--id', '007'], 'numeric (up to 19 digits, no leading zero) or a CUID'],
    [['--plan', 'Pro', '--id', '7', '--alias', '7'], 'alias: it must differ from the id'],
    [['--plan', 'Pro', '--alias', CUID], 'An alias is numeric'],
    [['--plan', 'Pro', '--filter', 'spam'], 'browser-extension, localhost, crawler'],
    [['--plan', 'Pro', '--allow-origin', 'ftp://x.com'], '--allow-origin'],
    [['--plan', 'Pro', 'surplus'], 'too many arguments'],
    [['--plan', 'Pro', '--colour', 'red'], "unknown option '--colour'"],
    [[], '--plan'],
  ])('refuses %j as wrong usage, naming what is accepted', async (flags, message) => {
    const ran = await sluice('project', 'create', ...flags);
    expect(ran.err).toContain(message);
    expect(ran).toMatchObject({ status: 2, out: '' });
  });
});

describe('project set', () => {
  it('changes what is named and nothing else; none clears', async () => {
    const id = await idOf('--quota', '5', '--rate-limit', '9');
    const before = await json('project', 'show', id);
    expect(await json('project', 'set', id, '--plan', 'Scale')).toEqual({ ...before, plan: 'Scale' });
    const { quota: _quota, rateLimit: _limit, ...rest } = before;
    const cleared = '--quota none --rate-limit none --filter none --allow-origin none --overage --plan Pro';
    expect(await json('project', 'set', id, ...cleared.split(' '))).toEqual({
      ...rest,
      overage: true,
      filters: [],
    });
    expect((await json('project', 'set', id, '--no-overage')).overage).toBe(false);
  });

  it('replaces the list of origins', async () => {
    const id = await idOf('--allow-origin', 'a.com');
    const set = await json('project', 'set', id, '--allow-origin', 'b.com', '--allow-origin', 'c.com');
    expect(set.allowedOrigins).toEqual(['b.com', 'c.com']);
    expect((await json('project', 'set', id, '--allow-origin', 'none')).allowedOrigins).toEqual([]);
  });

  it('sets and clears limits by category, each for itself', async () => {
    const id = await idOf('--rate-limit-for', 'replays', '100', '--rate-limit-for', 'logs', '7');
    const set = async (...words: string[]): Promise<unknown> =>
      (await json('project', 'set', id, '--rate-limit-for', ...words)).rateLimits;
    expect((await json('project', 'show', id)).rateLimits).toEqual({ replays: 100, logs: 7 });
    expect((await sluice('project', 'show', id)).out).toContain('logs 7, replays 100 a minute');
    expect(await set('replays', '5', 'errors', '9')).toEqual({ replays: 5, logs: 7, errors: 9 });
    expect(await set('replays', 'none')).toEqual({ logs: 7, errors: 9 });
    expect(await set('logs', 'none', 'errors', 'none')).toBeUndefined();
  });

  it.each([
    [['sessions', '5'], 'sessions is none of errors, transactions, spans, logs, replays'],
    [['replays', '0'], 'an integer from 1 to 100000 is needed, or none'],
    [['replays'], 'an integer from 1 to 100000 is needed, or none'],
  ])('refuses --rate-limit-for %s', async (words, reason) => {
    const ran = await sluice('project', 'set', '1', '--rate-limit-for', ...words);
    expect(ran).toMatchObject({ status: 2, out: '', err: expect.stringContaining(reason) });
  });

  it('wants at least one field', async () => {
    expect(await sluice('project', 'set', '1')).toMatchObject({ status: 2, out: '' });
  });
});

describe('what a project wants to have removed', () => {
  it('is printed where there is anything', async () => {
    const id = await idOf('--scrub', 'default');
    expect((await json('project', 'show', id)).scrub).toEqual(['emails', 'cards', 'ips', 'user-ip', 'keys']);
    const set = await json(
      'project',
      'set',
      id,
      '--scrub',
      'emails,cards',
      '--scrub-keys',
      'ssn, birth date',
      '--fill-ip',
    );
    expect(set).toMatchObject({ scrub: ['emails', 'cards'], scrubKeys: ['ssn', 'birth date'], fillIp: true });
    expect((await sluice('project', 'show', id)).out).toMatch(
      /\nscrub +emails, cards, key ssn, key birth date\nfill ip +yes\n$/,
    );
    const off = await json('project', 'set', id, '--scrub', 'none', '--scrub-keys', 'none', '--no-fill-ip');
    expect(Object.keys(off).filter((field) => /scrub|fill/i.test(field))).toEqual([]);
  });

  it.each([
    [
      ['--scrub', 'mails'],
      'It is default, none, or a comma-separated list of emails, cards, ips, user-ip, keys.',
    ],
    [['--scrub-keys', '--,x'], 'scrubKeys.0: a name has letters or digits'],
    [['--scrub', 'ips', '--fill-ip'], 'fillIp: what is filled in would be removed'],
    [['--scrub', 'user-ip', '--fill-ip'], 'fillIp: what is filled in would be removed'],
  ])('is refused as wrong usage: %j', async (flags, message) => {
    const ran = await sluice('project', 'create', '--plan', 'Pro', ...flags);
    expect(ran.err).toContain(message);
    expect(ran).toMatchObject({ status: 2, out: '' });
  });
});

describe('project list, rotate-key and delete', () => {
  it('lists what create made, as JSON and as a table', async () => {
    const id = await idOf('--quota', '5');
    const list = (await json('project', 'list')) as unknown as { id: string }[];
    expect(list.map((project) => project.id)).toContain(id);
    const { out } = await sluice('project', 'list');
    expect(out.split('\n')[0]).toMatch(/^ID +STATE +PLAN +\/ MIN +QUOTA +KEYS +NAME$/);
    expect(out).toMatch(new RegExp(`^${id} +enabled +Pro +1K +5 +1$`, 'm'));
  });

  it('lists in 80 columns what is wanted, in the order that is wanted', async () => {
    const long = 'n'.repeat(90);
    const shop = await idOf(
      '--name',
      `Web shop ${long}`,
      '--tags',
      'team:web,eu',
      '--quota',
      '9000000000000000',
      '--overage',
    );
    const app = await idOf('--name', 'App', '--tags', 'eu');
    const off = await idOf('--tags', 'eu');
    await json('project', 'disable', off);
    await json('project', 'create', '--plan', 'Platform', '--id', 'a'.repeat(32), '--name', long);
    const ids = async (...flags: string[]): Promise<string[]> =>
      ((await json('project', 'list', ...flags)) as unknown as { id: string }[]).map((project) => project.id);
    expect(new Set(await ids('--tag', 'eu'))).toEqual(new Set([shop, app, off]));
    expect(await ids('--search', 'WEB SHOP')).toEqual([shop]);
    expect(await ids('--tag', 'eu', '--sort', 'name')).toEqual([app, shop, off]);
    expect(await ids('--tag', 'eu', '--state', 'disabled')).toEqual([off]);
    const { out } = await sluice('project', 'list');
    for (const line of out.split('\n')) expect(line.length, line).toBeLessThanOrEqual(80);
    expect(out).toMatch(/ {2}Web.*…$/m);
    expect((await sluice('project', 'list', '--search', 'nothing of this')).out).toMatch(
      /^None of \d+ projects/,
    );
  });

  it('has a name and tags, which go as they came', async () => {
    const id = await idOf('--name', 'Shop', '--tags', 'eu,eu,team:web');
    expect(await json('project', 'show', id)).toMatchObject({ name: 'Shop', tags: ['eu', 'team:web'] });
    expect((await sluice('project', 'show', id)).out).toMatch(/^name +Shop\ntags +eu, team:web$/m);
    const { out } = await sluice('project', 'export');
    expect(out).toContain('name: Shop\n');
    expect(out).toContain('tags:\n      - eu\n      - team:web\n');
    const cleared = await json('project', 'set', id, '--name', '', '--tags', 'none');
    expect(cleared).not.toHaveProperty('name');
    expect(cleared).not.toHaveProperty('tags');
    expect((await sluice('project', 'set', id, '--tags', 'a b')).err).toContain('tags.0: a tag is');
  });

  it('deletes nothing without --yes where no terminal is there to ask on', async () => {
    const id = await idOf();
    expect(await sluice('project', 'delete', id)).toMatchObject({
      status: 2,
      err: expect.stringContaining('--yes'),
    });
    expect((await json('project', 'show', id)).id).toBe(id);
    const { out } = await sluice('project', 'delete', id, '--yes', '--keep-usage');
    expect(out).toMatch(new RegExp(`^Deleted, its usage stays; what it sent stays:\nid +${id}$`, 'm'));
  });

  it('says that the host of a DSN is a guess, and does not where it was told', async () => {
    const id = await idOf();
    expect((await sluice('project', 'show', id)).out).toContain('guess: set SLUICE_PUBLIC_URL');
    const told = await sluiceWith({ SLUICE_PUBLIC_URL: 'https://in.example' }, 'project', 'show', id);
    expect(told.out).toMatch(/^dsn +https:\/\/\w+@in\.example\/\d+\nplan/m);
    const key = await sluice('project', 'keys', 'add', id, '--label', 'iOS');
    expect(key.out).toMatch(/^dsn .*\n +\(its host is a guess: set SLUICE_PUBLIC_URL/m);
    const heartbeat = await sluice('heartbeat', 'create');
    expect(heartbeat.out).toMatch(/^url .*\n +\(its host is a guess/m);
    expect((await sluice('heartbeat', 'list')).out).toMatch(/\n\(its host is a guess/);
  });

  it('says beside JSON, on standard error, that the host of its DSNs is a guess', async () => {
    const id = await idOf();
    const printing = [
      ['project', 'show', id],
      ['project', 'list'],
      ['project', 'rotate-key', id],
      ['project', 'keys', 'add', id],
      ['project', 'keys', 'list', id],
      ['heartbeat', 'create'],
      ['heartbeat', 'list'],
    ];
    for (const args of printing) {
      const ran = await sluice(...args, '--json');
      expect(ran, args.join(' ')).toMatchObject({
        status: 0,
        err: 'sluice: The host in these URLs is a guess: set SLUICE_PUBLIC_URL to what clients reach\n',
      });
      expect(JSON.parse(ran.out)).toBeTruthy();
    }
    const without = await sluice('project', 'history', id, '--json');
    expect(without).toMatchObject({ status: 0, err: '' });
  });

  it('speaks of values in words of its own', async () => {
    const { err } = await sluice('project', 'set', await idOf(), '--scrub-keys', ',');
    expect(err).toContain('a name has letters');
    expect((await sluice('project', 'set', await idOf(), '--name', 'n'.repeat(101))).err).toBe(
      'sluice: name: it is at most 100 characters\n',
    );
  });

  it('deletes, after which the project is unknown', async () => {
    const id = await idOf();
    expect((await json('project', 'delete', id, '--keep-usage', '--yes')).id).toBe(id);
    for (const words of [['show'], ['delete', '--yes'], ['rotate-key']])
      expect(await sluice('project', ...words, id)).toEqual({
        status: 1,
        out: '',
        err: `sluice: There is no project ${id}\n`,
      });
  });
});

describe('project history', () => {
  it('prints who changed what, by alias, and by id after the deletion', async () => {
    const { id, alias, key } = await json(
      'project',
      'create',
      '--plan',
      'Pro',
      '--id',
      OTHER_CUID,
      '--alias',
      '5',
    );
    await json('project', 'set', OTHER_CUID, '--plan', 'Scale', '--quota', '5');
    const changes = (await json('project', 'history', String(alias))) as unknown as object[];
    const by = `${userInfo().username}@${hostname()}`;
    const at = expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/);
    expect(changes).toEqual([
      expect.objectContaining({ at, by, project: id, action: 'create' }),
      {
        sequence: expect.any(Number),
        at,
        by,
        project: id,
        action: 'change',
        from: { plan: 'Pro' },
        to: { plan: 'Scale', quota: 5 },
      },
    ]);
    await json('project', 'delete', OTHER_CUID, '--keep-usage', '--yes');
    const { out } = await sluice('project', 'history', OTHER_CUID);
    expect(out.split('\n')[0]).toMatch(/^WHEN +BY +ACTION +FIELDS$/);
    expect(out).toMatch(/ change +plan Pro → Scale, quota none → 5$/m);
    expect(out).toMatch(/ delete +id /);
    expect(`${out}${JSON.stringify(changes)}`).not.toContain(key);
    expect((await sluice('project', 'history', '5')).err).toBe('sluice: There is no project 5\n');
  });

  it('sends a user whose installation has no such stream to setup, and changes nothing', async () => {
    const id = await idOf();
    await (await link.manager()).streams.delete('SLUICE_AUDIT');
    for (const words of [
      ['set', id, '--plan', 'Free'],
      ['rotate-key', id],
      ['history', id],
    ]) {
      const ran = await sluice('project', ...words);
      expect(ran).toMatchObject({ status: 1, out: '' });
      expect(ran.err).toContain('run sluice setup');
    }
    expect((await json('project', 'show', id)).plan).toBe('Pro');
    await makeAudit(link);
  });
});

describe('heartbeat', () => {
  it('creates, lists and deletes tokens', async () => {
    const { token, url } = await json('heartbeat', 'create');
    expect(token).toMatch(/^[0-9a-f]{32}$/);
    expect(url).toBe(`http://localhost:9090/heartbeat/${token}`);
    const list = (await json('heartbeat', 'list')) as unknown as { token: string }[];
    expect(list).toContainEqual({ token, url, createdAt: expect.stringMatching(/^\d{4}-.*Z$/) });
    expect(await sluice('heartbeat', 'delete', String(token))).toMatchObject({ status: 0 });
    expect(await sluice('heartbeat', 'delete', String(token))).toEqual({
      status: 1,
      out: '',
      err: `sluice: There is no heartbeat token ${token}\n`,
    });
  });
});

describe('every command', () => {
  it('says in one sentence that NATS is away', async () => {
    const env = { SLUICE_NATS_URL: 'nats://127.0.0.1:1', SLUICE_REDIS_URL: 'redis://127.0.0.1:1' };
    const ran = await runCommand(['project', 'list'], env);
    expect(ran).toMatchObject({ status: 1, out: '' });
    expect(ran.err).toMatch(
      /^sluice: NATS cannot be reached at nats:\/\/127\.0\.0\.1:1 \(SLUICE_NATS_URL\): .*\n$/,
    );
  });

  it('sends a user of a bare NATS to setup', async () => {
    const bare = await natsServer();
    const env = { SLUICE_NATS_URL: bare.url, SLUICE_REDIS_URL: 'redis://127.0.0.1:1' };
    const ran = await runCommand(['project', 'create', '--plan', 'Pro'], env);
    await bare.close();
    expect(ran).toMatchObject({ status: 1, out: '' });
    expect(ran.err).toContain('run sluice setup');
  });

  it('names every wrong setting', async () => {
    const ran = await runCommand(['project', 'list'], { SLUICE_PORT: 'x', SLUICE_COLOUR: 'red' });
    expect(ran.status).toBe(2);
    expect(ran.err).toContain('SLUICE_PORT must be an integer');
    expect(ran.err).toContain('SLUICE_COLOUR is not a setting');
  });
});
