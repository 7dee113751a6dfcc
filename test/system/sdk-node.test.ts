/** An unmodified @sentry/node with the DSN that sluice prints. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type Project, type StoredRecord, System, until } from '../support/system.ts';

const CLIENT = new URL('../support/clients/node.mjs', import.meta.url).pathname;
let system: System;
let project: Project;
type Sent = { exception: string; message: string; trace: string; flushed: boolean };
let sent: Sent;

/** @param lifecycle of traces; the SDK's default without it */
async function runClient(lifecycle?: 'static'): Promise<Sent> {
  const env = {
    ...process.env,
    DSN: system.dsn(project),
    ...(lifecycle && { TRACE_LIFECYCLE: lifecycle }),
  };
  const { stdout } = await promisify(execFile)(process.execPath, [CLIENT], { env });
  return JSON.parse(stdout);
}

beforeAll(async () => {
  system = await System.start();
  project = await system.createProject();
  sent = await runClient();
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

type Span = {
  trace_id: string;
  span_id: string;
  parent_span_id?: string;
  name: string;
  is_segment: boolean;
  attributes: Record<string, { value: unknown }>;
};

it('reports a trace as a container of spans, as it does by default', async () => {
  const ofTrace = ({ type, payload }: StoredRecord): boolean =>
    type === 'span' && JSON.stringify(payload).includes(sent.trace);
  await until(() => system.stored().some(ofTrace));
  const records = system.stored().filter(ofTrace);
  expect(records).toHaveLength(1);
  const [record] = records;
  expect(record).toMatchObject({
    ...common('span'),
    item_header: {
      type: 'span',
      item_count: 2,
      content_type: 'application/vnd.sentry.items.span.v2+json',
    },
  });
  const spans = record?.payload.items as Span[];
  const named = (name: string): Span | undefined => spans.find((span) => span.name === name);
  const [segment, child] = [named('GET /checkout'), named('select cart')];
  expect(segment).toMatchObject({
    trace_id: sent.trace,
    is_segment: true,
    attributes: { 'sentry.op': { value: 'http.server' } },
  });
  expect(child).toMatchObject({
    trace_id: sent.trace,
    parent_span_id: segment?.span_id,
    attributes: { 'sentry.op': { value: 'db' } },
  });
  expect(system.stored().filter(({ type }) => type === 'transaction')).toEqual([]);
});

it('reports a trace as a transaction with its spans when told to', async () => {
  const { trace } = await runClient('static');
  await until(() => system.stored().some(({ type }) => type === 'transaction'));
  const records = system.stored().filter(({ type }) => type === 'transaction');
  expect(records).toHaveLength(1);
  expect(records[0]).toMatchObject({
    ...common('transaction'),
    payload: {
      transaction: 'GET /checkout',
      contexts: { trace: { trace_id: trace, op: 'http.server' } },
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
