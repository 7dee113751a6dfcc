/** Ingest and processor on a broker where `sluice setup` has not run: they start, say so, and serve once it has. */
import { afterEach, expect, it } from 'vitest';
import { link as connect, openProjects } from '../projects/broker.ts';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { lastingPort, natsServer, redisServer, temporaryFolder } from '../support/servers.ts';
import { Command, until } from '../support/system.ts';

const closers: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

it('they wait for it, name it, and need no restart', async () => {
  const [redis, nats] = await Promise.all([redisServer(), natsServer()]);
  closers.push(
    () => redis.close(),
    () => nats.close(),
  );
  const [port, adminPort, processorPort] = [await lastingPort(), await lastingPort(), await lastingPort()];
  const env = {
    SLUICE_PORT: `${port}`,
    SLUICE_WORKERS: '1',
    SLUICE_REDIS_URL: redis.url,
    SLUICE_NATS_URL: nats.url,
    SLUICE_SINK: `ndjson:${temporaryFolder('sink')}`,
    SLUICE_SPOOL_DIR: temporaryFolder('spool'),
    SLUICE_STREAM_MAX_BYTES: `${64 * 1024 * 1024}`,
  };
  const ingest = new Command(['ingest'], { ...env, SLUICE_ADMIN_PORT: `${adminPort}` });
  const processor = new Command(['processor'], { ...env, SLUICE_ADMIN_PORT: `${processorPort}` });
  closers.push(
    () => ingest.stop(),
    () => processor.stop(),
  );
  const ready = (of: number) => fetch(`http://127.0.0.1:${of}/readyz`).catch(() => undefined);
  await Promise.all([ingest, processor].map((program) => program.logged('run sluice setup')));
  expect((await ready(adminPort))?.status).toBe(503);
  expect([ingest.hasEnded, processor.hasEnded]).toEqual([false, false]);

  expect(await new Command(['setup'], env).exited).toBe(0);
  for (const of of [adminPort, processorPort]) await until(async () => (await ready(of))?.status === 200);
  const link = await connect(nats.url);
  closers.push(() => link.close());
  const store = await openProjects(link);
  const { id, key } = await store.create({ plan: 'Pro', overage: false, filters: [], allowedOrigins: [] });
  const url = `http://127.0.0.1:${port}/api/${id}/envelope/?compat_key=${key}`;
  await until(async () => (await fetch(url, { method: 'POST', body: errorEvent(eventId()) })).status === 200);
  await until(async () => {
    const text = await (await fetch(`http://127.0.0.1:${processorPort}/metrics`)).text();
    return /^sluice_processed_total\{type="event",result="stored"\} [1-9]/m.test(text);
  });
});
