/** Who may ask the admin port what: by its address, its tokens, and what a browser sends along. */
import { once } from 'node:events';
import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { AdminTokens } from '../../../src/management/api/tokens.ts';
import { readHistory } from '../../../src/projects/audit-log.ts';
import { link as connect, log, makeBuckets, type NatsLink } from '../../projects/broker.ts';
import { natsServer, type TestServer } from '../../support/servers.ts';
import { type AdminPort, connectionsTo, openAdminPort } from '../admin-port.ts';

let nats: TestServer;
let link: NatsLink;
let connections: ReturnType<typeof connectionsTo>;
const admins: AdminPort[] = [];
const dir = mkdtempSync(join(tmpdir(), 'sluice-access-'));
const file = join(dir, 'tokens');
beforeAll(async () => {
  nats = await natsServer();
  link = await connect(nats.url);
  await makeBuckets(link);
  connections = connectionsTo(nats.url);
});
afterEach(async () => {
  for (const admin of admins.splice(0)) await admin.stop();
});
afterAll(async () => {
  await connections?.close();
  await link?.close();
  await nats?.close();
  rmSync(dir, { recursive: true, force: true });
});

/** @returns its port at 127.0.0.1 */
async function open(options: Parameters<typeof openAdminPort>[0]): Promise<number> {
  const admin = await openAdminPort({ connections, ...options });
  admins.push(admin);
  return admin.port;
}

type Asked = { method?: string; headers?: Record<string, string>; body?: string };
type Answer = { status: number; body: string; headers: NodeJS.Dict<string | string[]> };
/** `fetch` would not send another Host. */
const ask = (
  port: number,
  path: string,
  { method = 'GET', headers = {}, body }: Asked = {},
): Promise<Answer> =>
  new Promise((resolve, reject) => {
    const req = request({ host: '127.0.0.1', port, path, method, headers, agent: false }, (res) => {
      let text = '';
      res.on('data', (data: Buffer) => {
        text += data;
      });
      res.on('end', () => resolve({ status: res.statusCode ?? 0, body: text, headers: res.headers }));
    });
    req.on('error', reject);
    req.end(body);
  });
const bearer = (token: string) => ({ headers: { Authorization: `Bearer ${token}` } });
const statuses = async (port: number, paths: string[], asked?: Asked): Promise<number[]> =>
  Promise.all(paths.map(async (path) => (await ask(port, path, asked)).status));

const OPEN = ['/healthz', '/readyz', '/metrics'];
const GUARDED = ['/v1/projects', '/stats.json', '/'];
const CREATE = { method: 'POST', body: '{"plan":"Pro"}' };
const JSON_TYPE = { 'Content-Type': 'application/json' };

it('serves everything at loopback without a token setting', async () => {
  const port = await open({});
  expect(await statuses(port, [...OPEN, ...GUARDED])).toEqual([200, 200, 200, 200, 200, 200]);
  const made = await ask(port, '/v1/projects', { ...CREATE, headers: JSON_TYPE });
  const [change] = await readHistory(link, String((JSON.parse(made.body) as { id: string }).id));
  expect(change).toMatchObject({ by: 'loopback', action: 'create' });
});

it('serves health and metrics alone at other addresses without a token setting, and says what to set', async () => {
  const port = await open({ host: '0.0.0.0' });
  expect(await statuses(port, OPEN)).toEqual([200, 200, 200]);
  expect(await statuses(port, GUARDED, bearer('guess'))).toEqual([403, 403, 403]);
  const refused = await ask(port, '/v1/projects');
  expect(refused.headers['content-type']).toBe('application/problem+json');
  expect(JSON.parse(refused.body)).toMatchObject({
    status: 403,
    detail: expect.stringMatching(/SLUICE_ADMIN_TOKEN/),
  });
});

it('wants a token for the API and the figures where one is set, and none for the empty page', async () => {
  const port = await open({ host: '0.0.0.0', entries: ['deploy=a-token-of-sixteen', 'another-of-sixteen'] });
  expect(await statuses(port, OPEN)).toEqual([200, 200, 200]);
  expect(await statuses(port, GUARDED)).toEqual([401, 401, 200]);
  for (const token of ['a-token-of-sixteen', 'another-of-sixteen'])
    expect(await statuses(port, GUARDED, bearer(token))).toEqual([200, 200, 200]);
  for (const token of [
    'deploy=a-token-of-sixteen',
    'a-token-of-sixtee',
    'a-token-of-sixteen2',
    'deploy',
    'another-of-sixteen,',
  ])
    expect(await statuses(port, GUARDED, bearer(token))).toEqual([401, 401, 200]);
  expect((await ask(port, '/stats.json')).headers['www-authenticate']).toBe('Bearer realm="sluice"');
});

it('wants a token of the API at loopback too where one is set, and none of the page', async () => {
  const port = await open({ entries: ['a-token-of-sixteen'] });
  expect(await statuses(port, GUARDED)).toEqual([401, 200, 200]);
  expect(await statuses(port, GUARDED, bearer('wrong'))).toEqual([401, 401, 200]);
});

it('names a token without a label by its hash in the audit', async () => {
  const port = await open({ entries: ['b64c2l4dGVlbg==', 'ci=other-token-of-16'] });
  const by = async (token: string): Promise<string | undefined> => {
    const headers = { ...JSON_TYPE, ...bearer(token).headers };
    const { body } = await ask(port, '/v1/projects', { ...CREATE, headers });
    return (await readHistory(link, String((JSON.parse(body) as { id: string }).id)))[0]?.by;
  };
  expect(await by('b64c2l4dGVlbg==')).toMatch(/^token-[0-9a-f]{8}$/);
  expect(await by('other-token-of-16')).toBe('ci');
});

it('reads the file of tokens again when it changes, and opens nothing while it is away', async () => {
  const replace = (text: string): void => {
    writeFileSync(`${file}.new`, text);
    renameSync(`${file}.new`, file);
  };
  replace('# of the team\nfirst-token-of-sixteen\n\nci = \n ops=second-token-of-sixteen \n');
  const port = await open({ host: '0.0.0.0', file });
  const allowed = async (token: string) => (await ask(port, '/v1/projects', bearer(token))).status;
  expect(
    await Promise.all(
      ['first-token-of-sixteen', 'second-token-of-sixteen', 'third-token-of-sixteen'].map(allowed),
    ),
  ).toEqual([200, 200, 401]);
  replace('third-token-of-sixteen\ndeploy=\n');
  expect(await allowed('deploy=')).toBe(401);
  expect(await Promise.all(['first-token-of-sixteen', 'third-token-of-sixteen'].map(allowed))).toEqual([
    401, 200,
  ]);
  rmSync(file);
  expect(await Promise.all(['third-token-of-sixteen', 'first-token-of-sixteen'].map(allowed))).toEqual([
    401, 401,
  ]);
  replace('first-token-of-sixteen\n');
  expect(await allowed('first-token-of-sixteen')).toBe(200);
});

it('refuses a stranger’s name for this machine, and a request across sites', async () => {
  const port = await open({});
  const evil = { headers: { Host: `evil.example:${port}` } };
  expect(await statuses(port, GUARDED, evil)).toEqual([403, 403, 403]);
  expect(await statuses(port, OPEN, evil)).toEqual([200, 200, 200]);
  for (const Host of [
    `localhost:${port}`,
    `127.0.0.1:${port}`,
    `[::1]:${port}`,
    'localhost',
    'sluice.localhost:1',
  ])
    expect(await statuses(port, GUARDED, { headers: { Host } })).toEqual([200, 200, 200]);
  for (const Host of ['localhost.evil.example', '127.0.0.1.evil.example', 'evil-localhost', '[::2]'])
    expect(await statuses(port, GUARDED, { headers: { Host } })).toEqual([403, 403, 403]);
  const create = async (headers: Record<string, string>): Promise<number> =>
    (await ask(port, '/v1/projects', { ...CREATE, headers })).status;
  const Host = `localhost:${port}`;
  expect(await create({ ...JSON_TYPE, Host, Origin: 'https://evil.example' })).toBe(403);
  expect(await create({ ...JSON_TYPE, Host, Origin: `http://localhost:${port + 1}` })).toBe(403);
  expect(await create({ ...JSON_TYPE, Host, Origin: 'null' })).toBe(403);
  expect(await create({ Host, 'Content-Type': 'text/plain' })).toBe(415);
  expect(await create({ Host })).toBe(415);
  expect(await create({ ...JSON_TYPE, Host, Origin: `http://localhost:${port}` })).toBe(201);
});

it('wants no media type beside a token: a browser asks first then', async () => {
  const port = await open({ entries: ['a-token-of-sixteen'] });
  const create = async (headers: Record<string, string>, body: string): Promise<number> =>
    (await ask(port, '/v1/projects', { method: 'POST', body, headers })).status;
  const { headers } = bearer('a-token-of-sixteen');
  expect(await create(headers, '{"plan":"Pro"}')).toBe(201);
  expect(await create(headers, '')).toBe(400);
  expect(await create({ ...headers, 'Content-Type': 'text/plain' }, '{"plan":"Pro"}')).toBe(415);
});

it('refuses a request across sites though it has a token', async () => {
  const port = await open({ entries: ['a-token-of-sixteen'], names: ['admin.example'] });
  const named = { ...JSON_TYPE, ...bearer('a-token-of-sixteen').headers, Host: 'admin.example' };
  const create = async (headers: Record<string, string>): Promise<number> =>
    (await ask(port, '/v1/projects', { ...CREATE, headers })).status;
  expect(await create({ ...named, Origin: 'https://evil.example' })).toBe(403);
  expect(await create({ ...named, Origin: 'https://admin.example' })).toBe(201);
  expect(await statuses(port, GUARDED, { headers: { Host: 'admin.example' } })).toEqual([401, 401, 200]);
});

it('has no API where there is none to serve, as in a processor', async () => {
  const port = await open({ connections: undefined });
  expect(await statuses(port, GUARDED)).toEqual([404, 200, 200]);
  const { status, headers } = await ask(port, '/healthz', { method: 'POST' });
  expect([status, headers.allow]).toEqual([405, 'GET, HEAD']);
});

it('answers HEAD as GET without the body', async () => {
  const port = await open({});
  const got = await ask(port, '/v1/projects');
  const head = await ask(port, '/v1/projects', { method: 'HEAD' });
  expect([head.status, head.body, head.headers['content-length']]).toEqual([
    200,
    '',
    got.headers['content-length'],
  ]);
});

it('a page that fails unforeseen is 500, and the process goes on', async () => {
  const failing = () => Promise.reject(new RangeError('Invalid string length'));
  const port = await open({ metrics: failing, stats: failing });
  const url = `http://127.0.0.1:${port}`;
  for (const path of ['/metrics', '/stats.json']) {
    const answer = await fetch(`${url}${path}`);
    expect([answer.status, await answer.json()]).toMatchObject([500, { detail: 'The log says more.' }]);
  }
  expect((await fetch(`${url}/readyz`)).status).toBe(200);
});

it('stops when what has begun is answered', async () => {
  const port = await open({});
  const [admin] = admins as [AdminPort];
  const begun = once(admin.server, 'request');
  const req = request({ host: '127.0.0.1', port, path: '/v1/projects', method: 'POST', headers: JSON_TYPE });
  const status = new Promise((resolve, reject) => {
    req.on('response', (res) => resolve(res.resume().statusCode));
    req.on('error', reject);
  });
  req.write(CREATE.body.slice(0, 5));
  await begun;
  const stopped = admin.stop();
  req.end(CREATE.body.slice(5));
  expect(await status).toBe(201);
  await stopped;
});

it('refuses the names that a stranger may point at the port, also with a token', async () => {
  const port = await open({ host: '0.0.0.0', entries: ['a-token-of-sixteen'], names: ['admin.example'] });
  const { headers } = bearer('a-token-of-sixteen');
  const under = (Host: string): Promise<number[]> =>
    statuses(port, GUARDED, { headers: { ...headers, Host } });
  for (const Host of [
    `evil.example:${port}`,
    'evil.example',
    'admin.example.evil.example',
    '10.0.0.7.evil.example',
    'localhost.evil',
  ])
    expect(await under(Host), Host).toEqual([403, 403, 403]);
  for (const Host of [
    `localhost:${port}`,
    '127.0.0.1',
    `10.0.0.7:${port}`,
    `[fd00::7]:${port}`,
    `Admin.Example:${port}`,
  ])
    expect(await under(Host), Host).toEqual([200, 200, 200]);
  const evil = { ...JSON_TYPE, ...headers, Host: 'evil.example', Origin: 'http://evil.example' };
  expect((await ask(port, '/v1/projects', { ...CREATE, headers: evil })).status).toBe(403);
  // Probes and scrapers come under names that nobody lists.
  expect(await statuses(port, OPEN, { headers: { Host: 'sluice-ingest.monitored.svc' } })).toEqual([
    200, 200, 200,
  ]);
});

it('counts wrong tokens, and takes none of fewer than 16 characters from a file', () => {
  writeFileSync(file, 'short\nci=fifteen-chars-x\nsixteen-chars-xx\n');
  const tokens = new AdminTokens({ entries: [], file, log });
  expect(
    ['short', 'fifteen-chars-x', 'sixteen-chars-xx'].map((token) => tokens.holderOf(token) !== undefined),
  ).toEqual([false, false, true]);
  expect(tokens.refused).toBe(2);
});

it('lets a viewer look, and change nothing', async () => {
  const port = await open({
    entries: ['deploy=a-token-of-sixteen'],
    viewers: ['support=a-token-of-viewers'],
  });
  const viewer = { Authorization: 'Bearer a-token-of-viewers' };
  const list = await ask(port, '/v1/projects', { headers: viewer });
  expect([list.status, list.headers['x-sluice-role']]).toEqual([200, 'viewer']);
  expect(await statuses(port, GUARDED, { headers: viewer })).toEqual([200, 200, 200]);
  const made = await ask(port, '/v1/projects', {
    ...CREATE,
    headers: { ...JSON_TYPE, Authorization: 'Bearer a-token-of-sixteen' },
  });
  expect([made.status, made.headers['x-sluice-role']]).toEqual([201, 'editor']);
  const { id } = JSON.parse(made.body) as { id: string };
  for (const [method, path] of [
    ['POST', '/v1/projects'],
    ['PUT', `/v1/projects/${id}`],
    ['PATCH', `/v1/projects/${id}`],
    ['DELETE', `/v1/projects/${id}`],
    ['POST', `/v1/projects/${id}/keys`],
    ['POST', `/v1/projects/${id}/rotate-key`],
    ['POST', '/v1/heartbeats'],
    ['DELETE', `/v1/dead-letters/${'0'.repeat(32)}`],
  ]) {
    const refused = await ask(port, `${path}`, {
      method: `${method}`,
      headers: { ...JSON_TYPE, ...viewer },
      ...(method !== 'DELETE' && { body: '{}' }),
    });
    expect(refused.status, `${method} ${path}`).toBe(403);
    expect(JSON.parse(refused.body).detail).toContain('SLUICE_VIEWER_TOKEN');
  }
  expect((await readHistory(link, id)).map(({ action }) => action)).toEqual(['create']);
});

it('is closed to guests where viewers alone have a token', async () => {
  const port = await open({ viewers: ['a-token-of-viewers'] });
  expect(await statuses(port, ['/v1/projects'])).toEqual([401]);
});
