/** The page of the admin port in a real browser, over a real system. */

import type { AddressInfo } from 'node:net';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type AdminStats, startAdminServer } from '../../src/admin/server.ts';
import { AdminTokens } from '../../src/admin/tokens.ts';
import type { Project } from '../../src/projects/project.ts';
import { log } from '../projects/broker.ts';
import { openBrowser } from '../support/browser.ts';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { System, until } from '../support/system.ts';

const SENT = 40;
let system: System;
let browser: Browser;
let limited: Project;

beforeAll(async () => {
  [system, browser] = await Promise.all([System.start({ workers: 2 }), openBrowser()]);
  limited = await system.createProject({ plan: 'Pro', rateLimit: SENT - 10, quota: 100 });
  for (let sent = 0; sent < SENT; sent++) await system.send(limited, errorEvent(eventId()));
});
afterAll(async () => {
  await browser?.close();
  await system?.stop();
});

/** Everything the page asks for, and everything it complains about. */
async function open(url: string): Promise<{ page: Page; asked: string[]; complaints: string[] }> {
  const page = await browser.newPage();
  const asked: string[] = [];
  const complaints: string[] = [];
  page.on('request', (request) => asked.push(request.url()));
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(message.text());
  });
  await page.goto(`${url}/`);
  await page.locator('#main').waitFor({ state: 'visible' });
  return { page, asked, complaints };
}

/** The cells of the table row that begins with `title`. */
const row = (page: Page, title: string): Promise<string[]> =>
  page
    .locator('tr', { has: page.locator(`td:first-child:text-is("${title}")`) })
    .first()
    .locator('td')
    .allTextContents();

it('shows outcomes, workers, latency and the usage of projects on the port of ingest', async () => {
  const { page, asked, complaints } = await open(system.adminUrl);
  const total = async (outcome: string) => (await row(page, outcome)).at(-1);
  await expect.poll(() => total('accepted')).toBe('30');
  await expect.poll(() => total('rate_limited')).toBe('10');
  // A worker that is slow to answer is in the next figures, a second later.
  await expect.poll(() => row(page, limited.id)).toEqual([limited.id, '40', '30', '10', '30 of 100']);
  expect(await page.locator('.card', { hasText: 'workers' }).locator('b').textContent()).toBe('2');
  expect(await page.locator('#checks li').allTextContents()).toEqual([
    'ready',
    'redis ok',
    'nats ok',
    'registry ok',
  ]);
  await page.close();
  expect(complaints).toEqual([]);
  expect([...new Set(asked.map((url) => new URL(url).origin))]).toEqual([system.adminUrl]);
});

it('computes rates and percentiles while requests come in', async () => {
  const project = await system.createProject();
  const { page, complaints } = await open(system.adminUrl);
  const rate = async (): Promise<number> => Number((await row(page, 'accepted'))[1]);
  await until(async () => {
    await system.send(project, errorEvent(eventId()));
    return (await rate()) > 0;
  });
  expect((await row(page, 'request'))[1]).toMatch(/^[\d.]+ ms$/);
  expect(await page.locator('#chart polygon').count()).toBe(5);
  await page.close();
  expect(complaints).toEqual([]);
});

it('shows what is stored, the lag and what is pending on the port of the processor', async () => {
  await until(() => system.stored().length >= 30);
  const { page, complaints } = await open(`http://127.0.0.1:${system.processorPort}`);
  await until(async () => Number((await row(page, 'stored')).at(-1)) >= 30);
  expect(await row(page, 'SLUICE_EVENTS')).toHaveLength(2);
  expect(await page.locator('.card', { hasText: 'lag' }).locator('b').textContent()).toMatch(/ m?s$/);
  await page.close();
  expect(complaints).toEqual([]);
});

it('says that the process does not answer any more', async () => {
  const { page } = await open(system.adminUrl);
  await page.route('**/stats.json', (route) => route.abort());
  await page.locator('#updated.lost').waitFor();
  expect(await page.locator('#updated').textContent()).toMatch(/^no answer since/);
  await page.close();
});

it('asks for the token where the port is not bound to loopback, and keeps it for the tab', async () => {
  const stats = async () => (await (await fetch(`${system.adminUrl}/stats.json`)).json()) as AdminStats;
  const pages = { ready: () => ({ ready: true, body: '{}' }), metrics: async () => '', stats };
  const tokens = new AdminTokens({ entries: ['of-the-page=a-token'], file: undefined, log });
  const server = await startAdminServer({ host: '0.0.0.0', port: 0, pages, tokens, log });
  const page = await browser.newPage();
  await page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
  const show = async (token: string): Promise<void> => {
    await page.locator('#token').fill(token);
    await page.locator('#login button').click();
  };
  await page.locator('#login').waitFor({ state: 'visible' });
  expect(await page.locator('#updated').textContent()).toBe('a token is needed');
  await show('wrong');
  await page.locator('#updated', { hasText: 'this token is unknown' }).waitFor();
  expect(await page.locator('#main').isVisible()).toBe(false);
  await show('a-token');
  await page.locator('#main').waitFor({ state: 'visible' });
  await page.reload();
  await page.locator('#main').waitFor({ state: 'visible' });
  expect(await page.locator('#login').isVisible()).toBe(false);
  await page.close();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

it('allows no foreign script, frame or resource', async () => {
  const answer = await fetch(`${system.adminUrl}/`);
  expect(answer.headers.get('content-type')).toBe('text/html; charset=utf-8');
  const policy = answer.headers.get('content-security-policy') ?? '';
  expect(policy).toContain("default-src 'none'");
  expect(policy).not.toContain('unsafe');
});

it('is fed by figures that hold no key', async () => {
  const answer = await fetch(`${system.adminUrl}/stats.json`);
  const text = await answer.text();
  expect(text).not.toContain(limited.key);
  const stats = JSON.parse(text) as AdminStats;
  expect(stats.role).toBe('ingest');
  expect(stats.metrics.map(({ name }) => name)).toContain('sluice_requests_total');
  expect(stats.projects).toContainEqual(
    expect.objectContaining({ id: limited.id, requests: 40, quota: 100, usage: expect.anything() }),
  );
});
