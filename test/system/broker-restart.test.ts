/** A nats-server that is started again within a moment costs nobody anything (contract part 2, order of decisions). */
import { setTimeout as pause } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { type Project, System, until } from '../support/system.ts';

/** Requests wait for a broker for 1.5 s. A busy machine may take longer; what such a restart did is not looked at. */
const RESTARTED_MS_MAX = 0.8 * 1_500;
const DOWN_MS = 700;
const TRIES_MAX = 10;

// These run at the same time, each on a system of its own.
it.concurrent.for(['SIGKILL', 'SIGTERM'] as const)(
  'is refused to nobody after a %s, and stores each event once',
  async (signal, { onTestFinished }) => {
    const system = await System.start({ workers: 2, env: { SLUICE_PLAN_LIMITS: 'free-only' } });
    onTestFinished(() => system.stop());
    const project = await system.createProject({ plan: 'Pro', quota: 1_000_000 });
    const told: { id: string; status: number }[] = [];
    const asked: Promise<unknown>[] = [];
    const load = setInterval(() => {
      const id = eventId();
      const sent = system.send(project, errorEvent(id)).then(({ status }) => told.push({ id, status }));
      asked.push(sent);
    }, 8);
    try {
      for (let tries = 0; tries < TRIES_MAX; tries++) {
        await until(() => told.length > 50 * (tries + 1));
        told.length = 0;
        const wentAt = performance.now();
        system.nats.process.kill(signal);
        await system.nats.exited;
        await pause(DOWN_MS);
        await system.restartNats();
        const awayMs = performance.now() - wentAt;
        await pause(2_500);
        if (awayMs < RESTARTED_MS_MAX) break;
      }
    } finally {
      clearInterval(load);
    }
    await Promise.all(asked);
    expect(told.filter(({ status }) => status !== 200)).toEqual([]);
    const storedIds = (): string[] => system.stored().map((record) => record.event_id);
    await until(() => {
      const stored = new Set(storedIds());
      return told.every(({ id }) => stored.has(id));
    });
    expect(new Set(storedIds()).size).toBe(storedIds().length);
  },
);

it.concurrent("is not noticed by projects whose first event of the month comes meanwhile: the count's checkpoint is waited for", async ({
  onTestFinished,
}) => {
  const system = await System.start({ workers: 2, env: { SLUICE_PLAN_LIMITS: 'free-only' } });
  onTestFinished(() => system.stop());
  for (let tries = 0, awayMs = Number.POSITIVE_INFINITY; awayMs >= RESTARTED_MS_MAX; tries++) {
    expect(tries, 'restarts that took too long').toBeLessThan(TRIES_MAX);
    const projects: Project[] = [];
    for (let n = 0; n < 10; n++) projects.push(await system.createProject({ quota: 100 }));
    const wentAt = performance.now();
    system.nats.process.kill('SIGKILL');
    await system.nats.exited;
    // Half of them where the workers may not know yet, half where they do.
    const asked = projects.map(async (project, n) => {
      await pause(n % 2 === 0 ? 0 : DOWN_MS / 2);
      const { status, headers } = await system.send(project, errorEvent(eventId()));
      return { status, usage: headers.get('x-service-usage') };
    });
    await pause(DOWN_MS);
    await system.restartNats();
    awayMs = performance.now() - wentAt;
    const told = await Promise.all(asked);
    if (awayMs < RESTARTED_MS_MAX) expect(told).toEqual(told.map(() => ({ status: 200, usage: '1/100' })));
  }
});

it.concurrent('is answered 503 to the first event of a month where it does not come back: nothing of it is queued or counted', async ({
  onTestFinished,
}) => {
  const system = await System.start();
  onTestFinished(() => system.stop());
  const project = await system.createProject({ quota: 100 });
  system.nats.process.kill('SIGKILL');
  await system.nats.exited;
  expect((await system.send(project, errorEvent(eventId()))).status).toBe(503);
  await system.restartNats();
  const usage = async (): Promise<string | null> =>
    (await system.send(project, errorEvent(eventId()))).headers.get('x-service-usage');
  await expect.poll(usage).toBe('1/100');
});
