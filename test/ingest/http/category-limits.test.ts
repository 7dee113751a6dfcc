/** What becomes of an envelope with items of categories that have limits. What the admission says is in the hands of the test. */
import { expect, it } from 'vitest';
import { systemClock } from '../../../src/lib/clock.ts';
import { categoryBit } from '../../../src/lib/item-types.ts';
import type { Access } from '../../../src/projects/project-state.ts';
import { COUNTED, serve, TOKEN } from './ingest.ts';

const REPLAY = '{"type":"replay_event"}\n{}\n{"type":"replay_recording","length":3}\nabc\n';
const [ERROR, LOG] = ['{"type":"event"}\n{"message":"x"}\n', '{"type":"log","item_count":1}\n{"items":[]}\n'];
const LIMITS = { replays: 5, logs: 7 } as const;
/** By the window with this number: 1 is that of the project, the others are behind it. */
const full = (window: number) => ({ kind: 'refused', resetSec: 1, windowNumber: window }) as const;
const begin = () => serve({ rateLimits: LIMITS });
/** The windows of each call, with their limits; that of the project has no name. */
const windows = ({ asked }: ReturnType<typeof serve>): string[] =>
  asked.map(({ scope: { limit, windowName, further } }) =>
    [{ name: windowName, limit }, ...further].map((window) => `${window.name} ${window.limit}`).join(),
  );
const hintsOf = ({ line }: ReturnType<typeof serve>): unknown =>
  line.headers
    .filter((header) => header.startsWith('X-Sentry-Rate-Limits'))
    .map((header) => header.slice(22));
const typesOf = ({ published }: ReturnType<typeof serve>): unknown =>
  (published[0]?.entry.items as { type: string }[] | undefined)?.map(({ type }) => type);

it('is asked for by one admission, in all its windows', async () => {
  const served = begin();
  await served.receive(`{}\n${ERROR}${REPLAY}${LOG}`);
  expect([served.wants(), windows(served)]).toEqual(['b', [' 60,logs 7,replays 5']]);
  await served.settle(TOKEN, COUNTED);
  await served.store('stored');
  expect([served.outcomes, typesOf(served), hintsOf(served)]).toEqual([
    ['accepted'],
    ['event', 'replay_event', 'replay_recording', 'log'],
    [],
  ]);
});

it('takes the video of a phone for a replay, OTLP for logs, and no other type of SLUICE_STORE_TYPES for anything', () => {
  const { project } = begin();
  expect(project.limitedIn([{ type: 'replay_video' }])).toBe(categoryBit('replays'));
  expect(project.limitedIn([{ type: 'otlp_logs' }])).toBe(categoryBit('logs'));
  for (const type of ['attachment', 'session', 'profile', 'raw_security', 'trace_metric'] as const)
    expect(project.limitedIn([{ type }])).toBe(0);
});

it('loses the items of a category that is full, says so, and stores the rest, counted once', async () => {
  const served = begin();
  await served.receive(`{}\n${REPLAY}${ERROR}{"type":"session"}\n{}`);
  await served.settle(full(2));
  expect([served.wants(), windows(served)]).toEqual(['bb', [' 60,replays 5', ' 60']]);
  await served.settle(TOKEN, COUNTED);
  expect(typesOf(served)).toEqual(['event']);
  await served.store('stored');
  expect(served.outcomes).toEqual(['accepted']);
  expect(served.line.headers).toEqual(
    expect.arrayContaining(['X-RateLimit-Remaining: 59', 'X-Service-Usage: 3/10']),
  );
  expect(hintsOf(served)).toEqual(['1:replay:project,86400:session:organization:unsupported']);
  expect(served.metrics.rateLimited).toMatchObject({ replay_event: 1, replay_recording: 1, event: 0 });
  expect(served.metrics.items).toMatchObject({ replay_event: 0, event: 1 });
});

it('is refused when nothing else is in it, with what must wait', async () => {
  const served = begin();
  await served.receive(`{}\n${REPLAY}${LOG}`);
  await served.settle(full(2));
  await served.settle(full(2));
  expect([served.wants(), served.outcomes, served.published, served.refunds]).toEqual([
    'bb',
    ['rate_limited'],
    [],
    [],
  ]);
  expect(hintsOf(served)).toEqual(['1:log_item:project,1:replay:project']);
  expect(served.line.said).toEqual(['429', 'end']);
  expect(served.line.headers).toEqual(
    expect.arrayContaining(['X-RateLimit-Remaining: 0', 'Retry-After: 60']),
  );
  expect(served.line.headers.join()).not.toContain('X-Service-Usage: ');
});

it('is refused as a whole when the project is full, whatever its categories are', async () => {
  const served = begin();
  await served.receive(`{}\n${REPLAY}${ERROR}`);
  await served.settle(full(1));
  expect([served.outcomes, hintsOf(served)]).toEqual([['rate_limited'], ['1::project']]);
  expect(served.metrics.rateLimited).toMatchObject({ replay_event: 0 });
});

const LARGE = `{}\n{"type":"replay_event"}\n{}\n{"type":"replay_recording","length":300000}\n${'x'.repeat(300_000)}`;
const [FIRST, REST] = [LARGE.slice(0, 200_000), LARGE.slice(200_000)];

it('takes its tokens of project and category together before it is written', async () => {
  const served = begin();
  await served.receive(FIRST, false);
  expect([served.wants(), windows(served)]).toEqual(['t', [' 60,replays 5']]);
  await served.settle(TOKEN);
  await served.receive(REST);
  await expect.poll(() => served.wants()).toBe('tc');
  await served.settle(undefined, COUNTED);
  expect(typesOf(served)).toEqual(['replay_event', 'replay_recording']);
});

it('uses no token of the project when its category is full, and what follows is asked for in the end', async () => {
  const served = serve({ rateLimits: { replays: 5 } });
  await served.receive(FIRST, false);
  await served.settle(full(2));
  await served.receive(`${REST}\n${LOG}`);
  await expect.poll(() => served.wants()).toBe('tb');
  await served.settle(full(2));
  await served.settle(TOKEN, COUNTED);
  expect([typesOf(served), windows(served)]).toEqual([['log'], [' 60,replays 5', ' 60,replays 5', ' 60']]);
});

it('asks for a category that comes after its first token alone', async () => {
  const served = begin();
  await served.receive(FIRST, false);
  await served.settle(TOKEN);
  await served.receive(`${REST}\n${LOG}`);
  await expect.poll(() => served.wants()).toBe('tb');
  expect(windows(served)[1]).toBe('logs 7');
  await served.settle({ kind: 'admitted', remaining: 3, resetSec: 9 }, COUNTED);
  await served.store('stored');
  expect(served.line.headers).toEqual(
    expect.arrayContaining(['X-RateLimit-Remaining: 59', 'X-RateLimit-Reset: 7']),
  );
});

it('takes the limits of its key as they are when the body comes, not as they were with the head', async () => {
  const keys = (rateLimit: number) => [{ key: 'k', enabled: true, rateLimit }];
  const served = serve({ rateLimits: { replays: 5 }, keys: keys(50) });
  served.project.update({ ...served.project.record, keys: keys(4) }, 2, 60);
  await served.receive(FIRST, false);
  expect(windows(served)[0]?.match(/\d+(?=,|$)/g)).toEqual(['4', '60', '5']);
  const { scope } = served.project.authenticate('k', systemClock) as Access;
  expect(served.project.withCategories(scope, categoryBit('replays'), false).limit).toBe(4);
});

it('is refused in the end when its key is disabled after the head', async () => {
  const keys = (enabled: boolean) => [{ key: 'k', enabled, rateLimit: 50 }];
  const served = serve({ rateLimits: { replays: 5 }, keys: keys(true) });
  served.project.update({ ...served.project.record, keys: keys(false) }, 2, 60);
  await served.receive(FIRST, false);
  await served.settle(TOKEN);
  await served.receive(REST);
  await expect.poll(() => served.outcomes).toEqual(['forbidden_key']);
});
