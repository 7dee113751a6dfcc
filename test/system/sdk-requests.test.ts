/** Each request that the tests of SDKs send, write or read: our answer, and what is stored (docs/sdk-tests.md). */
import { request } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  expected,
  FURTHER_TYPES,
  itemOf,
  projectForEach,
  projectsOfLetters,
  recordsOf,
} from '../support/request-table.ts';
import { SDK_REQUESTS } from '../support/sdk-tests/requests.ts';
import { type Project, type StoredRecord, System, until } from '../support/system.ts';

const REQUESTS = Object.entries(SDK_REQUESTS).flatMap(([sdk, { auth, requests }]) =>
  requests.map((one) => ({ auth, ...one, name: `${sdk}: ${one.it}` })),
);
type Named = (typeof REQUESTS)[number];

let system: System;
let projectNamed: (name: string) => Project;
const answers = new Map<string, Answer>();
const projectOf = ({ name }: Named): Project => projectNamed(name);

beforeAll(async () => {
  system = await System.start({ env: { SLUICE_STORE_TYPES: FURTHER_TYPES } });
  projectNamed = await projectForEach(
    system,
    REQUESTS.map(({ name }) => name),
  );
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

const storedOf = (one: Named): StoredRecord[] => recordsOf(system, projectOf(one));

describe('a request is answered, and its items are stored', () => {
  it.each(REQUESTS)('$name', async (one) => {
    const answer = answers.get(one.name);
    expect(answer).toEqual({
      status: one.status,
      empty: one.empty,
      id: one.status === 400 ? undefined : (one.id ?? expect.stringMatching(/^[0-9a-f]{32}$/)),
    });
    await until(() => storedOf(one).length >= expected(one).length);
    const records = storedOf(one);
    expect(records.map(itemOf)).toEqual(expected(one));
    for (const { event_id, sent_at } of records) {
      expect(event_id).toBe(answer?.id);
      if (one.sentAt !== undefined) expect(sent_at).toBe(one.sentAt);
    }
  });
});

it('what cannot be stored is a dead letter, and nothing else is stored', async () => {
  const wanted = REQUESTS.flatMap((one) => Array(one.letters ?? 0).fill(projectOf(one).id) as string[]);
  const letters = () => projectsOfLetters(system);
  await until(async () => (await letters()).length >= wanted.length);
  expect((await letters()).sort()).toEqual(wanted.sort());
  for (const one of REQUESTS) expect(storedOf(one)).toHaveLength(expected(one).length);
});
