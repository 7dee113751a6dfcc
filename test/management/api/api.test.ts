/** What the management API answers where the registry is in an unusual state. Served by this process. */
import { Kvm } from '@nats-io/kv';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ApiOperations } from '../../../src/management/api-client.ts';
import { ProjectStore } from '../../../src/projects/project-store.ts';
import { link as connect, makeBuckets, type NatsLink } from '../../projects/broker.ts';
import { natsServer, type TestServer } from '../../support/servers.ts';
import { type AdminPort, connectionsTo, openAdminPort } from '../admin-port.ts';

let nats: TestServer;
let link: NatsLink;
let connections: ReturnType<typeof connectionsTo>;
let store: ProjectStore;
let admin: AdminPort;
let url: string;
beforeAll(async () => {
  nats = await natsServer();
  link = await connect(nats.url);
  await makeBuckets(link);
  store = await ProjectStore.open(link);
  connections = connectionsTo(nats.url);
  admin = await openAdminPort({ connections });
  ({ url } = admin);
});
afterAll(async () => {
  await admin?.stop();
  await connections?.close();
  await link?.close();
  await nats?.close();
});

const plain = { plan: 'Pro' as const, overage: false, filters: [], allowedOrigins: [] };
const remove = (id: string, headers = {}): Promise<Response> =>
  fetch(`${url}/v1/projects/${id}?keepUsage=true`, { method: 'DELETE', headers });

it('pages the history of a deleted project to its end, and knows none of another', async () => {
  const { id } = await store.create({ ...plain, id: '5' });
  await store.delete(id);
  const actions: string[] = [];
  let next: string | undefined = `/v1/projects/${id}/history?limit=1`;
  while (next !== undefined) {
    const answer: Response = await fetch(`${url}${next}`);
    expect(answer.status).toBe(200);
    actions.push(...((await answer.json()) as { action: string }[]).map(({ action }) => action));
    next = /^<(.+)>; rel="next"$/.exec(answer.headers.get('link') ?? '')?.[1];
  }
  expect(actions).toEqual(['create', 'delete']);
  for (const after of ['', '&after=5'])
    expect((await fetch(`${url}/v1/projects/404/history?limit=1${after}`)).status).toBe(404);
});

it.each(['spam', '__proto__'])('refuses a limit of a category with the name %s', async (name) => {
  const { id } = await store.create({ ...plain, id: '7' });
  const rateLimits = JSON.parse(`{"errors":5,"${name}":1}`) as object;
  for (const [method, path, fields] of [
    ['POST', '', { plan: 'Pro', id: '8' }],
    ['PUT', `/${id}`, plain],
    ['PATCH', `/${id}`, {}],
  ] as const) {
    const answer = await fetch(`${url}/v1/projects${path}`, {
      method,
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ ...fields, rateLimits }),
    });
    expect([method, answer.status]).toEqual([method, 400]);
    expect(await answer.text()).toContain(`"rateLimits.${name}"`);
  }
  expect(await store.get(id)).not.toHaveProperty('rateLimits');
  await store.delete(id);
});

it('answers 412 for a deletion with the tag of a record that is gone', async () => {
  const { id } = await store.create({ ...plain, id: '5' });
  const { revision } = await store.find(id);
  const headers = { 'If-Match': `"${revision}"` };
  expect((await remove(id, headers)).status).toBe(200);
  expect((await remove(id, headers)).status).toBe(412);
  expect((await remove(id)).status).toBe(404);
});

it('answers 500 in place of a list that lacks a project, and names it', async () => {
  const bucket = await new Kvm(link.js).open('sluice_projects');
  await bucket.put('7', 'spoiled');
  const answer = await fetch(`${url}/v1/projects`);
  expect([answer.status, await answer.json()]).toMatchObject([
    500,
    {
      type: 'urn:sluice:problem:failed',
      detail: 'Records of projects cannot be read: 7 (not JSON).',
    },
  ]);
  const operations = new ApiOperations(url, undefined);
  await expect(operations.listProjects()).rejects.toThrow('Records of projects cannot be read: 7 (not JSON)');
});

describe('edits of one record from many sides', () => {
  const SIDES = 24;
  const patch = (id: string, quota: number, headers = {}): Promise<Response> =>
    fetch(`${url}/v1/projects/${id}`, {
      method: 'PATCH',
      headers: { 'Content-Type': 'application/json', ...headers },
      body: JSON.stringify({ quota }),
    });
  const atOnce = async (ask: (n: number) => Promise<Response>): Promise<number[]> =>
    (await Promise.all(Array.from({ length: SIDES }, (_, n) => ask(n)))).map(({ status }) => status);

  it('change it once for one tag, and the record is the winner’s', async () => {
    const { id } = await store.create({ ...plain, id: '11' });
    const { revision } = await store.find(id);
    const statuses = await atOnce((n) => patch(id, 1000 + n, { 'If-Match': `"${revision}"` }));
    expect(statuses.filter((status) => status === 200)).toHaveLength(1);
    expect(statuses.filter((status) => status === 412)).toHaveLength(SIDES - 1);
    expect(await store.get(id)).toMatchObject({ quota: 1000 + statuses.indexOf(200) });
  });

  it('lose nothing without a tag: each key that was answered 201 is there', async () => {
    const { id } = await store.create({ ...plain, id: '12' });
    const path = `${url}/v1/projects/${id}/keys`;
    const headers = { 'Content-Type': 'application/json' };
    const statuses = await atOnce((n) =>
      fetch(path, { method: 'POST', headers, body: JSON.stringify({ label: `key ${n}` }) }),
    );
    // One that met the others twelve times is told to come again.
    expect(statuses.filter((status) => status !== 201 && status !== 409)).toEqual([]);
    const keys = (await (await fetch(path)).json()) as object[];
    expect(keys).toHaveLength(1 + statuses.filter((status) => status === 201).length);
  });
});
