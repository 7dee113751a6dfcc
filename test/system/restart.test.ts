/** A start costs clients no 503: a worker listens when it can serve (contract part 1). */
import { setTimeout as pause } from 'node:timers/promises';
import { defaultStackParser, makeNodeTransport, NodeClient } from '@sentry/node';
import { expect, it } from 'vitest';
import { childrenOf } from '../../bench/processes.ts';
import { System, until } from '../support/system.ts';

/** @sentry/node that sends a message every 25 ms, and keeps why it dropped some. */
class SteadyClient extends NodeClient {
  sent = 0;
  readonly dropped: string[] = [];
  /** Answers by status; a connection that was refused or broken has none. */
  readonly answers: Record<number, number> = { 200: 0 };
  readonly #timer: NodeJS.Timeout;

  constructor(dsn: string) {
    super({ dsn, transport: makeNodeTransport, stackParser: defaultStackParser, integrations: [] });
    this.on('afterSendEvent', (_event, { statusCode }) => {
      if (statusCode !== undefined) this.answers[statusCode] = (this.answers[statusCode] ?? 0) + 1;
    });
    this.#timer = setInterval(() => this.captureMessage(`message ${this.sent++}`), 25);
  }

  override recordDroppedEvent(reason: string): void {
    this.dropped.push(reason);
  }

  /** Resolves when it has sent that many more. */
  more(messages: number): Promise<void> {
    const enough = this.sent + messages;
    return until(() => this.sent >= enough);
  }

  async end(): Promise<void> {
    clearInterval(this.#timer);
    await this.close();
  }
}

/** A busy machine may hold Redis up for long enough that a limit is answered 429. */
const UNLIMITED = { workers: 2, env: { SLUICE_PLAN_LIMITS: 'free-only' } };

const overloaded = (system: System): Promise<number> =>
  system.metric('sluice_requests_total', '{endpoint="ingest",outcome="overloaded"}');

// These run at the same time, each on a system of its own.
it.concurrent('costs an SDK what it sends while nothing listens, and no more', async ({ onTestFinished }) => {
  const system = await System.start(UNLIMITED);
  onTestFinished(() => system.stop());
  const project = await system.createProject({ plan: 'Pro' });
  const client = new SteadyClient(system.dsn(project));
  await client.more(50);
  expect(await system.ingest.stop()).toBe(0);
  system.ingest = system.startIngest();
  await system.ready();
  await client.more(100);
  await client.end();
  // Nothing was dropped for a hint to wait: what has no answer found no listener.
  expect(client.answers).not.toHaveProperty('503');
  expect(client.dropped).not.toContain('ratelimit_backoff');
  expect(client.dropped).toContain('network_error');
  expect(await overloaded(system)).toBe(0);
  const answered = Object.values(client.answers).reduce((a, b) => a + b);
  const unanswered = client.dropped.filter((reason) => reason === 'network_error');
  expect(answered + unanswered.length).toBe(client.sent);
  await until(() => system.stored().length >= (client.answers[200] as number));
});

it.concurrent('costs no 503 either when workers die', async ({ onTestFinished }) => {
  const system = await System.start(UNLIMITED);
  onTestFinished(() => system.stop());
  const project = await system.createProject({ plan: 'Pro' });
  const client = new SteadyClient(system.dsn(project));
  await client.more(20);
  const workers = childrenOf(system.ingest.child.pid ?? 0);
  for (const pid of workers) process.kill(pid, 'SIGKILL');
  await until(async () => (await system.metric('sluice_worker_restarts_total')) === workers.length);
  await system.ready();
  await client.more(100);
  await client.end();
  expect(client.answers).not.toHaveProperty('503');
  expect(client.dropped).not.toContain('ratelimit_backoff');
  expect(await overloaded(system)).toBe(0);
});

it.concurrent('says 503 and to come back in a second where the registry takes longer than five', async ({
  onTestFinished,
}) => {
  const system = await System.start({ workers: 2 });
  onTestFinished(() => system.stop());
  const project = await system.createProject();
  await system.ingest.stop();
  await system.nats.stop();
  system.ingest = system.startIngest();
  const ask = () => system.send(project, '{}\n{"type":"event"}\n{}').catch(() => undefined);
  const [refusedFor, found] = await askUntilAnswered(ask);
  expect(refusedFor).toBeGreaterThanOrEqual(4_900);
  expect([found.status, found.headers.get('retry-after')]).toEqual([503, '1']);
  const ready = await fetch(`${system.url}/readyz`);
  expect([ready.status, await ready.json()]).toMatchObject([503, { checks: { registry: 'loading' } }]);
  await system.restartNats();
  await until(async () => (await ask())?.status === 200);
});

/** @returns how long no connection was taken, in ms, and the first answer */
async function askUntilAnswered(ask: () => Promise<Response | undefined>): Promise<[number, Response]> {
  const began = performance.now();
  for (;;) {
    const answer = await ask();
    if (answer) return [performance.now() - began, answer];
    await pause(20);
  }
}
