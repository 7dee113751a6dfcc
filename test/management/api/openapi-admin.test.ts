/**
 * docs/openapi-admin.yaml and the running server say the same. What the document allows is taken, what it forbids is
 * refused by the field's name, every documented answer is given, and every answer fits its schema.
 */
import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { SEEN_TYPES } from '../../../src/management/operations.ts';
import { decodeFrame } from '../../../src/stream/frame.ts';
import {
  type Answered,
  answered,
  matches,
  OpenApi,
  type Operation,
  type Schema,
} from '../../deploy/openapi-document.ts';
import { makeAudit } from '../../projects/broker.ts';
import { errorEvent, eventId } from '../../support/envelopes.ts';
import { fileLetter as letterIn } from '../../support/letters.ts';
import { rounds } from '../../support/rounds.ts';
import { type Project, System, until } from '../../support/system.ts';
import { allowed, forbidden, forbiddenTexts } from './schema-values.ts';

const TOKEN = 'correct-horse-battery';
const PROJECTS = '/v1/projects';
const PROJECT = '/v1/projects/{id}';
const KEYS = '/v1/projects/{id}/keys';
const KEY = '/v1/projects/{id}/keys/{keyId}';
const ROTATE = '/v1/projects/{id}/rotate-key';
const LETTER = '/v1/dead-letters/{id}';
const REPLAY = '/v1/dead-letters/{id}/replay';
const TAIL = '/v1/tail';
const METHODS = ['GET', 'PUT', 'POST', 'PATCH', 'DELETE'];
const BODY_MAX = 256 * 1024;

/** The name of a key in addresses: the beginning of its hash. */
const keyId = (key: string): string => createHash('sha256').update(key).digest('hex').slice(0, 8);

const api = new OpenApi('openapi-admin.yaml');
let system: System;
beforeAll(async () => {
  const env = { SLUICE_ADMIN_TOKEN: `tests=${TOKEN}`, SLUICE_LOG_LEVEL: 'silent' };
  system = await System.start({ processor: false, env });
});
afterAll(() => system?.stop());

type Asked = { url?: string; body?: unknown; headers?: Record<string, string> };

/** Sends, checks against the document, and gives the answer back for what the document cannot say. */
async function ask(method: string, path: string, asked: Asked = {}): Promise<Answered> {
  const answer = await send(method, path, asked);
  expect(api.problems(method, path, answer)).toEqual([]);
  return answer;
}
async function send(method: string, path: string, { url = path, body, headers }: Asked): Promise<Answered> {
  const isChange = method !== 'GET';
  const sent = {
    Authorization: `Bearer ${TOKEN}`,
    ...(isChange && { 'Content-Type': 'application/json' }),
    ...headers,
  };
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  const init = { method, headers: sent, ...(body !== undefined && { body: text }) };
  return answered(await fetch(`${system.adminUrl}${url}`, init));
}
type Json = Record<string, unknown> & { id: string };
const json = ({ body }: Answered): Json => JSON.parse(body) as Json;
const list = ({ body }: Answered): Json[] => JSON.parse(body) as Json[];
const tag = ({ headers }: Answered): string => headers.get('etag') ?? '';
const urlOf = (id: string, rest = ''): string => `${PROJECTS}/${id}${rest}`;
const create = async (fields: object = {}): Promise<Json> =>
  json(await ask('POST', PROJECTS, { body: { plan: 'Pro', ...fields } }));

type Listed = { key: string; id?: string; dsn?: string };
const areDistinct = (keys: readonly Listed[]): boolean =>
  new Set(keys.map(({ key }) => key)).size === keys.length;
const given = (fields: object): Record<string, unknown> =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null));

const bodyOf = ({ requestBody }: Operation): Schema | undefined =>
  requestBody?.content['application/json']?.schema;
const named = (path: string, name = 'unknown'): string => path.replaceAll(/\{\w+\}/g, name);

const fileLetter = (frameId: string): Promise<string> => letterIn(system.link, frameId);

/** Without what says the same as its absence. */
const said = ({
  tags,
  scrub,
  scrubKeys,
  fillIp,
  ...fields
}: Record<string, unknown>): Record<string, unknown> => ({
  ...fields,
  ...([tags].flat().some(Boolean) && { tags }),
  ...([scrub].flat().some(Boolean) && { scrub }),
  ...([scrubKeys].flat().some(Boolean) && { scrubKeys }),
  ...(fillIp === true && { fillIp }),
});

it('takes whatever project the document allows, and gives it back', async () => {
  const schema = bodyOf(api.document.paths[PROJECTS]?.post as Operation) as Schema;
  const names = (project: Record<string, unknown>) => [project.id, project.alias].filter(Boolean);
  // Short names would meet those of other projects.
  const good = (allowed(schema) as fc.Arbitrary<Record<string, unknown> & { keys?: Listed[] }>).filter(
    (project) => names(project).every((name) => `${name}`.length > 12) && areDistinct(project.keys ?? []),
  );
  await fc.assert(
    fc.asyncProperty(good, async ({ dsn: _dsn, revision: _r, key, keys, rateLimits = {}, ...sent }) => {
      const wanted = said(sent);
      const all = keys?.map(({ id: _id, dsn: _own, ...one }) => ({ enabled: true, ...one }));
      const limits = Object.keys(rateLimits as object).length > 0 && { rateLimits };
      const own = keys ? { keys } : { ...(key !== undefined && { key }) };
      const body = { ...sent, ...own, rateLimits, dsn: 'says nothing', revision: 1 };
      const made = await ask('POST', PROJECTS, { body });
      expect([made.status, made.body]).toEqual([201, expect.anything()]);
      expect(json(made)).toMatchObject({ ...wanted, ...limits, ...(all ? { keys: all } : own) });
      expect(json(made).rateLimits).toEqual(limits ? rateLimits : undefined);
      const { id } = json(made);
      expect(made.headers.get('location')).toBe(urlOf(id));
      const read = await ask('GET', PROJECT, { url: urlOf(id) });
      expect([json(read), tag(read)]).toEqual([json(made), tag(made)]);
      const put = await ask('PUT', PROJECT, { url: urlOf(id), body: json(read) });
      expect([put.status, json(put), tag(put)]).toEqual([200, json(made), tag(made)]);
    }),
    { numRuns: rounds(25, 8) },
  );
});

it('takes whatever change the document allows', async () => {
  const { id } = await create({ quota: 7 });
  const schema = bodyOf(api.document.paths[PROJECT]?.patch as Operation) as Schema;
  const good = (allowed(schema) as fc.Arbitrary<Record<string, unknown>>).filter(
    // A key that was replaced is not taken back: short ones would come twice.
    ({ alias, key }) => `${alias ?? 'a long name'}`.length > 10 && `${key ?? 'a long one'}`.length > 8,
  );
  await fc.assert(
    fc.asyncProperty(good, async (changes) => {
      const { key: text, ...before } = json(await ask('GET', PROJECT, { url: urlOf(id) }));
      const changed = await ask('PATCH', PROJECT, { url: urlOf(id), body: changes });
      expect(changed.status).toBe(200);
      const { key = text, rateLimits = {}, ...rest } = changes;
      const limits = given({
        ...(changes.rateLimits !== null && (before.rateLimits as object)),
        ...(rateLimits as object),
      });
      const { alias = before.id } = { ...before, ...rest };
      const dsn = `http://${key}@localhost:${system.port}/${alias}`;
      const { rateLimits: _before, ...fields } = said(given({ ...before, ...rest }));
      expect(json(changed)).toEqual({
        ...fields,
        key,
        dsn,
        ...(Object.keys(limits).length > 0 && { rateLimits: limits }),
        keys: [{ id: keyId(`${key}`), key, enabled: true, dsn }],
      });
    }),
    { numRuns: rounds(25, 8) },
  );
});

/** All of them take a thousand requests. */
const someOf = <T>(values: readonly T[]): readonly T[] =>
  rounds(values, [...values].sort(() => Math.random() - 0.5).slice(0, 3));

it('refuses each field of a body that the document forbids, by its name', async () => {
  const { id } = await create();
  for (const { path, method, operation } of api.operations) {
    const schema = bodyOf(operation) as { properties: Record<string, Schema>; required?: string[] };
    if (!schema) continue;
    const url = named(path, id);
    const base = schema.required?.includes('plan') ? { plan: 'Pro' } : {};
    const refuses = async (field: string, value: unknown): Promise<void> => {
      const answer = await ask(method, path, { url, body: { ...base, [field]: value } });
      const { errors } = json(answer) as unknown as { errors: { field: string }[] };
      const fields = new Set(errors.map((error) => error.field.split('.')[0]));
      expect([answer.status, ...fields], `${method} ${path} ${JSON.stringify(value)}`).toEqual([400, field]);
    };
    for (const [field, inner] of Object.entries(schema.properties))
      for (const value of someOf(forbidden(inner))) await refuses(field, value);
    await refuses('colour', 'red');
    for (const field of schema.required ?? []) {
      const answer = await ask(method, path, { url, body: {} });
      expect(json(answer).errors).toEqual([{ field, detail: expect.any(String) }]);
    }
    for (const body of ['', '[]', '7', 'null', '{"plan":', '"plan"'].slice(schema.required ? 0 : 1))
      expect((await ask(method, path, { url, body })).status, `${method} ${path} ${body}`).toBe(400);
  }
  expect(json(await ask('GET', PROJECT, { url: urlOf(id) }))).not.toHaveProperty('colour');
});

it('refuses each parameter of a query that the document forbids, by its name', async () => {
  const { id } = await create();
  let refused = 0;
  for (const { path, method, operation } of api.operations) {
    const parameters = [...(operation.parameters ?? [])].filter((one) => one.in === 'query');
    const wrong = parameters.flatMap(({ name, schema }) =>
      forbiddenTexts(schema).map((text) => [name, text]),
    );
    if (parameters.length > 0) wrong.push(['colour', 'red']);
    for (const [name = '', text = ''] of wrong) {
      const query = new URLSearchParams({ [name]: text });
      const answer = await ask(method, path, { url: `${named(path, id)}?${query}` });
      expect([answer.status, json(answer).errors]).toMatchObject([400, [{ field: name }]]);
      refused++;
    }
    const [first] = parameters;
    if (!first) continue;
    const twice = `${named(path, id)}?${first.name}=1&${first.name}=1`;
    expect((await ask(method, path, { url: twice })).status).toBe(400);
  }
  expect(refused).toBeGreaterThan(30);
});

it('wants a token, JSON and not too much of it', async () => {
  for (const { path, method, operation } of api.operations) {
    const url = named(path);
    const headers = { Authorization: 'Bearer wrong' };
    const refused = await ask(method, path, { url, headers });
    expect([refused.status, refused.headers.get('www-authenticate')]).toEqual([
      401,
      'Bearer realm="sluice", error="invalid_token"',
    ]);
    if (!bodyOf(operation)) continue;
    const body = JSON.stringify({ key: 'x'.repeat(BODY_MAX) });
    expect((await ask(method, path, { url, body })).status).toBe(413);
    const text = { 'Content-Type': 'text/plain' };
    expect((await ask(method, path, { url, body: '{"plan":"Pro"}', headers: text })).status).toBe(415);
  }
  expect((await ask('GET', PROJECTS, { headers: { Authorization: '' } })).status).toBe(401);
  expect((await ask('GET', PROJECTS, { headers: { Authorization: TOKEN } })).status).toBe(401);
});

it('knows no other name, path and method', async () => {
  for (const { path, method, operation } of api.operations) {
    if (!operation.responses['404']) continue;
    const name = path.startsWith(LETTER) ? '0'.repeat(32) : '999999999999';
    expect(
      (await ask(method, path, { url: named(path, name), body: method === 'GET' ? undefined : {} })).status,
    ).toBe(404);
  }
  const problem = (api.document.components.schemas as Record<string, Schema>).Problem as Schema;
  for (const path of Object.keys(api.document.paths)) {
    const known = api.operations.filter((one) => one.path === path).map(({ method }) => method);
    for (const method of METHODS.filter((one) => !known.includes(one))) {
      const answer = await send(method, path, { url: named(path) });
      expect([answer.status, answer.headers.get('content-type')]).toEqual([405, 'application/problem+json']);
      expect(matches(problem, JSON.parse(answer.body))).toBe(true);
      const allow = answer.headers
        .get('allow')
        ?.split(', ')
        .filter((one) => one !== 'HEAD');
      expect(allow?.sort()).toEqual([...known].sort());
    }
  }
  for (const url of [
    '/v1',
    '/v1/',
    '/v1/projects/',
    '/v1/projects/a.b',
    '/v1/projects/1/keys/2/3',
    '/v2/projects',
  ])
    expect((await send('GET', url, {})).status, url).toBe(404);
});

it('answers whatever is made of the document as the document says', async () => {
  const { id, keys = [] } = (await create()) as Json & { keys?: Json[] };
  const anyName = fc.oneof(fc.constantFrom(id, `${keys[0]?.id}`), fc.stringMatching(/^[A-Za-z0-9_-]{1,64}$/));
  const anyTag = fc.oneof(
    fc.constantFrom('*', '"1"', 'W/"1"', '"1", "2"'),
    fc.stringMatching(/^[!-~]{1,20}$/),
  );
  const anyText = fc.oneof(fc.nat().map(String), fc.string({ maxLength: 30 }));
  const numRuns = rounds(100, 8);
  let cases = 0;
  for (const { path, method, operation } of api.operations) {
    const schema = bodyOf(operation);
    const names = (operation.parameters ?? []).filter((one) => one.in === 'query').map(({ name }) => name);
    const request = fc.record(
      {
        name: anyName,
        key: anyName,
        tag: anyTag,
        body: schema ? allowed(schema, true) : fc.constant(undefined),
        query: fc.option(fc.dictionary(fc.constantFrom('colour', ...names), anyText, { maxKeys: 2 })),
      },
      { requiredKeys: ['name', 'key'] },
    );
    await fc.assert(
      fc.asyncProperty(request, async ({ name, key, tag, body, query }) => {
        const url = path.replace('{id}', name).replace(/\{\w+\}/, key);
        const headers: Record<string, string> =
          tag === undefined || method === 'GET' ? {} : { 'If-Match': tag };
        const asked = { url: `${url}?${new URLSearchParams(query ?? {})}`, headers, ...(schema && { body }) };
        const answer = await ask(method, path, asked);
        expect([400, 404, 409, 412].includes(answer.status) || answer.status < 300, answer.body).toBe(true);
        cases++;
      }),
      { numRuns },
    );
  }
  expect(cases).toBeGreaterThan(20 * numRuns);
});

it('says that a date exists or is refused, that loopback needs no token, and which tags match', async () => {
  const { id } = await create();
  for (const [expires, status] of [
    ['2127-02-28T00:00:00Z', 201],
    ['2127-02-31T00:00:00Z', 400],
    ['2127-13-01T00:00:00Z', 400],
  ] as const)
    expect((await ask('POST', KEYS, { url: urlOf(id, '/keys'), body: { expires } })).status).toBe(status);
  const { security } = api.document as unknown as { security: object[] };
  expect(security).toContainEqual({});
});

it('changes only the revision that If-Match names', async () => {
  const made = await ask('POST', PROJECTS, { body: { plan: 'Pro' } });
  const url = urlOf(json(made).id);
  const body = { plan: 'Scale' };
  const first = tag(made);
  const changed = await ask('PATCH', PROJECT, { url, body, headers: { 'If-Match': first } });
  expect(tag(changed)).not.toBe(first);
  for (const match of [first, '"x"', `W/${tag(changed)}`, `${tag(changed)}, "1"`]) {
    const headers = { 'If-Match': match };
    expect((await ask('PATCH', PROJECT, { url, body: { plan: 'Free' }, headers })).status).toBe(412);
    expect((await ask('PUT', PROJECT, { url, body: { plan: 'Free' }, headers })).status).toBe(412);
    expect((await ask('DELETE', PROJECT, { url, headers })).status).toBe(412);
  }
  expect(json(await ask('GET', PROJECT, { url }))).toMatchObject(body);
  const any = { 'If-Match': '*' };
  expect((await ask('PATCH', PROJECT, { url, body: { plan: 'Free' }, headers: any })).status).toBe(200);
  const missing = { url: urlOf('999999999999'), body, headers: any };
  expect((await ask('PUT', PROJECT, missing)).status).toBe(412);
});

it('adds, changes and removes keys', async () => {
  const made = await ask('POST', PROJECTS, { body: { plan: 'Pro', key: 'old' } });
  const { id } = json(made);
  const old = { id: keyId('old'), key: 'old', enabled: true, dsn: json(made).dsn };
  const url = urlOf(id, '/keys');
  expect(list(await ask('GET', KEYS, { url }))).toEqual([old]);
  const only = { url: `${url}/${old.id}` };
  expect((await ask('DELETE', KEY, only)).status).toBe(409);

  const wanted = { key: 'n-e-w', label: 'iOS 4', expires: '2127-01-31T00:00:00.000Z', rateLimit: 7 };
  const headers = { 'If-Match': tag(made) };
  const added = await ask('POST', KEYS, { url, body: wanted, headers });
  expect([added.status, added.headers.get('location')]).toEqual([201, `${url}/${keyId('n-e-w')}`]);
  const fresh = { url: `${added.headers.get('location')}` };
  expect(json(added)).toEqual({ id: keyId('n-e-w'), ...wanted, enabled: true, dsn: expect.any(String) });
  expect((await ask('POST', KEYS, { url, body: wanted })).status).toBe(409);
  expect((await ask('POST', KEYS, { url, headers })).status).toBe(412);
  const read = await ask('GET', KEY, fresh);
  expect([json(read), tag(read)]).toEqual([json(added), tag(added)]);

  const changes = { label: null, expires: null, rateLimit: null, enabled: false };
  expect((await ask('PATCH', KEY, { ...fresh, body: changes, headers })).status).toBe(412);
  const changed = await ask('PATCH', KEY, { ...fresh, body: changes });
  expect(json(changed)).toEqual({ id: keyId('n-e-w'), key: 'n-e-w', enabled: false, dsn: json(added).dsn });
  const again = await ask('PATCH', KEY, { ...fresh, body: changes });
  expect([json(again), tag(again)]).toEqual([json(changed), tag(changed)]);
  expect(json(await ask('GET', PROJECT, { url: urlOf(id) }))).toMatchObject({
    key: 'old',
    keys: [old, json(changed)],
  });
  expect((await ask('DELETE', KEY, { ...fresh, headers })).status).toBe(412);
  expect(json(await ask('DELETE', KEY, fresh))).toEqual(json(changed));
  expect((await ask('GET', KEY, fresh)).status).toBe(404);
  expect(list(await ask('GET', KEYS, { url }))).toEqual([old]);
  const history = await ask('GET', `${PROJECT}/history`, { url: urlOf(id, '/history') });
  expect(list(history).map(({ action }) => action)).toEqual(['create', 'change', 'change', 'change']);
  expect(history.body).not.toContain('n-e-w');
});

it('takes whatever key and change of a key the document allows', async () => {
  const { id } = await create({ key: 'stays' });
  const url = urlOf(id, '/keys');
  const fields = (path: string, method: string) => {
    const { operation } = api.operations.find((one) => one.path === path && one.method === method) ?? {};
    return allowed(bodyOf(operation as Operation) as Schema) as fc.Arbitrary<Record<string, unknown>>;
  };
  // A key that was removed is not taken back.
  const used = new Set<unknown>(['stays']);
  await fc.assert(
    fc.asyncProperty(fields(KEYS, 'POST'), fields(KEY, 'PATCH'), async (wanted, changes) => {
      fc.pre(!used.has(wanted.key));
      if (wanted.key !== undefined) used.add(wanted.key);
      const added = await ask('POST', KEYS, { url, body: wanted });
      expect([added.status, json(added)]).toMatchObject([201, { enabled: true, ...wanted }]);
      const own = { url: `${url}/${json(added).id}` };
      const changed = await ask('PATCH', KEY, { ...own, body: changes });
      expect(json(changed)).toEqual(given({ ...json(added), ...changes }));
      expect((await ask('DELETE', KEY, own)).status).toBe(200);
    }),
    { numRuns: rounds(25, 8) },
  );
});

it('rotates keys with and without an overlap, up to a hundred', async () => {
  const { id } = await create({ key: 'old' });
  const url = urlOf(id, '/rotate-key');
  const first = await ask('POST', ROTATE, { url, body: { overlap: 3_600 } });
  const keys = json(first).keys as { key: string; expires?: string }[];
  expect(keys).toMatchObject([{ key: json(first).key }, { key: 'old' }]);
  expect(Math.abs(Date.parse(`${keys[1]?.expires}`) - Date.now() - 3_600_000)).toBeLessThan(60_000);
  expect((await ask('POST', ROTATE, { url, headers: { 'If-Match': '"1"' } })).status).toBe(412);
  expect(json(await ask('POST', ROTATE, { url })).keys).toHaveLength(1);
  const hundred = Array.from({ length: 100 }, (_, at) => ({ key: `k${at}` }));
  await ask('PUT', PROJECT, { url: urlOf(id), body: { plan: 'Pro', keys: hundred } });
  expect((await ask('POST', ROTATE, { url, body: { overlap: 1 } })).status).toBe(409);
  expect((await ask('POST', KEYS, { url: urlOf(id, '/keys') })).status).toBe(409);
});

it('keeps keys that a PUT does not name, and replaces those that it does', async () => {
  const { id, keys } = await create({
    keys: [
      { key: 'a', label: 'A' },
      { key: 'b', enabled: false },
    ],
  });
  const put = async (fields: object): Promise<Json> =>
    json(await ask('PUT', PROJECT, { url: urlOf(id), body: { plan: 'Pro', ...fields } }));
  expect((await put({})).keys).toEqual(keys);
  expect((await put({ key: 'b' })).keys).toEqual(keys);
  const replaced = await put({ key: 'c', enabled: false, rateLimits: { replays: 5 } });
  expect(replaced).toMatchObject({ enabled: false, key: 'c', rateLimits: { replays: 5 } });
  expect(replaced.keys).toMatchObject([{ key: 'c', label: 'A' }, { key: 'b' }]);
  const plain = await put({ keys: [{ key: 'd' }] });
  expect(plain).toMatchObject({ enabled: true, key: 'd', keys: [{ key: 'd', enabled: true }] });
  expect(plain).not.toHaveProperty('rateLimits');
  const foreign = await ask('PUT', PROJECT, {
    url: urlOf(id),
    body: { plan: 'Pro', key: 'x', keys: [{ key: 'y' }] },
  });
  expect(json(foreign).errors).toEqual([{ field: 'key', detail: 'it is none of keys' }]);
});

it('puts a project once or again, and creates only with If-None-Match', async () => {
  const url = urlOf('4400000001');
  const body = { plan: 'Pro', quota: 5, rateLimit: 7 };
  const headers = { 'If-None-Match': '*' };
  const made = await ask('PUT', PROJECT, { url, body, headers });
  expect(made.status).toBe(201);
  expect((await ask('PUT', PROJECT, { url, body, headers })).status).toBe(412);
  const again = await ask('PUT', PROJECT, { url, body });
  expect([again.status, json(again), tag(again)]).toEqual([200, json(made), tag(made)]);
  const { quota: _quota, ...rest } = json(made);
  const without = await ask('PUT', PROJECT, { url, body: { plan: 'Pro', rateLimit: 7 } });
  expect(json(without)).toEqual(rest);
  expect(list(await ask('GET', `${PROJECT}/history`, { url: `${url}/history` }))).toMatchObject([
    { action: 'create', by: 'tests' },
    { action: 'change', by: 'tests', from: { quota: 5 }, to: {} },
  ]);
});

it('takes limits by category in any order, and clears them one by one', async () => {
  const url = urlOf('4400000007');
  const put = (rateLimits: object): Promise<Answered> =>
    ask('PUT', PROJECT, { url, body: { plan: 'Pro', rateLimits } });
  const first = await put({ logs: 1, replays: 2 });
  expect(tag(await put({ replays: 2, logs: 1 }))).toBe(tag(first));
  const patch = async (rateLimits: object | null): Promise<unknown> =>
    json(await ask('PATCH', PROJECT, { url, body: { rateLimits } })).rateLimits;
  expect(await patch({ errors: 3, logs: null })).toEqual({ replays: 2, errors: 3 });
  expect(await patch({ errors: null, replays: null })).toBeUndefined();
  expect(await patch({ spans: 4 })).toEqual({ spans: 4 });
  expect(await patch(null)).toBeUndefined();
});

it('takes the same PUT from several at once', async () => {
  const put = { url: urlOf('4400000005'), body: { plan: 'Pro', key: 'of_them_all' } };
  const answers = await Promise.all(Array.from({ length: 6 }, () => ask('PUT', PROJECT, put)));
  const statuses = answers.map(({ status }) => status);
  expect(statuses.sort()).toEqual([200, 200, 200, 200, 200, 201]);
  expect(new Set(answers.map(({ body }) => body)).size).toBe(1);
  const headers = { 'If-None-Match': '*' };
  const fresh = { url: urlOf('4400000006'), body: { plan: 'Pro' }, headers };
  const once = await Promise.all(Array.from({ length: 4 }, () => ask('PUT', PROJECT, fresh)));
  expect(once.map(({ status }) => status).sort()).toEqual([201, 412, 412, 412]);
});

it('keeps names unique', async () => {
  const { id } = await create({ id: 'cjld2cjxh0000qzrmn831i7rn', alias: '4400000002' });
  expect((await ask('POST', PROJECTS, { body: { plan: 'Pro', id } })).status).toBe(409);
  const other = urlOf((await create()).id);
  expect((await ask('PATCH', PROJECT, { url: other, body: { alias: '4400000002' } })).status).toBe(409);
  expect((await ask('PUT', PROJECT, { url: urlOf('4400000002'), body: { plan: 'Pro' } })).status).toBe(409);
  const wrong = { url: urlOf('4400000003'), body: { plan: 'Pro', id: '4400000004' } };
  expect((await ask('PUT', PROJECT, wrong)).status).toBe(400);
  expect(json(await ask('GET', PROJECT, { url: urlOf('4400000002') })).id).toBe(id);
});

it('lists in pages that lead from one to the next', async () => {
  for (let made = 0; made < 3; made++) {
    await create();
    await ask('POST', '/v1/heartbeats');
    await fileLetter(`page.${made}`);
  }
  for (const path of [PROJECTS, '/v1/heartbeats', '/v1/dead-letters']) {
    const all = list(await ask('GET', path, { url: `${path}?limit=1000` }));
    expect(all.length).toBeGreaterThanOrEqual(3);
    const paged: unknown[] = [];
    let link: string | undefined = `${path}?limit=2`;
    while (link !== undefined) {
      const page: Answered = await ask('GET', path, { url: link });
      expect(list(page).length).toBeLessThanOrEqual(2);
      paged.push(...list(page));
      link = /^<(.+)>; rel="next"$/.exec(page.headers.get('link') ?? '')?.[1];
    }
    expect(paged).toEqual(all);
  }
});

it('lists projects by name, those without one last, and needs the last project of a page', async () => {
  const made: string[] = [];
  for (const name of ['zoo', undefined, 'app 10', 'app 9'])
    made.push((await create({ tags: ['by-name'], ...(name && { name }) })).id);
  const read = (rest: string): Promise<Answered> => {
    const url = `${PROJECTS}?sort=name&search=by-name${rest}`;
    return ask('GET', PROJECTS, { url });
  };
  const sorted = [made[3], made[2], made[0], made[1]];
  expect(list(await read('')).map(({ id }) => id)).toEqual(sorted);
  const paged: string[] = [];
  for (const id of ['', ...sorted.slice(0, 3)])
    paged.push(...list(await read(`&limit=1${id && `&after=${id}`}`)).map((one) => one.id));
  expect(paged).toEqual(sorted);
  const gone = await read('&after=404');
  expect([gone.status, json(gone).errors]).toMatchObject([400, [{ field: 'after' }]]);
});

it('lists projects by usage, each at most once although usage grows between the pages', async () => {
  const made: string[] = [];
  for (const _ of [0, 1, 2, 3]) made.push((await create({ tags: ['by-usage'] })).id);
  const [most = '', least = '', middle = '', none = ''] = made;
  for (const [id, count] of [
    [most, 90],
    [least, 7],
    [middle, 50],
  ] as const)
    await system.noteUsage(id, count);
  const read = (url: string): Promise<Answered> => ask('GET', PROJECTS, { url });
  const first = await read(`${PROJECTS}?sort=usage&search=by-usage&limit=2`);
  expect(list(first)).toMatchObject([
    { id: most, usage: 90 },
    { id: middle, usage: 50 },
  ]);
  await system.noteUsage(middle, 95);
  await system.noteUsage(least, 10);
  const next = /^<(.+)>; rel="next"$/.exec(first.headers.get('link') ?? '')?.[1] ?? '';
  expect(list(await read(next))).toMatchObject([
    { id: least, usage: 10 },
    { id: none, usage: 0 },
  ]);
  const byId = await read(`${PROJECTS}?search=by-usage&usage=true`);
  expect(
    list(byId)
      .map(({ usage }) => usage)
      .sort(),
  ).toEqual([0, 10, 90, 95]);
  expect(list(await read(`${PROJECTS}?search=by-usage`))[0]).not.toHaveProperty('usage');
});

it('tells usage, and deletes a project', async () => {
  const { id } = await create({ quota: 50 });
  const usage = json(await ask('GET', `${PROJECT}/usage`, { url: urlOf(id, '/usage?hours=1') }));
  expect(usage).toMatchObject({ id, current: 0, quota: 50, percent: 0, hours: [] });
  const deleted = await ask('DELETE', PROJECT, { url: urlOf(id, '?keepUsage=true') });
  expect([deleted.status, json(deleted).id]).toEqual([200, id]);
  expect((await ask('GET', PROJECT, { url: urlOf(id) })).status).toBe(404);
  const history = list(await ask('GET', `${PROJECT}/history`, { url: urlOf(id, '/history') }));
  expect(history.map(({ action }) => action)).toEqual(['create', 'delete']);
});

it('sends a test event, and tells what became of it', async () => {
  const { id, keys } = (await create()) as Json & { keys: Json[] };
  const TEST = '/v1/projects/{id}/test-event';
  const url = urlOf(id, '/test-event');
  const sent = async (query = ''): Promise<Json> => json(await ask('POST', TEST, { url: `${url}${query}` }));
  // A worker knows a new project within a second.
  await until(async () => (await sent()).became !== 'refused');
  expect(await sent('?wait=1')).toEqual({ eventId: expect.any(String), status: 200, became: 'waiting' });

  // No processor runs: this test takes the frames, and files a letter.
  const { streams } = await system.link.manager();
  const untilQueued = async (): Promise<string> => {
    await until(async () => (await streams.info('SLUICE_EVENTS')).state.messages === 1);
    const frame = await streams.getMessage('SLUICE_EVENTS', {
      seq: (await streams.info('SLUICE_EVENTS')).state.last_seq,
    });
    const [slot] = decodeFrame(frame?.data ?? new Uint8Array());
    return slot?.ok && slot.entry.kind === 'envelope' ? slot.entry.eventId : '';
  };
  await streams.purge('SLUICE_EVENTS');
  const stored = sent('?wait=10');
  const eventId = await untilQueued();
  await streams.purge('SLUICE_EVENTS');
  expect(await stored).toEqual({ eventId, status: 200, became: 'stored' });
  const spoiled = sent('?wait=10');
  const facts = { projectId: id, eventId: await untilQueued(), reason: 'it is spoiled' };
  const letter = await letterIn(system.link, 'spoiled', facts);
  await streams.purge('SLUICE_EVENTS');
  const { projectId: _, ...told } = facts;
  expect(await spoiled).toEqual({ ...told, status: 200, became: 'dead letter', letter });

  expect((await ask('PATCH', PROJECT, { url: urlOf(id), body: { enabled: false } })).status).toBe(200);
  await until(async () => (await sent()).became === 'refused');
  expect(await sent()).toMatchObject({ status: 401, reason: 'Invalid project or key' });
  await ask('PATCH', KEY, { url: urlOf(id, `/keys/${keys[0]?.id}`), body: { enabled: false } });
  const none = await ask('POST', TEST, { url });
  expect([none.status, json(none).detail]).toEqual([409, expect.stringContaining('No key of project')]);
});

it('makes and deletes heartbeat tokens', async () => {
  const made = await ask('POST', '/v1/heartbeats', { body: {} });
  const { token } = json(made);
  const url = `${made.headers.get('location')}`;
  expect(url).toBe(`/v1/heartbeats/${token}`);
  expect((await ask('DELETE', '/v1/heartbeats/{token}', { url })).status).toBe(204);
  expect((await ask('DELETE', '/v1/heartbeats/{token}', { url })).status).toBe(404);
});

it('shows, replays and purges dead letters as they were read', async () => {
  const [first, second] = [await fileLetter('boot.1'), await fileLetter('boot.2')];
  const shown = await ask('GET', LETTER, { url: named(LETTER, first) });
  expect(json(shown)).toMatchObject({ reason: 'it is no frame', bytes_base64: expect.any(String) });
  await fileLetter('boot.1');
  const headers = { 'If-Match': tag(shown) };
  expect((await ask('POST', REPLAY, { url: named(REPLAY, first), headers })).status).toBe(412);
  expect((await ask('DELETE', LETTER, { url: named(LETTER, first), headers })).status).toBe(412);
  const replayed = await ask('POST', REPLAY, { url: named(REPLAY, first) });
  expect(json(replayed)).toEqual({ id: first, subject: 'sluice.events.0', became: 'waiting' });
  await fileLetter('boot.1');
  const fresh = await ask('POST', REPLAY, { url: named(REPLAY, first) });
  expect([fresh.status, json(fresh).detail]).toEqual([409, expect.stringContaining('too fresh')]);
  for (const id of [first, second])
    expect((await ask('DELETE', LETTER, { url: named(LETTER, id) })).status).toBe(204);
  expect((await ask('GET', LETTER, { url: named(LETTER, first) })).status).toBe(404);
});

it('shows what is accepted and refused, a line each', async () => {
  const { id, key } = (await create()) as Json & { key: string };
  const { parameters, responses } = api.document.paths[TAIL]?.get ?? { responses: {} };
  const { schema: types } = parameters?.find(({ name }) => name === 'type') ?? {};
  expect(types).toEqual({ enum: [...SEEN_TYPES] });
  const schema = responses['200']?.content?.['application/x-ndjson']?.schema ?? {};
  expect(matches(schema, {})).toBe(false);
  await system.registryKnown();
  const headers = { Authorization: `Bearer ${TOKEN}` };
  /** Reads until there is a line, while this is sent. */
  const firstLine = async (query: string, sent: { key: string }): Promise<Json> => {
    const { body } = await fetch(`${system.adminUrl}${TAIL}?${query}`, { headers });
    let text = '';
    const reading = (async () => {
      for await (const part of (body as ReadableStream<Uint8Array>).pipeThrough(new TextDecoderStream())) {
        text += part;
        if (text.trim() !== '') return;
      }
    })();
    await until(async () => {
      await system.send({ ...sent, id } as Project, errorEvent(eventId()));
      return text.trim() !== '';
    });
    await reading;
    const lines = text
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as Json);
    expect(lines.filter((line) => !matches(schema, line))).toEqual([]);
    return lines[0] as Json;
  };
  expect(await firstLine(`project=${id}&type=event`, { key })).toMatchObject({
    project_id: id,
    type: 'event',
  });
  expect(await firstLine(`project=${id}&refused=true`, { key: 'none' })).toMatchObject({
    project_id: id,
    outcome: 'forbidden_key',
  });
  expect((await ask('GET', TAIL, { url: `${TAIL}?type=event&refused=true` })).status).toBe(400);
  const head = await fetch(`${system.adminUrl}${TAIL}`, { method: 'HEAD', headers });
  expect([head.status, await head.text()]).toEqual([200, '']);
});

it('serves eight readers of lines, and one more when one has left', async () => {
  const headers = { Authorization: `Bearer ${TOKEN}` };
  const open = (): Promise<Response> => fetch(`${system.adminUrl}${TAIL}`, { headers });
  const readers: Response[] = [];
  await until(async () => {
    const reader = await open();
    if (reader.status === 200) readers.push(reader);
    return reader.status !== 200;
  });
  expect(readers).toHaveLength(8);
  const refused = await ask('GET', TAIL);
  expect([refused.status, json(refused).title]).toEqual([429, 'Too many at once']);
  await readers[0]?.body?.cancel();
  await until(async () => (await ask('GET', TAIL)).status === 200);
  for (const { body } of readers.slice(1)) await body?.cancel();
  await until(async () => (await ask('GET', TAIL)).status === 200);
});

it('says that a change was made which the audit does not have, and makes none without its stream', async () => {
  const { id } = await create();
  const { streams } = await system.link.manager();
  await streams.update('SLUICE_AUDIT', { max_msg_size: 1 });
  const unrecorded = await ask('PATCH', PROJECT, { url: urlOf(id), body: { plan: 'Scale' } });
  expect(json(unrecorded)).toMatchObject({
    type: 'urn:sluice:problem:unrecorded',
    status: 500,
    detail: expect.stringContaining(`The change is made (change project ${id})`),
  });
  await streams.delete('SLUICE_AUDIT');
  const refused = await ask('PATCH', PROJECT, { url: urlOf(id), body: { plan: 'Free' } });
  expect([refused.status, json(refused).detail]).toEqual([503, expect.stringContaining('run sluice setup')]);
  expect(json(await ask('GET', PROJECT, { url: urlOf(id) })).plan).toBe('Scale');
  await makeAudit(system.link);
});

it('answers 503 while NATS is away, and serves again when it is back', async () => {
  const { id } = await create();
  await system.nats.stop();
  await until(async () => (await send('GET', urlOf(id), {})).status === 503);
  for (const { path, method, operation } of api.operations) {
    const body =
      method === 'GET' ? undefined : { ...(bodyOf(operation)?.required !== undefined && { plan: 'Pro' }) };
    const { status } = await ask(method, path, { url: named(path, id), body });
    expect(status, `${method} ${path}`).toBe(operation.responses['503'] ? 503 : 200);
  }
  const examined = json(await ask('GET', '/v1/doctor')) as unknown as { ok: boolean; checks: object[] };
  expect(examined.ok).toBe(false);
  expect(examined.checks).toContainEqual(expect.objectContaining({ what: 'NATS', state: 'fail' }));
  await system.restartNats();
  await until(async () => (await send('GET', urlOf(id), {})).status === 200);
});

it('answers 503 where Redis is needed and away, and deletes nothing', async () => {
  const { id } = await create();
  await system.redis.stop();
  const usage = await ask('GET', `${PROJECT}/usage`, { url: urlOf(id, '/usage') });
  const deleted = await ask('DELETE', PROJECT, { url: urlOf(id) });
  expect([usage.status, deleted.status]).toEqual([503, 503]);
  expect(json(deleted).detail).toContain('Nothing is deleted');
  expect((await ask('GET', PROJECT, { url: urlOf(id) })).status).toBe(200);
});

it('gives every documented answer', () => {
  expect(api.documented.filter((where) => !api.seen.has(where))).toEqual([]);
});
