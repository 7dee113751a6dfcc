/** Several events and transactions in one envelope: filters judge each by itself, and what is kept is stored as it was sent. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventId } from '../support/envelopes.ts';
import { MIB, type Project, type StoredRecord, System } from '../support/system.ts';

/** An envelope has at most so many items (docs/protocol.md). */
const ITEMS_MAX = 1_000;
let system: System;
let project: Project;

beforeAll(async () => {
  system = await System.start();
  project = await system.createProject({
    quota: 1_000,
    filters: ['browser-extension', 'localhost', 'crawler'],
  });
});
afterAll(async () => {
  expect(system.ingest.errors).toEqual([]);
  await system.stop();
});

type Sent = { type: string; payload: Record<string, unknown> };
const bodyOf = (id: string, items: readonly Sent[]): string =>
  [{ event_id: id }, ...items.flatMap(({ type, payload }) => [{ type }, payload])]
    .map((line) => JSON.stringify(line))
    .join('\n');
const event = (text: string): Sent => ({ type: 'event', payload: { message: text } });
const local = (type: string, text = ''): Sent => ({
  type,
  payload: { request: { url: 'http://localhost:3000/' }, extra: text },
});
const shown = (records: readonly StoredRecord[]) =>
  records
    .map(({ item_index, type, payload }) => ({ item_index, type, payload }))
    .sort((a, b) => a.item_index - b.item_index);
const wanted = (items: readonly Sent[], indexes: readonly number[]) =>
  indexes.map((item_index) => ({ item_index, ...(items[item_index] as Sent) }));

describe('an envelope with several events and transactions', () => {
  it.each([
    ['in memory', 10],
    ['that is spooled', MIB / 2],
  ])('%s keeps what no filter takes, and costs one unit of quota', async (_, size) => {
    const id = eventId();
    const items = [
      local('event', 'a'.repeat(size)),
      event('b'.repeat(size)),
      local('transaction'),
      { type: 'session', payload: { sid: id } },
      { type: 'transaction', payload: { spans: [], transaction: 'c'.repeat(size) } },
      event('d'),
      local('event', 'e'.repeat(size)),
      { type: 'log', payload: { items: [{ body: 'localhost' }] } },
    ];
    const before = (await system.send(project, bodyOf(eventId(), [event('counts one')]))).headers;
    const response = await system.send(project, bodyOf(id, items));
    expect([response.status, response.headers.get('x-service-filtered')]).toEqual([200, null]);
    const used = (headers: Headers): number => Number.parseInt(headers.get('x-service-usage') ?? '', 10);
    expect(used(response.headers)).toBe(used(before) + 1);
    expect(shown(await system.storedOf(id, 4))).toEqual(wanted(items, [1, 4, 5, 7]));
  });

  it.each([
    ['in memory', 10],
    ['that is spooled', MIB / 2],
  ])('%s is filtered when nothing is left', async (_, size) => {
    const id = eventId();
    const response = await system.send(
      project,
      bodyOf(id, [local('event', 'a'.repeat(size)), local('transaction')]),
    );
    expect([response.status, await response.json()]).toEqual([200, { id }]);
    expect(response.headers.get('x-service-filtered')).toBe('localhost');
    expect(response.headers.get('x-service-usage')).toBeNull();
  });

  it.each([
    ['in memory', 10],
    ['that is spooled', MIB / 2],
  ])('%s of which one names a crawler is filtered as a whole', async (_, size) => {
    const headers = { 'User-Agent': 'Googlebot/2.1 (+http://www.google.com/bot.html)' };
    const items = [event('a'.repeat(size)), { type: 'transaction', payload: { request: { headers } } }];
    const response = await system.send(project, bodyOf(eventId(), items));
    expect(response.headers.get('x-service-filtered')).toBe('crawler');
  });

  it('may have as many as an envelope has items, and a resend of them is stored once', async () => {
    const id = eventId();
    const items = Array.from({ length: ITEMS_MAX }, (_, n) => event(`event ${n}`));
    for (let n = 0; n < 2; n++) expect((await system.send(project, bodyOf(id, items))).status).toBe(200);
    const last = eventId();
    await system.send(project, bodyOf(last, [event('last')]));
    await system.storedOf(last);
    expect(shown(await system.storedOf(id, ITEMS_MAX))).toEqual(wanted(items, [...items.keys()]));
    const refused = await system.send(project, bodyOf(id, [...items, event('one more')]));
    expect([refused.status, await refused.json()]).toEqual([400, { error: 'Invalid envelope format' }]);
  });
});
