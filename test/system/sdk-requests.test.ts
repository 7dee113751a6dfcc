/** Each request that the tests of SDKs send, write or read: our answer, and what is stored (docs/sdk-tests.md). */
import { request } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ProjectStore } from '../../src/projects/project-store.ts';
import { runCommand } from '../commands/run-command.ts';
import type { SdkRequest } from '../support/sdk-tests/parts.ts';
import { SDK_REQUESTS } from '../support/sdk-tests/requests.ts';
import { type Project, type StoredRecord, System, until } from '../support/system.ts';

const STORED_TYPES =
  'attachment,check_in,session,sessions,feedback,user_report,profile,profile_chunk,trace_metric,client_report,replay_video';
const REQUESTS = Object.entries(SDK_REQUESTS).flatMap(([sdk, { auth, requests }]) =>
  requests.map((one) => ({ auth, ...one, name: `${sdk}: ${one.it}` })),
);
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

type Answer = { status: number; empty: string | undefined; id: unknown };
function send(one: Named): Promise<Answer> {
  const { id, key } = projectOf(one);
  const auth = one.auth.replace('KEY', key);
  const isQuery = auth.startsWith('?');
  const body = Buffer.from(one.body);
  const headers = {
    'content-type': 'application/x-sentry-envelope',
    ...(one.headers?.['transfer-encoding'] === undefined && { 'content-length': body.length }),
    ...(!isQuery && { 'x-sentry-auth': auth }),
    ...one.headers,
  };
  const url = `${system.url}/api/${id}/envelope/${isQuery ? auth : ''}`;
  return new Promise((resolve, reject) => {
    const sent = request(url, { method: 'POST', headers, agent: false }, (answer) => {
      let text = '';
      answer.setEncoding('utf8').on('data', (part: string) => {
        text += part;
      });
      answer.on('end', () =>
        resolve({
          status: answer.statusCode ?? 0,
          empty: answer.headers['x-service-empty'] as string | undefined,
          id: (JSON.parse(text) as { id?: string }).id,
        }),
      );
    });
    sent.on('error', reject);
    sent.end(body);
  });
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
const expected = ({ stored = [] }: SdkRequest): [string, unknown][] =>
  stored.map(([type, payload]) => [type, payload instanceof Uint8Array ? Buffer.from(payload) : payload]);

describe('a request is answered, and its items are stored', () => {
  it.each(REQUESTS)('$name', async (one) => {
    const answer = answers.get(one.name);
    expect(answer).toEqual({
      status: one.status,
      empty: one.empty,
      id: one.status === 400 ? undefined : (one.id ?? expect.stringMatching(/^[0-9a-f]{32}$/)),
    });
    await until(() => recordsOf(one).length >= expected(one).length);
    const records = recordsOf(one);
    expect(records.map(itemOf)).toEqual(expected(one));
    for (const { event_id, sent_at } of records) {
      expect(event_id).toBe(answer?.id);
      if (one.sentAt !== undefined) expect(sent_at).toBe(one.sentAt);
    }
  });
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
