/** Redis or NATS away, at the endpoints whose bodies are no envelopes: what is answered, in which form, and that it recovers by itself. */
import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { encoded, SPAN, tracesOf } from '../processor/decode/otlp/requests.ts';
import { eventId } from '../support/envelopes.ts';
import { freeze, thaw } from '../support/freeze.ts';
import { type NewProject, type Project, System, until } from '../support/system.ts';

/** How an answer says what went wrong: as google.rpc.Status, or as `{"error":…}`. */
type Form = 'protobuf' | 'json' | 'error';
type Door = { name: string; path: string; contentType: string; form: Form };
const TRACES = 'integration/otlp/v1/traces/';
const DOORS: Door[] = [
  { name: 'OTLP in protobuf', path: TRACES, contentType: 'application/x-protobuf', form: 'protobuf' },
  { name: 'OTLP in JSON', path: TRACES, contentType: 'application/json', form: 'json' },
  { name: 'an event', path: 'store/', contentType: 'application/json', form: 'error' },
  { name: 'a report', path: 'security/', contentType: 'application/csp-report', form: 'error' },
];

let system: System;
let count = 0;

type Sent = { id: string; bytes: Uint8Array };
/** A body that no other one equals, and the id under which it is stored; '' where the answer alone says the id. */
function bodyFor({ form, path }: Door, { id: projectId }: Project): Sent {
  if (form !== 'error') {
    const request = tracesOf([{ ...SPAN, name: `span ${count++}` }]);
    const bytes = encoded('otlp_traces', request, form);
    const hash = createHash('sha256').update(`${projectId}\notlp_traces\n`).update(bytes);
    return { id: hash.digest('hex').slice(0, 32), bytes };
  }
  if (path === 'security/') return { id: '', bytes: Buffer.from(`{"csp-report":{"n":${count++}}}`) };
  const id = eventId();
  return { id, bytes: Buffer.from(`{"event_id":"${id}"}`) };
}

const ask = (project: Project, { path, contentType }: Door, body: Uint8Array): Promise<Response> =>
  fetch(`${system.url}/api/${project.id}/${path}?sentry_key=${project.key}`, {
    method: 'POST',
    body,
    headers: { 'content-type': contentType },
  });
const askAll = (project: Project): Promise<Response[]> =>
  Promise.all(DOORS.map((door) => ask(project, door, bodyFor(door, project).bytes)));
const serves = async (project: Project): Promise<boolean> =>
  (await askAll(project)).every(({ status }) => status === 200);

/** What an answer says, in the form of its door; with the code of a Status. */
async function saidBy(answer: Response, { form, contentType }: Door): Promise<[code: number, text: string]> {
  expect(answer.headers.get('content-type')).toBe(form === 'error' ? 'application/json' : contentType);
  const bytes = Buffer.from(await answer.arrayBuffer());
  if (form === 'protobuf') {
    expect([bytes[0], bytes[2], bytes[3]]).toEqual([0x08, 0x12, bytes.length - 4]);
    return [bytes[1] as number, bytes.subarray(4).toString()];
  }
  const said = JSON.parse(bytes.toString()) as Record<string, string | number>;
  if (form === 'json') return [said.code as number, said.message as string];
  const more = said.errorId === undefined ? '' : `, errorId ${said.errorId}`;
  return [0, `${said.error}${more}`];
}
const codeOf = ({ form }: Door, code: number): number => (form === 'error' ? 0 : code);
/** 500 where clients may repeat, 503 at OTLP, whose clients repeat that alone (contract 2a). */
async function expectFailed(answer: Response, door: Door): Promise<void> {
  const isOtlp = door.form !== 'error';
  expect([answer.status, answer.headers.get('retry-after')]).toEqual(isOtlp ? [503, '5'] : [500, null]);
  const [code, text] = await saidBy(answer, door);
  expect([code, text]).toEqual([
    codeOf(door, 14),
    expect.stringMatching(/^Internal server error, errorId [0-9a-f]{32}$/),
  ]);
  await system.ingest.logged(text.slice(-32));
}

const useSystem = (env: Record<string, string> = {}): void => {
  beforeAll(async () => {
    system = await System.start({ env: { SLUICE_STORE_TYPES: 'raw_security', ...env } });
  });
  afterAll(() => system.stop());
};
const newProject = async (more: Partial<NewProject> = {}): Promise<Project> => {
  const project = await system.createProject({ quota: 1_000, ...more });
  expect(await serves(project)).toBe(true);
  return project;
};

/** Ways in which Redis goes, and comes back. */
const AWAY: [how: string, go: () => Promise<void>, comeBack: () => Promise<void>][] = [
  ['silent', () => freeze(system.redis.pid), async () => thaw(system.redis.pid)],
  ['stopped', () => system.redis.stop(), () => system.restartRedis()],
];

describe('in production', () => {
  useSystem();

  it.each(AWAY)('Redis %s is 429, and all are served when it is back', async (_how, go, comeBack) => {
    const project = await newProject();
    const counted = '{endpoint="ingest",outcome="limiter_unavailable"}';
    const before = await system.metric('sluice_requests_total', counted);
    await go();
    // The worker may have leased some tokens; they hold for half a second.
    let answers = await askAll(project);
    while (answers.some(({ status }) => status !== 429)) {
      await Promise.all(answers.map((answer) => answer.arrayBuffer()));
      answers = await askAll(project);
    }
    await comeBack();
    for (const [at, answer] of answers.entries()) {
      const door = DOORS[at] as Door;
      expect(await saidBy(answer, door)).toEqual([codeOf(door, 8), 'Rate limit exceeded']);
      const { headers } = answer;
      expect([headers.get('retry-after'), headers.get('x-ratelimit-remaining')]).toEqual(['60', '0']);
      expect(headers.get('x-sentry-rate-limits')).toBe('10::project');
      expect(headers.get('x-service-usage')).toBeNull();
    }
    const counter = await system.metric('sluice_requests_total', counted);
    expect(counter - before).toBeGreaterThanOrEqual(DOORS.length);
    await until(() => serves(project));
  });

  it('Redis that stalls for less than its bound refuses nobody, and each is counted once', async () => {
    const [stallMs, lateMs, triesMax] = [450, 100, 10];
    for (let tries = 0; tries < triesMax; tries++) {
      const project = await newProject();
      const frozenAt = performance.now();
      await freeze(system.redis.pid);
      const asked = askAll(project);
      await sleep(stallMs);
      thaw(system.redis.pid);
      const isLate = performance.now() - frozenAt > stallMs + lateMs;
      const answers = await asked;
      if (isLate) continue;
      expect(answers.map(({ status }) => status)).toEqual(DOORS.map(() => 200));
      const positions = answers.map(({ headers }) => headers.get('x-service-usage'));
      return expect(new Set(positions).size).toBe(DOORS.length);
    }
    throw new Error(`in each of ${triesMax} tries the stall was longer than wanted`);
  });

  it('NATS away is 503 before a token is used', async () => {
    const project = await newProject();
    await system.nats.stop();
    await until(async () => (await askAll(project)).every(({ status }) => status === 503));
    for (const [at, answer] of (await askAll(project)).entries()) {
      const door = DOORS[at] as Door;
      const { headers } = answer;
      expect([answer.status, headers.get('retry-after'), headers.get('x-ratelimit-remaining')]).toEqual([
        503,
        '5',
        null,
      ]);
      expect(await saidBy(answer, door)).toEqual([codeOf(door, 14), 'Service overloaded']);
    }
    await system.restartNats();
    await until(() => serves(project));
  });

  it('NATS that does not answer in time: what is sent again is stored once', async () => {
    const project = await newProject();
    const sent = DOORS.map((door) => bodyFor(door, project));
    const send = (): Promise<Response[]> =>
      Promise.all(DOORS.map((door, at) => ask(project, door, (sent[at] as Sent).bytes)));
    await freeze(system.nats.pid);
    const answers = await send();
    thaw(system.nats.pid);
    for (const [at, answer] of answers.entries()) await expectFailed(answer, DOORS[at] as Door);
    await until(() => serves(project));
    expect((await send()).map(({ status }) => status)).toEqual(DOORS.map(() => 200));
    // Behind the resends, so that those are stored, too.
    const last = DOORS.map((door) => bodyFor(door, project));
    for (const [at, door] of DOORS.entries()) await ask(project, door, (last[at] as Sent).bytes);
    for (const { id } of last) if (id !== '') await system.storedOf(id);
    for (const { id } of sent) if (id !== '') expect(await system.storedOf(id)).toHaveLength(1);
  });
});

describe('in production, of a project with a quota and no limit', () => {
  useSystem({ SLUICE_PLAN_LIMITS: 'free-only' });

  it.each(AWAY)('Redis %s fails, as the quota cannot be counted', async (_how, go, comeBack) => {
    const project = await newProject({ plan: 'Pro' });
    await go();
    const answers = await askAll(project);
    await comeBack();
    for (const [at, answer] of answers.entries()) await expectFailed(answer, DOORS[at] as Door);
    await until(() => serves(project));
  });
});

describe('in development', () => {
  useSystem({ SLUICE_ENV: 'development' });

  it.each(AWAY)('Redis %s lets through, without usage and rate headers', async (_how, go, comeBack) => {
    const project = await newProject();
    await go();
    // The worker may have leased some tokens; they hold for half a second, and what they admit has rate headers.
    let sent: Sent[];
    let answers: Response[];
    do {
      sent = DOORS.map((door) => bodyFor(door, project));
      answers = await Promise.all(DOORS.map((door, at) => ask(project, door, (sent[at] as Sent).bytes)));
    } while (answers.some(({ headers }) => headers.get('x-ratelimit-remaining') !== null));
    await comeBack();
    for (const [at, answer] of answers.entries()) {
      const { status, headers } = answer;
      expect([status, headers.get('x-service-usage')]).toEqual([200, null]);
      const { form } = DOORS[at] as Door;
      const { id } = form === 'error' ? ((await answer.json()) as { id: string }) : (sent[at] as Sent);
      expect(await system.storedOf(id)).toHaveLength(1);
    }
    await until(async () =>
      (await askAll(project)).every(({ headers }) => headers.get('x-service-usage') !== null),
    );
  });
});
