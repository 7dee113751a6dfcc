/** Events and reports that come without an envelope: what is answered is what is stored. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { deflateSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openBrowser } from '../support/browser.ts';
import { eventId } from '../support/envelopes.ts';
import { type Project, System } from '../support/system.ts';

const MIB = 1024 * 1024;
let system: System;
let project: Project;

beforeAll(async () => {
  system = await System.start({ env: { SLUICE_STORE_TYPES: 'raw_security' } });
  project = await system.createProject({ quota: 1_000 });
});
afterAll(async () => {
  expect(system.ingest.errors).toEqual([]);
  await system.stop();
});

const urlOf = (door: string, query = ''): string =>
  `${system.url}/api/${project.id}/${door}?sentry_key=${project.key}${query}`;
const post = (door: string, body: string | Uint8Array, headers: Record<string, string> = {}, query = '') =>
  fetch(urlOf(door, query), { method: 'POST', body, headers });
const idOf = async (answer: Response): Promise<string> => {
  expect([answer.status, answer.headers.get('x-service-usage')]).toEqual([
    200,
    expect.stringMatching(/^\d+\/1000$/),
  ]);
  return ((await answer.json()) as { id: string }).id;
};

describe('an event without an envelope', () => {
  it.each(['store', 'store/', '/store//'])('to %s is stored under its id', async (door) => {
    const id = eventId();
    const payload = { event_id: id, message: 'größe', extra: { big: 1e300 } };
    const client = { 'x-sentry-auth': 'Sentry sentry_version=7, sentry_client=raven/6.9, sentry_key=x' };
    expect(await idOf(await post(door, JSON.stringify(payload), client))).toBe(id);
    expect(await system.storedOf(id)).toMatchObject([
      { project_id: project.id, type: 'event', item_index: 0, item_header: { type: 'event' }, payload },
    ]);
  });

  it.each([
    ['gzip', gzipSync],
    ['deflate', deflateSync],
  ])('in %s is stored', async (encoding, pack) => {
    const id = eventId();
    const sent = await post('store/', pack(`{"event_id":"${id}"}`), { 'content-encoding': encoding });
    expect(await idOf(sent)).toBe(id);
    expect(await system.storedOf(id)).toHaveLength(1);
  });

  it('in base64 of a zlib stream is stored', async () => {
    const id = eventId();
    const text = deflateSync(`{"event_id":"${id}","message":"raven"}`).toString('base64');
    const sent = await post('store/', text, { 'content-type': 'application/octet-stream' });
    expect(await idOf(sent)).toBe(id);
    expect(await system.storedOf(id)).toMatchObject([{ payload: { message: 'raven' } }]);
  });

  it('of 4 MiB, whose id is its last member, is stored whole', async () => {
    const [id, text] = [eventId(), 'x'.repeat(4 * MIB)];
    expect(await idOf(await post('store/', `{"message":"${text}","event_id":"${id}"}`))).toBe(id);
    const [record] = await system.storedOf(id);
    expect(record?.payload.message).toBe(text);
  });

  it('without an id gets one, and a resend of one with an id is stored once', async () => {
    const minted = await idOf(await post('store/', '{"message":"no id"}'));
    expect(await system.storedOf(minted)).toHaveLength(1);
    const id = eventId();
    for (const text of ['first', 'again'])
      await idOf(await post('store/', `{"event_id":"${id}","message":"${text}"}`));
    const last = await idOf(await post('store/', '{}'));
    await system.storedOf(last);
    expect(await system.storedOf(id)).toMatchObject([{ payload: { message: 'first' } }]);
  });

  it.each([
    ['', 'the body is empty'],
    ['not json', 'the body is no JSON object'],
    ['[]', 'the body is no JSON object'],
    ['{"a":1', 'the body is no JSON object'],
  ])('is 400 where it is %j', async (body, reason) => {
    const answer = await post('store/', body);
    expect([answer.status, answer.headers.get('x-sentry-error')]).toEqual([400, reason]);
  });
});

describe('reports of browsers', () => {
  const type = 'application/reports+json';

  it('in a list are stored, an item each', async () => {
    const reports = [{ type: 'csp-violation', body: { blockedURL: 'inline' } }, { type: 'deprecation' }];
    const sent = await post(
      'security/',
      JSON.stringify(reports),
      { 'content-type': type },
      '&sentry_release=a',
    );
    const stored = await system.storedOf(await idOf(sent), 2);
    const item_header = { type: 'raw_security', content_type: type, sentry_release: 'a' };
    expect(stored.sort((a, b) => a.item_index - b.item_index)).toMatchObject(
      reports.map((payload, item_index) => ({ type: 'raw_security', item_index, item_header, payload })),
    );
  });

  it('are refused where they are too large, of another type, or nobody knows the key', async () => {
    const large = `{"a":"${'x'.repeat(64 * 1024)}"}`;
    expect((await post('security/', large, { 'content-type': type })).status).toBe(413);
    const packed = { 'content-type': type, 'content-encoding': 'gzip' };
    expect((await post('security/', gzipSync(large), packed)).status).toBe(413);
    expect((await post('security/', '{}', { 'content-type': 'text/plain' })).status).toBe(415);
    const stranger = `${system.url}/api/${project.id}/security/?sentry_key=x`;
    expect((await fetch(stranger, { method: 'POST', body: '{}' })).status).toBe(401);
  });

  it('of the Reporting API are allowed by the preflight that browsers send before', async () => {
    const headers = {
      'access-control-request-method': 'POST',
      'access-control-request-headers': 'content-type',
      origin: 'https://shop.example',
    };
    const answer = await fetch(urlOf('security/'), { method: 'OPTIONS', headers });
    expect([answer.status, answer.headers.get('access-control-allow-headers')]).toEqual([
      204,
      'content-type',
    ]);
  });

  it('that Chromium sends by itself are stored', async () => {
    const policy = `default-src 'none'; report-uri ${urlOf('security/', '&sentry_environment=test')}`;
    const site = createServer((_req, res) =>
      res
        .writeHead(200, { 'content-type': 'text/html', 'content-security-policy': policy })
        .end('<script>blocked()</script>'),
    );
    await new Promise<void>((resolve) => site.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${(site.address() as AddressInfo).port}/`;
    const browser = await openBrowser();
    try {
      await (await browser.newPage()).goto(url);
      const found = () => system.stored().filter(({ payload }) => 'csp-report' in payload);
      await expect.poll(() => found().length).toBeGreaterThan(0);
      expect(found()[0]).toMatchObject({
        type: 'raw_security',
        item_header: { content_type: 'application/csp-report', sentry_environment: 'test' },
        payload: { 'csp-report': { 'document-uri': url, 'blocked-uri': 'inline' } },
      });
    } finally {
      await browser.close();
      site.close();
    }
  });
});
