/** Requests of Relay's own tests: our answer, and what is stored (docs/relay-tests.md). */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ENVELOPES } from '../support/relay-tests/envelopes.ts';
import { OTHER_PATHS } from '../support/relay-tests/other-paths.ts';
import { OTLP } from '../support/relay-tests/otlp.ts';
import type { RelayRequest } from '../support/relay-tests/parts.ts';
import {
  expected,
  FURTHER_TYPES,
  itemOf,
  projectForEach,
  projectsOfLetters,
  recordsOf,
} from '../support/request-table.ts';
import { type Project, type StoredRecord, System, until } from '../support/system.ts';

const REQUESTS = [...ENVELOPES, ...OTHER_PATHS, ...OTLP].map((one) => ({
  ...one,
  name: `${one.from}: ${one.it}`,
}));
type Named = (typeof REQUESTS)[number];

let system: System;
let projectNamed: (name: string) => Project;
const answers = new Map<string, Answer>();
const projectOf = ({ name }: Named): Project => projectNamed(name);

beforeAll(async () => {
  system = await System.start({ env: { SLUICE_STORE_TYPES: `${FURTHER_TYPES},raw_security` } });
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

const storedOf = (one: Named): StoredRecord[] => recordsOf(system, projectOf(one));
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
    await until(() => storedOf(one).length >= expected(one).length);
    const records = storedOf(one);
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
  const letters = () => projectsOfLetters(system);
  await until(async () => (await letters()).length >= wanted.length);
  expect((await letters()).sort()).toEqual(wanted.sort());
  for (const one of REQUESTS) expect(storedOf(one)).toHaveLength(expected(one).length);
});
