/** What filters and limits take of the envelopes in Relay's own tests (docs/relay-tests.md). */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { FILTER_NAMES } from '../../src/lib/filter-names.ts';
import { ProjectStore } from '../../src/projects/project-store.ts';
import { runCommand } from '../commands/run-command.ts';
import { eventId } from '../support/envelopes.ts';
import {
  FILTER_CASES,
  type FilterCase,
  ORIGIN_CASES,
  type OriginCase,
  REFUSED_PATTERNS,
} from '../support/relay-tests/filters.ts';
import { LIMIT_CASES } from '../support/relay-tests/limits.ts';
import { type NewProject, type Project, System, until } from '../support/system.ts';

const STORED_TYPES = 'attachment,session,user_report,profile,replay_video';
const FILTERED = FILTER_CASES.map((one, at) => ({
  ...one,
  name: `${one.from}, ${at}: ${JSON.stringify(one.payload)}`,
}));
const ORIGINS = ORIGIN_CASES.map((one, at) => ({
  ...one,
  name: `${one.from}, ${at}: ${one.origin} and ${one.patterns.join(', ')}`,
}));

let system: System;
const answers = new Map<string, Sent>();
/** What must be stored in the end, by the id of an envelope. */
const wanted = new Map<string, readonly string[]>();

beforeAll(async () => {
  system = await System.start({ env: { SLUICE_STORE_TYPES: STORED_TYPES } });
  const store = await ProjectStore.open(system.link);
  const projects = new Map<string, Project>();
  /** The project of a case; cases with the same settings share it. */
  const projectOf = (one: FilterCase | OriginCase): Project =>
    projects.get(JSON.stringify(settingsOf(one))) as Project;
  for (const one of [...FILTERED, ...ORIGINS]) {
    const settings = settingsOf(one);
    const name = JSON.stringify(settings);
    if (!projects.has(name))
      projects.set(name, await store.create({ plan: 'Platform', overage: false, ...settings }));
  }
  await system.registryKnown();
  for (const one of FILTERED) {
    const { type = 'event', payload, agent, taken } = one;
    const headers: Record<string, string> = agent === undefined ? {} : { 'user-agent': agent };
    const sent = await send(projectOf(one), `{"type":"${type}"}\n${JSON.stringify(payload)}`, headers);
    answers.set(one.name, sent);
    wanted.set(sent.id, taken === undefined ? [type] : []);
  }
  for (const one of ORIGINS) {
    const sent = await send(projectOf(one), '{"type":"event"}\n{"message":"hi"}', { origin: one.origin });
    answers.set(one.name, sent);
    wanted.set(sent.id, one.isTaken ? [] : ['event']);
  }
});
afterAll(async () => {
  expect(system.ingest.errors).toEqual([]);
  await system.stop();
});

const settingsOf = (one: FilterCase | OriginCase): Pick<NewProject, 'filters' | 'allowedOrigins'> =>
  'patterns' in one
    ? { filters: [], allowedOrigins: [...one.patterns] }
    : { filters: [...(one.filters ?? FILTER_NAMES)], allowedOrigins: [] };

type Sent = { id: string; status: number; filtered: string | null; hint: string | null; isCounted: boolean };
async function send(project: Project, items: string, headers: Record<string, string> = {}): Promise<Sent> {
  const id = eventId();
  const answer = await system.send(project, `{"event_id":"${id}"}\n${items}`, headers);
  await answer.arrayBuffer();
  return {
    id,
    status: answer.status,
    filtered: answer.headers.get('x-service-filtered'),
    hint: answer.headers.get('x-sentry-rate-limits'),
    isCounted: answer.headers.has('x-service-usage'),
  };
}
/** The types that are stored of each envelope. */
function storedTypes(): Map<string, string[]> {
  const types = new Map<string, string[]>();
  for (const { event_id, type } of system.stored().sort((one, other) => one.item_index - other.item_index))
    types.set(event_id, [...(types.get(event_id) ?? []), type]);
  return types;
}

describe('an inbound filter', () => {
  it.each(FILTERED.map((one) => [one.name, one] as const))('%s', (name, { taken }) => {
    expect(answers.get(name)).toMatchObject({
      status: 200,
      filtered: taken ?? null,
      isCounted: taken === undefined,
    });
  });

  it.each(ORIGINS.map((one) => [one.name, one] as const))('%s', (name, { isTaken }) => {
    expect(answers.get(name)).toMatchObject({
      status: 200,
      filtered: isTaken ? 'origin' : null,
      isCounted: !isTaken,
    });
  });

  it.each(REFUSED_PATTERNS)('has no pattern %s of Relay', async (pattern) => {
    const args = ['project', 'create', '--plan', 'Pro', '--allow-origin', pattern];
    const { status, err } = await runCommand(args, system.env);
    expect([status, err]).toEqual([
      2,
      expect.stringContaining(`${JSON.stringify(pattern)} is no origin pattern`),
    ]);
  });
});

const ITEMS: Readonly<Record<string, string>> = {
  replay_recording: '{"type":"replay_recording"}\n{"segment_id":0}',
  minidump: '{"type":"attachment","attachment_type":"event.minidump"}\n0123456789',
};
const items = (types: readonly string[]): string =>
  types.map((type) => ITEMS[type] ?? `{"type":"${type}"}\n{"items":[]}`).join('\n');
const OF_CATEGORY = {
  errors: 'event',
  transactions: 'transaction',
  spans: 'span',
  logs: 'log',
  replays: 'replay_event',
};

describe('a limit of a category', () => {
  it.each(LIMIT_CASES)(
    '$from: of $types over the limit of $over it leaves $left',
    async ({ types, over, left }) => {
      const project = await system.createProject({ rateLimits: { [over]: 1 } });
      expect(await send(project, items([OF_CATEGORY[over]]))).toMatchObject({ status: 200, hint: null });
      const sent = await send(project, items(types));
      expect(sent.status).toBe(left.length === 0 ? 429 : 200);
      wanted.set(sent.id, left);
    },
  );

  it('rate_limits.rs: enforce_pass_empty: passes an envelope without items', async () => {
    const project = await system.createProject({ rateLimits: { errors: 1 } });
    for (const _ of [1, 2]) expect(await send(project, '')).toMatchObject({ status: 200, hint: null });
  });

  it('rate_limits.rs: format_rate_limits: is told beside another, without a blank between them', async () => {
    const project = await system.createProject({ rateLimits: { errors: 1, transactions: 1 } });
    await send(project, items(['event', 'transaction']));
    const { status, hint } = await send(project, items(['event', 'transaction']));
    expect([status, hint]).toEqual([
      429,
      expect.stringMatching(/^\d+:error:project,\d+:transaction:project$/),
    ]);
  });
});

describe('a limit of a key', () => {
  // Relay answers the sixth request 200, and drops its event.
  it.each(['event', 'transaction'])(
    'store.py: processing_quotas: admits five envelopes with an %s, and leaves the other key alone',
    async (type) => {
      const project = await system.createProject({
        key: `first${type}`,
        keys: [
          { key: `first${type}`, enabled: true, rateLimit: 5 },
          { key: `other${type}`, enabled: true },
        ],
      });
      const first: Sent[] = [];
      for (let number = 0; number < 10; number++) first.push(await send(project, items([type])));
      expect(first.map(({ status }) => status)).toEqual([...Array(5).fill(200), ...Array(5).fill(429)]);
      for (const { status, hint } of first)
        expect(hint).toEqual(status === 429 ? expect.stringMatching(/^\d+::project$/) : null);
      for (let number = 0; number < 10; number++)
        expect((await send({ ...project, key: `other${type}` }, items([type]))).status).toBe(200);
    },
  );
});

it('attachments.py: attachments_ratelimit: a quota of nothing refuses the first envelope', async () => {
  // Relay answers the first request 200, and drops its item.
  const project = await system.createProject({ quota: 0 });
  expect(await send(project, items(['attachment']))).toMatchObject({ status: 429, hint: '600::project' });
});

it('what a filter or a limit leaves is stored, and nothing else', async () => {
  const stored = (): (readonly [string, string[]])[] => {
    const types = storedTypes();
    return [...wanted.keys()].map((id) => [id, types.get(id) ?? []]);
  };
  await until(() => stored().every(([id, types]) => types.length >= (wanted.get(id)?.length ?? 0)));
  expect(stored()).toEqual([...wanted]);
});
