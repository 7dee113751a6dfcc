/** An unmodified @sentry/browser in headless Chromium, on a page of another origin. */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Browser, Page, Request } from 'playwright-core';
import { build, type Rollup } from 'vite';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openBrowser } from '../support/browser.ts';
import { type Project, type StoredRecord, System, until } from '../support/system.ts';

const CLIENT = new URL('../support/clients/browser.js', import.meta.url).pathname;
const HTML =
  '<!doctype html><title>shop</title><button id="b">press</button><p id="p"></p><script src="/client.js"></script>';
/** Adds to every request what tracing libraries add, and a header that nobody knows. */
const INSTRUMENTED = `
  const plain = window.fetch;
  window.instrumentedFetch = (input, init) => {
    const headers = new Headers(init?.headers);
    headers.set('traceparent', '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01');
    headers.set('X-0dd--9', 'odd');
    return plain(input, { ...init, headers });
  };
`;
let system: System;
let project: Project;
let site: Server;
let browser: Browser;
let page: Page;

async function bundle(): Promise<string> {
  const built = (await build({
    configFile: false,
    logLevel: 'silent',
    build: { write: false, minify: false, lib: { entry: CLIENT, formats: ['iife'], name: 'client' } },
  })) as Rollup.RollupOutput[];
  return built[0]?.output[0].code ?? '';
}

beforeAll(async () => {
  const [client] = await Promise.all([
    bundle(),
    System.start().then((started) => {
      system = started;
    }),
  ]);
  project = await system.createProject({ filters: ['browser-extension', 'crawler'] });
  site = createServer((req, res) => {
    const script = req.url === '/client.js';
    res
      .writeHead(200, { 'content-type': script ? 'text/javascript' : 'text/html' })
      .end(script ? client : HTML);
  });
  await new Promise<void>((resolve) => site.listen(0, '127.0.0.1', resolve));
  browser = await openBrowser();
  page = await openPage();
});

/** @param script runs in every frame before anything of the page */
async function openPage({ script, of = project }: { script?: string; of?: Project } = {}): Promise<Page> {
  const opened = await browser.newPage({
    userAgent: 'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/140.0.0.0 Safari/537.36',
  });
  if (script) await opened.addInitScript({ content: script });
  const { port } = site.address() as AddressInfo;
  await opened.goto(`http://127.0.0.1:${port}/?dsn=${encodeURIComponent(system.dsn(of))}`);
  return opened;
}

afterAll(async () => {
  await browser?.close();
  site?.close();
  await system?.stop();
});

it('reports an error', async () => {
  const id = await page.evaluate('window.report()');
  const [record] = await system.storedOf(`${id}`);
  expect(record).toMatchObject({
    project_id: project.id,
    type: 'event',
    item_header: { type: 'event' },
    sdk: expect.stringMatching(/^sentry\.javascript\.browser\//),
    payload: {
      event_id: id,
      release: 'page@1.0.0',
      platform: 'javascript',
      exception: { values: [{ type: 'RangeError', value: 'button pressed too hard' }] },
      request: { url: expect.stringContaining('http://127.0.0.1:') },
    },
  });
});

it('records a session replay of at least three segments, all stored', async () => {
  const id = `${await page.evaluate('window.replayId()')}`;
  const segments = (): number[] =>
    system
      .stored()
      .filter(({ type, event_id }) => type === 'replay_recording' && event_id === id)
      .map(({ payload }) => Number(payload.segment_id))
      .sort((a, b) => a - b);
  await until(async () => {
    await page.click('#b');
    await page.evaluate('document.getElementById("p").textContent += "pressed "; window.flushReplay()');
    return segments().length >= 3;
  });
  expect(segments().slice(0, 3)).toEqual([0, 1, 2]);
  const records = system.stored().filter(({ event_id }) => event_id === id);
  expect(records.filter(({ type }) => type === 'replay_event').length).toBeGreaterThanOrEqual(3);
  const first = records.find(({ type, payload }) => type === 'replay_recording' && payload.segment_id === 0);
  const recording = first?.payload.recording as { type: number }[];
  expect(recording.some(({ type }) => type === 2)).toBe(true); // rrweb's full snapshot of the page
});

/** The trace's spans, by name: those of the containers, or a transaction and its spans. */
const namesOf = (type: 'span' | 'transaction', trace: string): string[] =>
  system
    .stored()
    .filter((record) => record.type === type && JSON.stringify(record.payload).includes(trace))
    .flatMap(({ payload }) => {
      if (type === 'span') return (payload.items as { name: string }[]).map(({ name }) => name);
      return [
        `${payload.transaction}`,
        ...(payload.spans as { description: string }[]).map((s) => s.description),
      ];
    });

it('reports a trace as spans, as it does by default', async () => {
  const trace = `${await page.evaluate('window.trace()')}`;
  await until(() => namesOf('span', trace).includes('press'));
  expect(namesOf('span', trace)).toEqual(expect.arrayContaining(['press', 'price']));
  expect(namesOf('transaction', trace)).toEqual([]);
});

it('reports a trace as a transaction when told to', async () => {
  const other = await browser.newPage({ userAgent: await page.evaluate('navigator.userAgent') });
  await other.goto(`${page.url()}&lifecycle=static`);
  const trace = `${await other.evaluate('window.trace()')}`;
  await until(() => namesOf('transaction', trace).includes('press'));
  expect(namesOf('transaction', trace)).toEqual(expect.arrayContaining(['press', 'price']));
  expect(namesOf('span', trace)).toEqual([]);
  await other.close();
});

it('passes the preflight and can read every header, also of an error', async () => {
  const request = async (body: string) => {
    const script = `fetch(${JSON.stringify(`${system.url}/api/${project.id}/envelope/`)}, {
      method: 'POST', body: ${JSON.stringify(body)},
      headers: { 'x-sentry-auth': 'Sentry sentry_key=${project.key}', 'content-type': 'application/x-sentry-envelope' },
    }).then((res) => ({ status: res.status, usage: res.headers.get('x-service-usage'), remaining: res.headers.get('x-ratelimit-remaining') }))`;
    return (await page.evaluate(script)) as {
      status: number;
      usage: string | null;
      remaining: string | null;
    };
  };
  const accepted = await request('{}\n{"type":"event"}\n{"message":"by hand"}');
  expect(accepted).toEqual({
    status: 200,
    usage: expect.stringMatching(/^\d+\/unlimited$/),
    remaining: expect.stringMatching(/^\d+$/),
  });
  expect(await request('nonsense')).toMatchObject({ status: 400, usage: null });
});

it('delivers the events of a page whose fetch is instrumented with headers of others', async () => {
  const instrumented = await openPage({ script: INSTRUMENTED });
  const sent: Request[] = [];
  instrumented.on('request', (request) => {
    if (request.method() === 'POST' && request.url().startsWith(system.url)) sent.push(request);
  });
  const id = await instrumented.evaluate('window.report()');
  expect(await system.storedOf(`${id}`)).toMatchObject([{ payload: { release: 'page@1.0.0' } }]);
  expect(sent.length).toBeGreaterThan(0);
  for (const request of sent)
    expect(await request.allHeaders()).toMatchObject({
      traceparent: expect.stringMatching(/^00-/),
      'x-0dd--9': 'odd',
    });
  await instrumented.close();
});

describe('a page with private data', () => {
  const MARK = 'mark-4711';
  const TYPES = ['event', 'span', 'log', 'replay_event', 'replay_recording'];

  /** What is private, and every record once each type has the mark that the page put beside it. */
  async function report(of: Project): Promise<{ all: string[]; records: StoredRecord[] }> {
    const opened = await openPage({ of });
    const all = (await opened.evaluate(`window.reportPrivate('${MARK}')`)) as string[];
    let records: StoredRecord[] = [];
    await until(async () => {
      await opened.evaluate('window.flushReplay()');
      records = system.stored().filter(({ project_id }) => project_id === of.id);
      const marked = new Set(records.flatMap((one) => (JSON.stringify(one).includes(MARK) ? one.type : [])));
      return TYPES.every((type) => marked.has(type));
    });
    await opened.close();
    return { all, records };
  }
  const foundIn = (records: readonly StoredRecord[], texts: readonly string[]): string[] =>
    records.flatMap((record) => {
      const text = JSON.stringify(record);
      return texts.filter((one) => text.includes(one)).map((one) => `${record.type}: ${one}`);
    });

  it('has it stored where the project says nothing', async () => {
    const { all, records } = await report(await system.createProject());
    const found = foundIn(records, all);
    for (const text of all) expect(found).toContain(`event: ${text}`);
    for (const type of TYPES)
      expect(
        found.some((one) => one.startsWith(type)),
        type,
      ).toBe(true);
  });

  it('has none of it stored where the project wants it removed', async () => {
    const { all, records } = await report(
      await system.createProject({ scrub: ['emails', 'cards', 'ips', 'user-ip', 'keys'] }),
    );
    expect(foundIn(records, all)).toEqual([]);
    expect(foundIn(records, [encodeURIComponent(all[0] ?? '')])).toEqual([]);
  });
});
