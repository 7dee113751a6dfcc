/** Redis or NATS away: what is answered, how soon, and that it recovers by itself (spec part 7, last rule; contract part 2). */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { freeze, thaw } from '../support/freeze.ts';
import { rawRequest } from '../support/raw-http.ts';
import { type Project, System, until } from '../support/system.ts';

let system: System;

async function ask(
  project: Project,
): Promise<{ status: number; body: unknown; ms: number; headers: Headers }> {
  const started = performance.now();
  const response = await system.send(project, errorEvent(eventId()));
  return {
    status: response.status,
    body: await response.json(),
    ms: performance.now() - started,
    headers: response.headers,
  };
}
const serves = async (project: Project): Promise<boolean> => (await ask(project)).status === 200;

/** One of these settings for the tests of a block, which leave it as they found it. */
const useSystem = (env: Record<string, string> = {}): void => {
  beforeAll(async () => {
    system = await System.start({ env });
  });
  afterAll(() => system.stop());
};

describe('in production', () => {
  useSystem();

  it('Redis away fails closed: 429 within a second, counted apart, and recovers without a restart', async () => {
    const project = await system.createProject();
    const token = await system.createHeartbeat();
    expect(await serves(project)).toBe(true);
    await freeze(system.redis.pid);
    let first = await ask(project);
    for (; first.status === 200; first = await ask(project)); // while there are leased tokens
    const next = await ask(project);
    const beat = await fetch(`${system.url}/heartbeat/${token}`, { method: 'POST' });
    thaw(system.redis.pid);
    for (const { status, body, headers } of [first, next]) {
      expect([status, body]).toEqual([429, { error: 'Rate limit exceeded' }]);
      expect([headers.get('x-ratelimit-remaining'), headers.get('retry-after')]).toEqual(['0', '60']);
      expect(headers.get('x-sentry-rate-limits')).toBe('10::project');
    }
    expect(first.ms).toBeLessThan(1_000);
    expect([beat.status, beat.headers.get('retry-after')]).toEqual([429, '1']);
    expect(
      await system.metric('sluice_requests_total', '{endpoint="ingest",outcome="limiter_unavailable"}'),
    ).toBe(2);
    await until(() => serves(project));
  });

  it('NATS away answers 503 with Retry-After before a token is used, keeps serving health, and recovers by itself', async () => {
    const project = await system.createProject({ rateLimit: 50 });
    expect((await ask(project)).headers.get('x-ratelimit-remaining')).toBe('49');
    await system.nats.stop();
    await until(async () => (await ask(project)).status === 503);
    const { status, body, headers } = await ask(project);
    expect([status, body]).toEqual([503, { error: 'Service overloaded' }]);
    expect([headers.get('retry-after'), headers.get('x-ratelimit-remaining')]).toEqual(['5', null]);
    const ready = await fetch(`${system.url}/readyz`);
    expect([ready.status, await ready.json()]).toMatchObject([200, { checks: { nats: 'away' } }]);
    await system.restartNats();
    await until(() => serves(project));
    const accepted = await ask(project);
    expect(accepted.status).toBe(200);
    await system.storedOf((accepted.body as { id: string }).id);
  });

  it('a broker that stalls beyond the deadline is a 500, and what was answered 200 is stored once', async () => {
    const project = await system.createProject();
    const told: { id: string; status: number }[] = [];
    const send = async (): Promise<void> => {
      const id = eventId();
      told.push({ id, status: (await system.send(project, errorEvent(id))).status });
    };
    await send();
    await freeze(system.nats.pid);
    const { pathname, search } = new URL(system.endpoint(project));
    const raw = rawRequest(
      system.port,
      `POST ${pathname}${search} HTTP/1.1\r\nHost: x\r\nContent-Length: 29\r\n\r\n{}\n{"type":"event"}\n{"a":100}`,
    );
    await Promise.all(Array.from({ length: 10 }, send));
    const onTheWire = await raw;
    thaw(system.nats.pid);
    expect([onTheWire.status, JSON.parse(onTheWire.body)]).toEqual([
      500,
      { error: 'Internal server error', errorId: expect.stringMatching(/^[0-9a-f]{32}$/) },
    ]);
    await until(() => serves(project));
    expect(told.slice(1).every(({ status }) => status === 500 || status === 503)).toBe(true);
    await system.storedOf(told[0]?.id ?? '');
    const ids = system.stored().map((record) => record.event_id);
    expect(new Set(ids).size).toBe(ids.length);
  });
});

describe('in development', () => {
  useSystem({ SLUICE_ENV: 'development' });

  it('Redis away lets through without usage and rate headers, and says so in the log', async () => {
    const project = await system.createProject();
    await freeze(system.redis.pid);
    const id = eventId();
    const response = await system.send(project, errorEvent(id));
    thaw(system.redis.pid);
    expect([response.status, await response.json()]).toEqual([200, { id }]);
    expect([response.headers.get('x-service-usage'), response.headers.get('x-ratelimit-remaining')]).toEqual([
      null,
      null,
    ]);
    expect(await system.storedOf(id)).toHaveLength(1);
    await system.ingest.logged('let through in development');
  });
});

describe('SLUICE_PLAN_LIMITS=free-only (spec part 8, rule 2)', () => {
  useSystem({ SLUICE_PLAN_LIMITS: 'free-only' });

  it('without a custom limit only Free is limited, and an unlimited answer has no X-RateLimit headers', async () => {
    const remaining = async (project: Project) => (await ask(project)).headers.get('x-ratelimit-remaining');
    expect(await remaining(await system.createProject({ plan: 'Pro' }))).toBeNull();
    expect(await remaining(await system.createProject({ plan: 'Free' }))).toBe('59');
    expect(await remaining(await system.createProject({ plan: 'Pro', rateLimit: 7 }))).toBe('6');
  });

  it('a quota that cannot be counted is a 500 with an errorId that stands in the log', async () => {
    const project = await system.createProject({ plan: 'Pro' });
    await freeze(system.redis.pid);
    const { status, body, headers } = await ask(project);
    const named = await system.send(project, errorEvent(eventId()), { 'x-request-id': 'its-name' });
    thaw(system.redis.pid);
    expect(headers.get('x-request-id')).toBe((body as { errorId: string }).errorId);
    expect([named.status, named.headers.get('x-request-id')]).toEqual([500, 'its-name']);
    await system.ingest.logged('"requestId":"its-name"');
    expect([status, body]).toEqual([
      500,
      { error: 'Internal server error', errorId: expect.stringMatching(/^[0-9a-f]{32}$/) },
    ]);
    await system.ingest.logged((body as { errorId: string }).errorId);
  });
});
