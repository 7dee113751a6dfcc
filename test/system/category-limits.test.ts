/** Limits by category over two workers: exact, in mixed envelopes too, and heeded by a real SDK. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { eventId } from '../support/envelopes.ts';
import { type Project, System, until } from '../support/system.ts';

const CLIENT = new URL('../support/clients/categories.mjs', import.meta.url).pathname;
let system: System;
beforeAll(async () => {
  system = await System.start({ workers: 2 });
});
afterAll(() => system.stop());

const ERROR = '{"type":"event"}\n{"message":"it broke"}\n';
const REPLAY =
  '{"type":"replay_event"}\n{"replay_id":"x"}\n{"type":"replay_recording","length":19}\n{"segment_id":0}\n[]\n';
async function send(project: Project, items: string): Promise<Response> {
  const body = `{"event_id":"${eventId()}"}\n${items}`;
  const response = await system.send(project, body, { connection: 'close' });
  await response.arrayBuffer();
  return response;
}
const sendMany = (project: Project, items: string, count: number): Promise<Response[]> =>
  Promise.all(Array.from({ length: count }, () => send(project, items)));
const answered = (responses: readonly Response[], status: number): number =>
  responses.filter((response) => response.status === status).length;
const hintOf = ({ headers }: Response): string | null => headers.get('x-sentry-rate-limits');

it('a flood of replays over its limit leaves errors their room, and mixed envelopes lose their replays alone', async () => {
  const project = await system.createProject({ rateLimit: 40, rateLimits: { replays: 10 } });
  const flood = await sendMany(project, REPLAY, 60);
  expect([answered(flood, 200), answered(flood, 429)]).toEqual([10, 50]);
  const refused = flood.find(({ status }) => status === 429) as Response;
  expect(Object.fromEntries(refused.headers)).toMatchObject({
    'retry-after': '60',
    'x-ratelimit-remaining': '0',
    'x-sentry-rate-limits': expect.stringMatching(/^\d+:replay:project$/),
  });

  const mixed = await sendMany(project, ERROR + REPLAY, 5);
  expect(answered(mixed, 200)).toBe(5);
  for (const response of mixed) expect(hintOf(response)).toMatch(/^\d+:replay:project$/);
  const errors = await sendMany(project, ERROR, 40);
  expect([answered(errors, 200), answered(errors, 429)]).toEqual([25, 15]);
  expect(errors.filter(({ status }) => status === 200).map(hintOf)).toEqual(Array(25).fill(null));
  expect(hintOf(errors.find(({ status }) => status === 429) as Response)).toMatch(/^\d+::project$/);

  await expect.poll(() => system.metric('sluice_items_rate_limited_total', '{type="replay_event"}')).toBe(55);
  const ofProject = (type: string): number =>
    system.stored().filter((record) => record.project_id === project.id && record.type === type).length;
  await until(() => ofProject('event') === 30);
  expect([ofProject('replay_event'), ofProject('replay_recording')]).toEqual([10, 10]);
  const usage = Math.max(
    ...[...flood, ...mixed, ...errors].map(({ headers }) =>
      Number((headers.get('x-service-usage') ?? '0').split('/')[0]),
    ),
  );
  expect(usage).toBe(40);
});

it('an unmodified @sentry/node stops the category that it is hinted to, and goes on with errors', async () => {
  const project = await system.createProject({ rateLimits: { logs: 1 } });
  const env = { ...process.env, DSN: system.dsn(project) };
  const { stdout } = await promisify(execFile)(process.execPath, [CLIENT], { env });
  const { exceptions, logs } = JSON.parse(stdout) as { exceptions: string[]; logs: number };
  for (const id of exceptions) expect(await system.storedOf(id)).toHaveLength(1);
  const ofLogs = system
    .stored()
    .filter(({ project_id, type }) => project_id === project.id && type === 'log');
  expect([exceptions.length, logs, ofLogs.length]).toEqual([3, 4, 1]);
  // Of the envelopes of logs one was stored and one refused; the SDK kept the others back.
  expect(await system.metric('sluice_items_rate_limited_total', '{type="log"}')).toBe(1);
});
