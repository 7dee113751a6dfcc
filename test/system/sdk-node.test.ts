/** An unmodified @sentry/node with the DSN that sluice prints. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Project } from '../../src/registry/project.ts';
import { type StoredRecord, System, until } from '../support/system.ts';

const CLIENT = new URL('../support/clients/node.mjs', import.meta.url).pathname;
let system: System;
let project: Project;
let sent: { exception: string; message: string; trace: string; flushed: boolean };

beforeAll(async () => {
  system = await System.start();
  project = await system.createProject();
  const env = { ...process.env, DSN: system.dsn(project) };
  const { stdout } = await promisify(execFile)(process.execPath, [CLIENT], { env });
  sent = JSON.parse(stdout);
});
afterAll(() => system.stop());

/** What every record of this client has in common. */
const common = (type: string): Partial<StoredRecord> => ({
  project_id: project.id,
  type,
  sdk: expect.stringMatching(/^sentry\.javascript\.node\/\d+\.\d+\.\d+/),
  item_index: 0,
});

it('reports an exception', async () => {
  expect(sent.flushed).toBe(true);
  const [record] = await system.storedOf(sent.exception);
  expect(record).toMatchObject({
    ...common('event'),
    item_header: { type: 'event' },
    payload: {
      event_id: sent.exception,
      release: 'shop@1.2.3',
      environment: 'test',
      platform: 'node',
      exception: {
        values: [{ type: 'TypeError', value: 'cart is undefined', mechanism: { handled: true } }],
      },
    },
  });
  const frames = JSON.stringify(record?.payload);
  expect(frames).toContain('clients/node.mjs');
  expect(Date.parse(record?.received_at ?? '')).toBeGreaterThan(Date.now() - 60_000);
  expect(Date.parse(record?.sent_at ?? '')).toBeGreaterThan(Date.now() - 60_000);
});

it('reports a message of over 40 KB, which it compresses', async () => {
  const [record] = await system.storedOf(sent.message);
  expect(record).toMatchObject({ ...common('event'), payload: { level: 'warning' } });
  expect(record?.payload.message).toBe(`big ${'lorem ipsum '.repeat(4_000)}`);
});

it('reports a transaction with its spans', async () => {
  await until(() => system.stored().some(({ type }) => type === 'transaction'));
  const record = system.stored().find(({ type }) => type === 'transaction');
  expect(record).toMatchObject({
    ...common('transaction'),
    payload: {
      transaction: 'GET /checkout',
      contexts: { trace: { trace_id: sent.trace, op: 'http.server' } },
      spans: [{ description: 'select cart', op: 'db' }],
    },
  });
});

it('reports a log', async () => {
  await until(() => system.stored().some(({ type }) => type === 'log'));
  const record = system.stored().find(({ type }) => type === 'log');
  expect(record).toMatchObject({
    ...common('log'),
    item_header: { type: 'log', item_count: 1, content_type: 'application/vnd.sentry.items.log+json' },
    payload: { items: [{ body: 'order placed', level: 'info', attributes: { order: { value: 42 } } }] },
  });
});
