/** Requests of Relay's own tests: our answer, and what is stored (docs/relay-tests.md). */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ProjectStore } from '../../src/projects/project-store.ts';
import { runCommand } from '../commands/run-command.ts';
import { ENVELOPES } from '../support/relay-tests/envelopes.ts';
import { OTHER_PATHS } from '../support/relay-tests/other-paths.ts';
import { OTLP } from '../support/relay-tests/otlp.ts';
import type { RelayRequest } from '../support/relay-tests/parts.ts';
import { type Project, type StoredRecord, System, until } from '../support/system.ts';

const STORED_TYPES =
  'attachment,check_in,session,sessions,feedback,user_report,profile,profile_chunk,trace_metric,client_report,replay_video,raw_security';
const REQUESTS = [...ENVELOPES, ...OTHER_PATHS, ...OTLP].map((one) => ({
  ...one,
  name: `${one.from}: ${one.it}`,
}));
type Named = (typeof REQUESTS)[number];

let system: System;
/** A project for each request, because they share an id. */
const projects = new Map<string, Project>();
const answers = new Map<string, Answer>();
const projectOf = ({ name }: Named): Project => projects.get(name) as Project;

beforeAll(async () => {
  system = await System.start({ env: { SLUICE_STORE_TYPES: STORED_TYPES } });
  const store = await ProjectStore.open(system.link);
  for (const { name } of REQUESTS)
    projects.set(
      name,
      await store.create({ plan: 'Platform', overage: false, filters: [], allowedOrigins: [] }),
    );
  await system.registryKnown();
  for (const one of REQUESTS) answers.set(one.name, await send(one));
});
afterAll(async () => {
  expect(system.ingest.errors).toEqual([]);
  await system.stop();
});

type Answer = { status: number; headers: Headers; id: unknown };
async function send(one: Named): Promise<Answer> {
  const { id, key } = projectOf(one);
  const { method = 'POST', path = 'envelope/', query = '', body } = one;
  const inQuery = one.key === 'query';
  const url = new URL(path.startsWith('/') ? path : `/api/${id}/${path}`, system.url);
  const auth = `Sentry sentry_version=5, sentry_timestamp=1535376240291, sentry_client=raven-node/2.6.3, sentry_key=${key}`;
  const headers = { ...(one.key === undefined && { 'x-sentry-auth': auth }), ...one.headers };
  for (;;) {
    const answer = await fetch(`${url.href}${inQuery ? `?sentry_key=${key}` : ''}${query}`, {
      method,
      headers,
      ...(method === 'POST' && body !== undefined && { body }),
    });
    const text = await answer.text();
    // A machine that is too busy to inflate a bomb within a second says so first.
    if (answer.status === 503) continue;
    const { id: answered } = (text.startsWith('{') ? JSON.parse(text) : {}) as { id?: string };
    return { status: answer.status, headers: answer.headers, id: answered };
  }
}

const byPosition = (one: StoredRecord, other: StoredRecord): number => one.item_index - other.item_index;
const recordsOf = (one: Named): StoredRecord[] =>
  system
    .stored()
    .filter(({ project_id }) => project_id === projectOf(one).id)
    .sort(byPosition);
/** As the table writes an item: bytes where they are stored as bytes. */
const itemOf = (record: StoredRecord & { payload_base64?: string }): [string, unknown] => [
  record.type,
  record.payload_base64 === undefined ? record.payload : Buffer.from(record.payload_base64, 'base64'),
];
const expected = ({ stored = [] }: RelayRequest): [string, unknown][] =>
  stored.map(([type, payload]) => [type, payload instanceof Uint8Array ? Buffer.from(payload) : payload]);
const hasId = ({ status, path = 'envelope/' }: RelayRequest): boolean =>
  status === 200 && !path.startsWith('integration/');

describe('a request is answered, and its items are stored', () => {
  it.each(REQUESTS.map((one) => [one.name, one] as const))('%s', async (_name, one) => {
    const { status, headers, id } = answers.get(one.name) as Answer;
    const wanted = { 'x-service-empty': one.empty ?? null, ...one.answer };
    expect({
      status,
      id,
      ...Object.fromEntries(Object.keys(wanted).map((name) => [name, headers.get(name)])),
    }).toEqual({
      status: one.status,
      id: hasId(one) ? (one.id ?? expect.stringMatching(/^[0-9a-f]{32}$/)) : undefined,
      ...wanted,
    });
    await until(() => recordsOf(one).length >= expected(one).length);
    const records = recordsOf(one);
    expect(records.map(itemOf)).toEqual(expected(one));
    for (const [at, { event_id, sent_at, item_header }] of records.entries()) {
      if (hasId(one)) expect(event_id).toBe(id);
      if (one.sentAt !== undefined) expect(sent_at ?? null).toBe(one.sentAt);
      expect(item_header).toMatchObject(one.stored?.[at]?.[2] ?? {});
    }
  });
});

it('security_report.py: security_report_expose_headers: pages may read the headers that SDKs read', () => {
  for (const { headers } of answers.values()) {
    const exposed = headers.get('access-control-expose-headers')?.toLowerCase().split(', ');
    expect(exposed).toEqual(
      expect.arrayContaining(['x-sentry-error', 'x-sentry-rate-limits', 'retry-after']),
    );
  }
});

it('what cannot be stored is a dead letter, and nothing else is stored', async () => {
  const wanted = REQUESTS.flatMap((one) => Array(one.letters ?? 0).fill(projectOf(one).id) as string[]);
  const letters = async (): Promise<(string | undefined)[]> => {
    const { out } = await runCommand(['dead-letters', 'list', '--json'], system.env);
    return (JSON.parse(out) as { project_id?: string; projectId?: string }[]).map(
      ({ project_id, projectId }) => project_id ?? projectId,
    );
  };
  await until(async () => (await letters()).length >= wanted.length);
  expect((await letters()).sort()).toEqual(wanted.sort());
  for (const one of REQUESTS) expect(recordsOf(one)).toHaveLength(expected(one).length);
});
