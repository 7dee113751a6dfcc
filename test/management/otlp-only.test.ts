/** A project that sends nothing but OTLP, as its operator sees it: commands, doctor, and the page. */
import type { Browser, Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { keyId, type Project } from '../../src/projects/project.ts';
import { runCommand } from '../commands/run-command.ts';
import {
  ENCODINGS,
  type Encoding,
  encoded,
  logsOf,
  SPAN,
  tracesOf,
} from '../processor/decode/otlp/requests.ts';
import { openBrowser, openPage } from '../support/browser.ts';
import type { OtlpJson } from '../support/otlp-reference.ts';
import { System, until } from '../support/system.ts';
import { Tails } from '../support/tail.ts';

const CONTENT_TYPES = { json: 'application/json', protobuf: 'application/x-protobuf' } as const;
const BAD = { ...SPAN, name: 'bad span', traceId: 'aa' };
const REASON = 'OTLP: 1 of 2 spans cannot be stored; the first: traceId is no id of 16 bytes';
const REASON_ALONE = REASON.replace('1 of 2', '1 of 1');

let system: System;
let browser: Browser;
let project: Project;
const tails = new Tails();
let count = 0;

async function send(
  signal: 'traces' | 'logs',
  body: Uint8Array,
  encoding: Encoding,
  of = project,
): Promise<number> {
  const url = `${system.url}/api/${of.id}/integration/otlp/v1/${signal}/`;
  const headers = {
    'x-sentry-auth': `sentry sentry_key=${of.key}`,
    'content-type': CONTENT_TYPES[encoding],
  };
  return (await fetch(url, { method: 'POST', body, headers })).status;
}
const sendTraces = (encoding: Encoding, ...spans: OtlpJson[]): Promise<number> =>
  send('traces', encoded('otlp_traces', tracesOf(spans), encoding), encoding);
const sendLog = (encoding: Encoding, stringValue: string): Promise<number> =>
  send('logs', encoded('otlp_logs', logsOf([{ body: { stringValue } }]), encoding), encoding);
const named = (name: string): OtlpJson => ({ ...SPAN, name });

/** Two requests of spans with a bad one each, two of logs, one that is refused for its body, and one over the limit of spans. */
beforeAll(async () => {
  [system, browser] = await Promise.all([
    System.start({ env: { SLUICE_PUBLIC_URL: 'https://in.example' } }),
    openBrowser(),
  ]);
  project = await system.createProject({ quota: 100, rateLimits: { spans: 2 } });
  for (const encoding of ENCODINGS) {
    expect(await sendTraces(encoding, named(`GET /${encoding}`), BAD)).toBe(200);
    expect(await sendLog(encoding, `said in ${encoding}`)).toBe(200);
  }
  expect(await send('logs', Buffer.from('no request'), 'protobuf')).toBe(400);
  expect(await sendTraces('json', named('one too many'))).toBe(429);
  await until(async () => (await letters()).length === 2);
});
afterAll(async () => {
  tails.end();
  await browser?.close();
  await system?.stop();
});

const sluice = (...args: string[]) => runCommand(args, system.env);
async function json<T>(...args: string[]): Promise<T> {
  const ran = await sluice(...args, '--json');
  expect(ran).toMatchObject({ status: 0, err: '' });
  return JSON.parse(ran.out) as T;
}
type Letter = { id: string; reason: string; type: string; projectId: string; eventId: string };
const letters = (): Promise<Letter[]> => json('dead-letters', 'list', '--project', project.id);

describe('commands show', () => {
  it('its usage, what became of its requests, and when its key was last used', async () => {
    type Usage = {
      current: number;
      hours: { outcomes: object; reasons: { outcome: string; reason: string }[] }[];
    };
    let usage: Usage | undefined;
    await until(async () => {
      usage = await json<Usage>('usage', project.id);
      return usage.hours.some(({ reasons }) => reasons?.length === 2);
    });
    expect(usage?.current).toBe(4);
    expect(usage?.hours.at(-1)?.outcomes).toEqual({ accepted: 4, invalid: 1, rate_limited: 1 });
    expect(usage?.hours.at(-1)?.reasons).toEqual(
      expect.arrayContaining([
        { outcome: 'invalid', reason: 'the body is no OTLP request', requests: 1 },
        { outcome: 'rate_limited', reason: 'spans', requests: 1 },
      ]),
    );
    type Key = { id: string; lastUsed?: string };
    await until(async () =>
      (await json<Key[]>('project', 'keys', 'list', project.id)).every(({ lastUsed }) => lastUsed),
    );
  });

  it('in tail its spans and logs as they will be stored, and why others were refused', async () => {
    const of = await system.createProject();
    const [all, spans, refused] = await Promise.all([
      tails.start(system, of.id),
      tails.start(system, of.id, '--type', 'span'),
      tails.start(system, of.id, '--refused'),
    ]);
    const lines = (out: () => string, text = ''): string[] =>
      out()
        .split('\n')
        .slice(0, -1)
        .filter((line) => line.includes(text));
    for (const encoding of ENCODINGS) {
      const texts = [`span in ${encoding}`, `log in ${encoding}`] as const;
      // Until all look on, what comes passes unseen.
      await until(async () => {
        const span = { ...named(texts[0]), flags: count++ };
        const traces = encoded('otlp_traces', tracesOf([span]), encoding);
        const logs = encoded(
          'otlp_logs',
          logsOf([{ body: { stringValue: texts[1] }, flags: count++ }]),
          encoding,
        );
        expect(await send('traces', traces, encoding, of)).toBe(200);
        expect(await send('logs', logs, encoding, of)).toBe(200);
        expect(await send('logs', Buffer.from('no request'), encoding, of)).toBe(400);
        const shown = texts.every((text) => lines(all, text).length > 0);
        return shown && lines(spans, texts[0]).length > 0 && lines(refused).length > 0;
      });
      expect(lines(all, texts[0])[0]).toMatch(new RegExp(`  ${of.id}  span  .*  ${texts[0]}$`));
      expect(lines(all, texts[1])[0]).toMatch(new RegExp(`  ${of.id}  log  .*  ${texts[1]}$`));
      expect(lines(spans, texts[1])).toEqual([]);
    }
    expect(lines(refused)[0]).toMatch(
      new RegExp(`  ${of.id}  invalid .*  key ${keyId(of.key)}  10 B  the body is no OTLP request$`),
    );
  });

  it('its dead letters with what the client sent; a replay files them again, a purge removes them', async () => {
    const found = await letters();
    expect(found).toMatchObject(
      found.map(() => ({ type: 'otlp_traces', projectId: project.id, reason: REASON })),
    );
    const [first, second] = found as [Letter, Letter];
    for (const { id } of found) {
      expect((await sluice('dead-letters', 'show', id)).out).toContain('"type":"otlp_traces"');
      const raw = await sluice('dead-letters', 'show', id, '--raw');
      expect(raw).toMatchObject({ status: 0, err: '' });
      expect(raw.out).toContain('bad span');
      expect(raw.out).not.toContain('GET /');
    }
    const replayed = await sluice('dead-letters', 'replay', first.id, '--json');
    expect([replayed.status, JSON.parse(replayed.out)]).toEqual([
      1,
      [expect.objectContaining({ id: first.id, became: 'filed again', reason: REASON_ALONE })],
    ]);
    await until(async () => (await letters()).some(({ reason }) => reason === REASON_ALONE));
    expect((await sluice('dead-letters', 'purge', second.id)).status).toBe(0);
    expect((await letters()).map(({ id }) => id)).not.toContain(second.id);
    // The good spans beside them were stored once and are not stored again.
    for (const { eventId } of found) expect(await system.storedOf(eventId)).toHaveLength(1);
  });
});

describe('the page shows', () => {
  const rowsOf = (place: Locator, title: string): Promise<string[][]> =>
    place
      .locator('section', { has: place.page().locator(`h2:text-is("${title}")`) })
      .locator('tbody tr')
      .evaluateAll((rows) =>
        rows.map((one) => [...one.querySelectorAll('td')].map((cell) => cell.textContent ?? '')),
      );
  const countOf = async (page: Page, title: string, type: string): Promise<number> =>
    Number((await rowsOf(page.locator('main'), title)).find(([name]) => name === type)?.at(-1) ?? 0);

  it('its requests, its items by type, and its last accepted request', async () => {
    const { page, complaints } = await openPage(browser, system.adminUrl);
    const ofProject = page.locator('tr', { has: page.locator(`td:first-child:text-is("${project.id}")`) });
    await expect
      .poll(() => ofProject.first().locator('td').allTextContents())
      .toEqual([project.id, '6', '4', '1', '4 of 100']);
    for (const type of ['otlp_traces', 'otlp_logs'])
      await expect.poll(() => countOf(page, 'Stored items', type)).toBeGreaterThanOrEqual(2);
    await page.goto(`${system.adminUrl}/#project=${project.id}`);
    await page.reload();
    const details = page.locator('tr.details');
    await details.locator('.last', { hasText: 'last accepted request: in the hour from' }).waitFor();
    await expect.poll(() => rowsOf(details, 'Why refused, filtered or empty')).toHaveLength(2);
    const [key = []] = await rowsOf(details, 'Keys');
    expect(key[4]).toMatch(/^\d{4}-/);
    await page.close();
    expect(complaints).toEqual([]);
  });

  it('on the port of the processor its spans, logs and dead letters', async () => {
    const { page, complaints } = await openPage(browser, `http://127.0.0.1:${system.processorPort}`);
    for (const type of ['span', 'log', 'otlp_traces'])
      await expect.poll(() => countOf(page, 'Items by type', type)).toBeGreaterThanOrEqual(2);
    await page.close();
    expect(complaints).toEqual([]);
  });

  it('a dead letter with its bytes, and replays it', async () => {
    const of = await system.createProject();
    const body = encoded('otlp_traces', tracesOf([named('good'), { ...BAD, flags: count++ }]), 'protobuf');
    expect(await send('traces', body, 'protobuf', of)).toBe(200);
    await until(async () => (await json<Letter[]>('dead-letters', 'list', '--project', of.id)).length === 1);
    const { page, complaints } = await openPage(browser, system.adminUrl);
    const place = page.locator('#dead-letters');
    await place.getByRole('button', { name: `Show the letters of project ${of.id}: ${REASON}` }).click();
    await place.getByRole('button', { name: 'Preview' }).locator('visible=true').click();
    await place.locator('pre', { hasText: 'bad span' }).waitFor();
    expect(await place.locator('pre').textContent()).toContain('otlp_traces');
    await place.getByRole('button', { name: `Replay all letters of project ${of.id}: ${REASON}` }).click();
    await page.locator('#letters-said', { hasText: `Project ${of.id}, ${REASON}: 1 filed again` }).waitFor();
    await page.close();
    expect(complaints).toEqual([]);
  });
});
