/** The page of the admin port in a real browser, over a real system. */

import type { Browser, Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { FILTER_NAMES } from '../../../src/lib/filter-names.ts';
import { PLANS } from '../../../src/projects/project.ts';
import { type Opened, openBrowser, openPage, violations } from '../../support/browser.ts';
import { errorEvent, eventId } from '../../support/envelopes.ts';
import { fileLetter, frameOf } from '../../support/letters.ts';
import { type Project, System, until } from '../../support/system.ts';
import { type AdminStats, connectionsTo, openAdminPort } from '../admin-port.ts';

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

const stats = async () => (await (await fetch(`${system.adminUrl}/stats.json`)).json()) as AdminStats;
const open = (url: string): Promise<Opened> => openPage(browser, url);

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
  // This ingest has no SLUICE_PUBLIC_URL.
  await page.getByText('The host in DSNs and heartbeat URLs is a guess: set SLUICE_PUBLIC_URL').waitFor();
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

it('shows what is stored, the lag and what is pending on the port of the processor, and nothing of an API', async () => {
  await until(() => system.stored().length >= 30);
  const { page, asked, complaints } = await open(`http://127.0.0.1:${system.processorPort}`);
  await until(async () => Number((await row(page, 'stored')).at(-1)) >= 30);
  expect(await row(page, 'SLUICE_EVENTS')).toHaveLength(2);
  expect(await page.locator('.card', { hasText: 'lag' }).locator('b').textContent()).toMatch(/ m?s$/);
  expect(await page.locator('#management').isVisible()).toBe(false);
  await page.close();
  expect(asked.filter((url) => url.includes('/v1'))).toEqual([]);
  expect(complaints).toEqual([]);
});

it('says that the process does not answer any more, and since when, aloud at a change alone', async () => {
  const { page } = await open(system.adminUrl);
  await page.locator('#spoken:text-is("ready")').waitFor({ state: 'attached' });
  await page.evaluate(`window.spoken = 0;
    new MutationObserver(() => window.spoken++).observe(document.querySelector('#spoken'), { childList: true });`);
  const answered = async (): Promise<string> => `${await page.locator('#updated').textContent()}`;
  await page.locator('#updated', { hasText: /^updated/ }).waitFor();
  await page.route('**/stats.json', (route) => route.abort());
  await page.locator('#updated.lost').waitFor();
  const [since] = /\d\d:\d\d:\d\d/.exec(await answered()) ?? [];
  const asked = page.waitForRequest('**/stats.json');
  await asked;
  await page.waitForRequest('**/stats.json');
  expect(await answered()).toMatch(new RegExp(`^no answer since ${since}`));
  expect(await page.locator('#checks.stale').count()).toBe(1);
  expect(await page.evaluate('window.spoken')).toBe(1);
  expect(await page.locator('#updated').getAttribute('role')).toBeNull();
  await page.close();
});

it('asks for the token where the port is not bound to loopback, and keeps it for the tab', async () => {
  const admin = await openAdminPort({ host: '0.0.0.0', entries: ['of-the-page=a-token-of-sixteen'], stats });
  const page = await browser.newPage();
  await page.goto(`${admin.url}/`);
  const show = async (token: string): Promise<void> => {
    await page.locator('#token').fill(token);
    await page.locator('#login button').click();
  };
  await page.locator('#login').waitFor({ state: 'visible' });
  expect(await page.locator('#updated').textContent()).toBe('a token is needed');
  await show('wrong');
  await page.locator('#updated', { hasText: 'this token is unknown' }).waitFor();
  expect(await page.locator('#main').isVisible()).toBe(false);
  await show('a-token-of-sixteen');
  await page.locator('#main').waitFor({ state: 'visible' });
  await page.reload();
  await page.locator('#main').waitFor({ state: 'visible' });
  expect(await page.locator('#login').isVisible()).toBe(false);
  await page.close();
  await admin.stop();
});

// ---- What the management API knows ----

const HOSTILE = `<img src=x onerror="document.title='taken'"><script>document.title='taken'</script>`;

async function api<T>(path: string, body?: object): Promise<T> {
  const headers = { 'Content-Type': 'application/json' };
  const init = body && { method: 'POST', headers, body: JSON.stringify(body) };
  const answer = await fetch(`${system.adminUrl}/v1${path}`, init);
  expect(answer.ok).toBe(true);
  return (await answer.json()) as T;
}

type Listed = { id: string; key: string; dsn: string };
const listed = (page: Page): Locator => page.locator('#listed-projects > table > tbody > tr');

/** Filters for a project and opens its row. */
async function details(page: Page, id: string): Promise<Locator> {
  // What the page had asked for before goes when it asks for this: a row that is opened too early would go, too.
  const asked = page.waitForRequest(/\/v1\/projects\?limit=50&search=/);
  await page.locator('#filter').fill(id);
  await asked;
  await expect.poll(() => listed(page).count()).toBe(1);
  await page.getByRole('button', { name: id, exact: true }).click();
  const found = page.locator('tr.details');
  await found.locator('h2', { hasText: 'History' }).waitFor();
  return found;
}

/** The cells of a table below a heading, a row each. */
const cells = (place: Locator, title: string): Promise<string[][]> =>
  place
    .locator('section', { has: place.page().locator(`h2:text-is("${title}")`) })
    .locator('tbody tr')
    .evaluateAll((rows) =>
      rows.map((one) => [...one.querySelectorAll('td')].map((cell) => cell.textContent ?? '')),
    );

it('creates a project whose DSN is accepted, and shows its usage and history', async () => {
  const { page, complaints } = await open(system.adminUrl);
  await page.locator('#create select').selectOption('Pro');
  await page.locator('#create [name=quota]').fill('1000');
  await page.locator('#create [name=rateLimit]').fill('50');
  await page.locator('#create [name=overage]').check();
  await page.locator('#create button').click();
  const dsn = new URL(await page.locator('#created .dsn').inputValue());
  await page.locator('#created button').click();
  await page.locator('#created button', { hasText: /^(Copied|Selected)$/ }).waitFor();
  const id = `${await page.locator('#created b').textContent()}`;
  expect(await api(`/projects/${id}`)).toMatchObject({
    plan: 'Pro',
    quota: 1000,
    rateLimit: 50,
    overage: true,
    dsn: dsn.href,
  });

  const endpoint = `${dsn.origin}/api${dsn.pathname}/envelope/?compat_key=${dsn.username}`;
  const send = async () => (await fetch(endpoint, { method: 'POST', body: errorEvent(eventId()) })).status;
  await until(async () => (await send()) === 200);

  const place = await details(page, id);
  const day = expect.stringMatching(/^\d{4}-\d\d-\d\d$/);
  await expect
    .poll(
      async () => {
        await page.getByRole('button', { name: id, exact: true }).click();
        await page.getByRole('button', { name: id, exact: true }).click();
        await place.locator('h2', { hasText: 'History' }).waitFor();
        return cells(place, 'Usage');
      },
      { interval: 500 },
    )
    .toEqual([[day, '', expect.anything(), expect.stringContaining('accepted 1')]]);
  expect(await place.locator('.month').textContent()).toMatch(/^\d{4}-\d\d: 1 of 1,000$/);
  const [used] = (await api<{ hours: { hour: string }[] }>(`/projects/${id}/usage?hours=2`)).hours;
  expect(await place.locator('.last').textContent()).toBe(
    `last accepted request: in the hour from ${used?.hour.slice(0, 16).replace('T', ' ')} UTC`,
  );
  expect(await place.locator('rect').count()).toBe(5);
  await expect
    .poll(() => cells(place, 'History'))
    .toEqual([[expect.stringMatching(/^\d{4}-/), 'loopback', 'create', '']]);
  expect(await cells(place, 'Settings')).toEqual(
    expect.arrayContaining([
      ['quota', '1,000'],
      ['overage', 'yes'],
      ['rateLimit', '50'],
    ]),
  );
  await page.close();
  expect(complaints).toEqual([]);
});

it('shows keys, their text at a click alone, and a hostile label as text', async () => {
  const { id, key } = await api<Listed>('/projects', { plan: 'Pro' });
  const expires = '2026-01-31T23:59:00Z';
  const added = await api<Listed>(`/projects/${id}/keys`, { label: HOSTILE, expires });
  const { page, complaints } = await open(system.adminUrl);
  const place = await details(page, id);
  expect(await place.locator('.last').textContent()).toBe('no accepted request in 32 days');
  const [first, second] = await cells(place, 'Keys');
  expect(first?.slice(1)).toEqual(['–', 'enabled', '–', '–', 'none', 'Show', 'DisableRemove']);
  expect(second).toEqual([
    added.id,
    HOSTILE,
    'expired',
    '2026-01-31 23:59',
    '–',
    'none',
    'Show',
    'DisableRemove',
  ]);
  expect(await page.content()).not.toContain(key);
  await place.getByRole('button', { name: 'Show', exact: true }).first().click();
  expect((await cells(place, 'Keys'))[0]?.at(6)).toBe(key);
  expect(await page.content()).not.toContain(added.key);
  expect(await page.title()).toBe('sluice ingest');
  expect(await page.locator('img').count()).toBe(0);
  await page.close();
  expect(complaints).toEqual([]);
});

/** Fills a field of the form with this title. */
const field = (place: Locator, form: string, name: string): Locator =>
  place.locator(`form[aria-label="${form}"] [name=${name}]`);
const send = (place: Locator, form: string): Promise<void> =>
  place.locator(`form[aria-label="${form}"] button`).click();

it('changes a project, and of two tabs none overwrites the other', async () => {
  const { id } = await api<Listed>('/projects', { plan: 'Pro', quota: 7 });
  const [one, other] = [await open(system.adminUrl), await open(system.adminUrl)];
  const [mine, theirs] = [await details(one.page, id), await details(other.page, id)];
  await field(mine, 'Change it', 'name').fill('Web shop');
  await field(mine, 'Change it', 'tags').fill('eu, team:web');
  await field(mine, 'Change it', 'quota').fill('');
  await field(mine, 'Change it', 'rateLimit').fill('77');
  await field(mine, 'Change it', 'origins').fill('*.shop.example');
  const values = async (choices: Locator): Promise<(string | null)[]> =>
    Promise.all((await choices.all()).map((choice) => choice.getAttribute('value')));
  expect(await values(field(mine, 'Change it', 'filters'))).toEqual(FILTER_NAMES);
  expect(await values(field(mine, 'Change it', 'plan').locator('option'))).toEqual(PLANS);
  await field(mine, 'Change it', 'filters').nth(2).uncheck();
  await send(mine, 'Change it');
  const changed = {
    name: 'Web shop',
    tags: ['eu', 'team:web'],
    rateLimit: 77,
    allowedOrigins: ['*.shop.example'],
    filters: ['browser-extension', 'localhost'],
  };
  await expect.poll(() => api<object>(`/projects/${id}`)).toMatchObject(changed);
  expect(await api(`/projects/${id}`)).not.toHaveProperty('quota');

  await field(theirs, 'Change it', 'rateLimit').fill('99');
  await send(theirs, 'Change it');
  await theirs.locator('[role=alert]', { hasText: 'has revision' }).waitFor();
  expect(await api(`/projects/${id}`)).toMatchObject(changed);
  for (const { page } of [one, other]) await page.close();
  expect(one.complaints).toEqual([]);
});

it('adds, disables and replaces keys, and deletes a project whose id is typed; says why one is not made', async () => {
  const { id, dsn } = await api<Listed>('/projects', { plan: 'Pro' });
  const { page } = await open(system.adminUrl);
  await page.locator('#create [name=rateLimit]').fill('100001');
  await page.locator('#create button').click();
  await page.locator('#refused', { hasText: /rateLimit.*100000/ }).waitFor();
  expect(await page.locator('#created').textContent()).toBe('');
  const place = await details(page, id);
  await place.getByRole('button', { name: 'Show and copy the DSN' }).click();
  expect(await place.locator('.dsn').inputValue()).toBe(dsn);
  await field(place, 'Add a key', 'label').fill('iOS');
  await send(place, 'Add a key');
  const keys = async (): Promise<unknown[]> =>
    (await api<{ label?: string; enabled: boolean; expires?: string }[]>(`/projects/${id}/keys`)).map(
      (key) => [key.label ?? '', key.enabled, key.expires !== undefined],
    );
  await expect.poll(keys).toEqual([
    ['', true, false],
    ['iOS', true, false],
  ]);
  await expect.poll(async () => (await cells(place, 'Keys')).length).toBe(2);
  await place.getByRole('button', { name: 'Disable' }).nth(1).click();
  await expect.poll(keys).toEqual([
    ['', true, false],
    ['iOS', false, false],
  ]);
  await place.getByRole('button', { name: 'Enable' }).waitFor();
  await field(place, 'Replace the key', 'overlap').selectOption('after a day');
  await send(place, 'Replace the key');
  await expect.poll(keys).toEqual([
    ['', true, false],
    ['', true, true],
    ['iOS', false, true],
  ]);
  await expect.poll(async () => (await cells(place, 'Keys')).length).toBe(3);

  // A refresh closes nothing, and neither does loading the page anew.
  expect(page.url()).toBe(`${system.adminUrl}/#search=${id}&project=${id}`);
  await page.locator('#refresh').click();
  await place.locator('h2', { hasText: 'History' }).waitFor();
  await page.reload();
  await place.locator('h2', { hasText: 'History' }).waitFor();

  await field(place, 'Delete it', 'id').fill(`${id}1`);
  await send(place, 'Delete it');
  await field(place, 'Delete it', 'id').fill(id);
  expect((await fetch(`${system.adminUrl}/v1/projects/${id}`)).status).toBe(200);
  await send(place, 'Delete it');
  await expect.poll(async () => (await fetch(`${system.adminUrl}/v1/projects/${id}`)).status).toBe(404);
  await place.waitFor({ state: 'detached' });
  await page.close();
});

it('shows with the DSN the lines that set up each of six SDKs, and copies them', async () => {
  const { id, dsn } = await api<Listed>('/projects', { plan: 'Pro' });
  const { page, complaints } = await open(system.adminUrl);
  const place = await details(page, id);
  expect(await place.locator('.snippet').count()).toBe(0);
  await place.getByRole('button', { name: 'Show and copy the DSN' }).click();
  const shown: string[] = [];
  for (const sdk of ['Browser', 'Node', 'Python', 'PHP', 'Go', 'Java']) {
    await place.locator('[name=sdk]').selectOption(sdk);
    shown.push(await place.locator('.snippet').inputValue());
  }
  expect(shown).toEqual([
    `import * as Sentry from '@sentry/browser';\nSentry.init({ dsn: '${dsn}' });`,
    `import * as Sentry from '@sentry/node';\nSentry.init({ dsn: '${dsn}' });`,
    `import sentry_sdk\nsentry_sdk.init(dsn="${dsn}")`,
    `\\Sentry\\init(['dsn' => '${dsn}']);`,
    `err := sentry.Init(sentry.ClientOptions{Dsn: "${dsn}"})`,
    `Sentry.init(options -> options.setDsn("${dsn}"));`,
  ]);
  await place.getByRole('button', { name: 'Copy the set-up' }).click();
  await place.locator('.snippet + button', { hasText: /^(Copied|Selected)$/ }).waitFor();
  expect(await violations(page)).toEqual([]);
  await page.close();
  expect(complaints).toEqual([]);
});

it('makes and deletes heartbeats, and shows a URL at a click alone', async () => {
  const { page, complaints } = await open(system.adminUrl);
  const place = page.locator('#heartbeats');
  const tokens = () => api<{ token: string; url: string }[]>('/heartbeats');
  await place.locator('.empty', { hasText: 'nothing yet' }).waitFor();
  await place.getByRole('button', { name: 'New heartbeat' }).click();
  await expect.poll(() => place.locator('tbody tr').count()).toBe(1);
  const [{ token, url } = { token: '', url: '' }] = await tokens();
  expect(await page.content()).not.toContain(token);
  await place.getByRole('button', { name: 'Show', exact: true }).click();
  expect(await place.locator('tbody td').nth(2).textContent()).toBe(url);
  page.on('dialog', (dialog) => dialog.accept());
  await place.getByRole('button', { name: 'Delete' }).click();
  await expect.poll(tokens).toEqual([]);
  await place.locator('.empty', { hasText: 'nothing yet' }).waitFor();
  await page.close();
  expect(complaints).toEqual([]);
});

it('shows refusals as they come, over a reload, and leads to the project', async () => {
  const project = await system.createProject();
  const { page, complaints } = await open(system.adminUrl);
  const button = page.getByRole('button', { name: 'Show refusals as they come' });
  const rows = page.locator('#refusals tbody tr', { hasText: project.id });
  const refuse = (): Promise<Response> => system.send({ ...project, key: 'wrong' }, errorEvent(eventId()));
  /** Sends until more rows are shown than before. */
  const untilShown = async (): Promise<string[]> => {
    const before = await rows.count();
    await until(async () => {
      await refuse();
      return (await rows.count()) > before;
    });
    return rows.first().locator('td').allTextContents();
  };
  expect(await button.getAttribute('aria-pressed')).toBe('false');
  await button.click();
  const time = expect.stringMatching(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/);
  const key = expect.stringMatching(/^[0-9a-f]{8}$/);
  const size = expect.stringMatching(/ B$/);
  expect(await untilShown()).toEqual([time, project.id, 'forbidden_key', 'unknown-key', key, size]);
  expect(await violations(page)).toEqual([]);

  await page.reload();
  await expect.poll(() => button.getAttribute('aria-pressed')).toBe('true');
  await untilShown();
  await rows.locator('a').first().click();
  await page.locator('tr.details h2', { hasText: 'History' }).waitFor();
  expect(new URL(page.url()).hash).toBe(`#project=${project.id}&refusals=shown`);
  const ended = page.waitForEvent('requestfailed', (request) => request.url().includes('/v1/tail'));
  await button.click();
  await ended;
  expect(await button.getAttribute('aria-pressed')).toBe('false');
  await page.close();
  expect(complaints).toEqual([]);
});

it('sends a test event, and says that it is stored or why not', async () => {
  const project = await system.createProject();
  const { page, complaints } = await open(system.adminUrl);
  const place = await details(page, project.id);
  const button = place.getByRole('button', { name: 'Send a test event' });
  const said = place.locator('section', { has: page.locator('h2:text-is("Test")') }).locator('[role=status]');
  await button.click();
  await said.filter({ hasText: /^Event [0-9a-f]{32} is stored\.$/ }).waitFor();
  const [id = ''] = /[0-9a-f]{32}/.exec(`${await said.textContent()}`) ?? [];
  expect(system.stored().filter((one) => one.event_id === id)).toMatchObject([
    { project_id: project.id, type: 'event', payload: { message: 'Test event of sluice' } },
  ]);
  expect(await violations(page)).toEqual([]);

  await system.processor?.stop();
  await button.click();
  await said.filter({ hasText: /is accepted, and not stored after 10 s/ }).waitFor();
  system.processor = system.startProcessor();
  await system.ready();
  await system.changeProject(project, (record) => ({ ...record, quota: 0 }));
  await until(async () => (await system.send(project, errorEvent(eventId()))).status === 429);
  await button.click();
  await said.filter({ hasText: /^The event was refused with 429: / }).waitFor();
  await page.close();
  expect(complaints).toEqual([]);
});

it('keeps its place: open projects, search, listed pages, a begun edit and scroll', async () => {
  const made: string[] = [];
  // More than one page of the list has.
  for (let at = 0; at < 55; at++) {
    const keys = [{ key: `paged${at}`, label: `of page ${at}` }];
    made.push((await api<Listed>('/projects', { plan: 'Free', keys })).id);
  }
  const all = (await api<Listed[]>('/projects?limit=1000')).map(({ id }) => id);
  const { page, complaints } = await open(system.adminUrl);
  const rows = page.locator('#listed-projects > table > tbody > tr:not(.details)');
  const histories = page.locator('tr.details h2', { hasText: 'History' });
  const top = (): Promise<number> => page.evaluate('scrollY');
  await page.locator('#listed-projects .more').click();
  await expect.poll(() => rows.count()).toBe(all.length);
  expect(await page.locator('#listed-projects .more').isVisible()).toBe(false);
  const [first, last] = [`${all[1]}`, `${all.at(-1)}`];
  for (const id of [last, first]) {
    await page.getByRole('button', { name: id, exact: true }).click();
    await histories.nth(id === last ? 0 : 1).waitFor();
  }
  expect(new URL(page.url()).hash).toBe(`#project=${last}&project=${first}`);

  // A refresh draws the lists anew, when all is read.
  const form = page.locator('tr.details').first();
  await field(form, 'Change it', 'name').fill('half a na');
  await page.evaluate('scrollTo(0, 700)');
  const old = await rows.first().elementHandle();
  await page.evaluate(`document.querySelector('#refresh').click()`);
  await expect
    .poll(() => old?.evaluate((row) => (row as unknown as { isConnected: boolean }).isConnected))
    .toBe(false);
  expect([await rows.count(), await histories.count(), await top()]).toEqual([all.length, 2, 700]);
  expect(await field(form, 'Change it', 'name').inputValue()).toBe('half a na');

  await expect.poll(() => page.evaluate('history.state.top')).toBe(700);
  await page.reload();
  await expect
    .poll(async () => [await rows.count(), await histories.count(), await top()])
    .toEqual([all.length, 2, 700]);
  await page.goBack();
  await expect.poll(() => histories.count()).toBe(1);
  expect(new URL(page.url()).hash).toBe(`#project=${last}`);
  await page.goForward();
  await expect.poll(() => histories.count()).toBe(2);

  await page.locator('#filter').fill('OF PAGE 54');
  await expect.poll(() => rows.locator('td:first-child').allTextContents()).toEqual([made[54]]);
  await page.reload();
  await expect.poll(() => rows.locator('td:first-child').allTextContents()).toEqual([made[54]]);
  expect(await page.locator('#filter').inputValue()).toBe('OF PAGE 54');
  await page.goBack();
  await expect.poll(() => rows.count()).toBe(all.length);
  expect(await page.locator('#filter').inputValue()).toBe('');
  await page.close();

  // A link shows a project that the first page of the list does not reach.
  const linked = await open(`${system.adminUrl}/#project=${last}`);
  await linked.page.locator('tr.details h2', { hasText: 'History' }).waitFor();
  await linked.page.close();
  expect([...complaints, ...linked.complaints]).toEqual([]);
});

it('sorts projects by usage, the largest first, and shows it beside the quota', async () => {
  const made: string[] = [];
  for (const name of ['small', 'large', 'none']) {
    const quota = name === 'large' && { quota: 4_000_000 };
    made.push((await api<Listed>('/projects', { plan: 'Free', name, tags: ['used'], ...quota })).id);
  }
  await system.noteUsage(`${made[0]}`, 2_000_000);
  await system.noteUsage(`${made[1]}`, 3_000_000);
  const { page, complaints } = await open(system.adminUrl);
  const rows = (): Promise<string[][]> =>
    listed(page).evaluateAll((lines) =>
      lines.map((line) => [1, 6].map((at) => line.querySelectorAll('td')[at]?.textContent ?? '')),
    );
  await page.getByRole('button', { name: 'usage this month', exact: true }).click();
  const top = [
    ['large', '3,000,000 of 4,000,000'],
    ['small', '2,000,000'],
  ];
  await expect.poll(async () => (await rows()).slice(0, 2)).toEqual(top);
  expect(await page.locator('th[aria-sort=descending]').textContent()).toBe('usage this month');
  await page.locator('#filter').fill('used');
  await expect.poll(rows).toEqual([...top, ['none', '0']]);
  await page.reload();
  await expect.poll(rows).toEqual([...top, ['none', '0']]);
  await page.close();
  expect(complaints).toEqual([]);
});

const REASONS = [HOSTILE, 'it is no frame', HOSTILE, HOSTILE];
let filed: Promise<void> | undefined;
/**
 * Files the letters of all tests that look at dead letters, once, whichever of them runs first. The
 * last has a project.
 */
const letters = (): Promise<void> => {
  filed ??= (async () => {
    for (const [at, reason] of REASONS.entries())
      await fileLetter(system.link, `page-${at}`, { reason, ...(at === 3 && { projectId: limited.id }) });
  })();
  return filed;
};

it('counts dead letters by reason and project, and shows each with its content', async () => {
  await letters();
  const { page, complaints } = await open(system.adminUrl);
  const place = page.locator('#dead-letters');
  const groups = async (): Promise<string[][]> =>
    (await cells(page.locator('main'), 'Dead letters')).slice(0, 3).map((line) => line.slice(0, 3));
  await expect.poll(groups).toEqual([
    [HOSTILE, '–', '2'],
    ['it is no frame', '–', '1'],
    [HOSTILE, limited.id, '1'],
  ]);
  await place.locator('summary').click();
  const shown = place.locator('details tbody tr:not([hidden]) td:last-child');
  expect(await shown.allTextContents()).toEqual(REASONS);
  await place.locator('#reasons [data-group]').nth(2).click();
  await expect.poll(() => shown.count()).toBe(1);
  await place.getByRole('button', { name: 'Preview' }).locator('visible=true').click();
  await place.locator('pre', { hasText: 'bytes of page-3' }).waitFor();
  await place.locator('#reasons [data-group]').nth(2).click();
  await expect.poll(() => shown.count()).toBe(REASONS.length + 1);
  await page.reload();
  await expect.poll(() => shown.first().isVisible()).toBe(true);
  expect(await page.title()).toBe('sluice ingest');
  await page.close();
  expect(complaints).toEqual([]);
});

it('replays and purges all dead letters of a project and reason, and says what became of each', async () => {
  const project = await system.createProject();
  const [reason, other] = ['the sink was away', 'the group stays'];
  const file = (frame: string, body: string | Uint8Array, why = reason): Promise<string> =>
    fileLetter(system.link, frame, { reason: why, projectId: project.id, body });
  const event = eventId();
  const ids = [await file('group-1', frameOf(project.id, event)), await file('group-2', 'no frame')];
  const staying = await file('group-3', 'no frame', other);
  const { page, complaints } = await open(system.adminUrl);
  const place = page.locator('#dead-letters');
  const button = (verb: string, why: string): Locator =>
    place.getByRole('button', { name: `${verb} all letters of project ${project.id}: ${why}` });
  const act = (verb: string, why: string): Promise<void> => button(verb, why).click();
  const said = (text: string): Promise<void> =>
    page.locator('#letters-said', { hasText: `Project ${project.id}, ${text}` }).waitFor();
  const became = (): Promise<string[][]> =>
    place
      .locator('#outcomes tbody tr')
      .evaluateAll((rows) => rows.map((row) => [...row.children].map((cell) => cell.textContent ?? '')));
  const left = async (): Promise<string[]> => (await api<Listed[]>('/dead-letters')).map(({ id }) => id);

  await button('Replay', reason).waitFor();
  // "Show" alone is pressed or not.
  const pressed = await place
    .locator('#reasons tbody tr')
    .evaluateAll((rows) =>
      rows.map((row) => [...row.querySelectorAll('button[aria-pressed]')].map((one) => one.textContent)),
    );
  expect(pressed.length).toBeGreaterThanOrEqual(2);
  expect(pressed).toEqual(pressed.map(() => ['Show']));
  await act('Replay', reason);
  await said(`${reason}: 1 stored, 1 filed again`);
  const again = expect.stringMatching(/frame/);
  expect(await became()).toEqual([
    [ids[0], 'stored', '–'],
    [ids[1], 'filed again', again],
  ]);
  expect(await page.evaluate('document.activeElement.id')).toBe('letters-said');
  expect((await system.storedOf(event)).map(({ project_id }) => project_id)).toEqual([project.id]);
  expect(await left()).not.toContain(ids[0]);
  expect(await violations(page)).toEqual([]);

  page.once('dialog', (dialog) => dialog.dismiss());
  await act('Purge', other);
  expect(await left()).toContain(staying);
  page.once('dialog', (dialog) => dialog.accept());
  await act('Purge', other);
  await said(`${other}: 1 purged`);
  expect(await became()).toEqual([[staying, 'purged', '–']]);
  expect(await left()).not.toContain(staying);
  await page.close();
  expect(complaints).toEqual([]);
});

it('asks for the token of the API where the figures need none, and shows a viewer no form', async () => {
  const connections = connectionsTo(system.nats.url, system.redis.url);
  const admin = await openAdminPort({
    connections,
    entries: ['of-the-page=a-token-of-sixteen'],
    viewers: ['a-token-of-viewers'],
    stats,
  });
  const page = await browser.newPage();
  await page.goto(`${admin.url}/`);
  await page.locator('#listed-projects .trouble', { hasText: 'Send a token' }).waitFor();
  await page.locator('#token').fill('a-token-of-sixteen');
  await page.locator('#login button').click();
  const place = await details(page, limited.id);
  expect(await page.locator('#login').isVisible()).toBe(false);
  expect(await place.locator('form').count()).toBe(4);
  await page.evaluate("sessionStorage.setItem('sluice-token', 'a-token-of-viewers')");
  await page.reload();
  await place.locator('h2', { hasText: 'History' }).waitFor();
  expect(await place.locator('form').count()).toBe(0);
  expect(await place.getByRole('button', { name: 'Disable' }).count()).toBe(0);
  expect(await page.locator('#create').isVisible()).toBe(false);
  await page.close();
  await admin.stop();
  await connections.close();
});

// The style sheet knows a scheme and no width: other tests look for violations in a wide light window.
it.each([
  ['light', 360],
  ['dark', 1180],
] as const)(
  'fits a %s window that is %i wide, and axe-core finds nothing wrong, with and without an answer',
  async (colorScheme, width) => {
    await letters();
    const { page } = await open(system.adminUrl);
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width, height: 900 });
    await details(page, limited.id);
    await page.locator('#reasons td').first().waitFor();
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(width);
    await page.locator('#dead-letters summary').click();
    expect(await violations(page)).toEqual([]);
    await page.route('**/stats.json', (route) => route.abort());
    await page.locator('#checks.stale').waitFor();
    expect(await violations(page)).toEqual([]);
    await page.close();
  },
);

it('keeps the focus where an edit draws a project anew', async () => {
  const { id } = await api<Listed>('/projects', { plan: 'Pro' });
  const { page } = await open(system.adminUrl);
  const place = await details(page, id);
  const focused = (): Promise<string> =>
    page.evaluate(`document.activeElement.dataset.place ?? document.activeElement.textContent`);
  const old = await place.locator('form[aria-label="Change it"]').elementHandle();
  await field(place, 'Change it', 'name').fill('Web shop');
  await page.keyboard.press('Enter');
  await expect
    .poll(() => old?.evaluate((form) => (form as unknown as { isConnected: boolean }).isConnected))
    .toBe(false);
  await expect.poll(focused).toBe('Change it/name/');
  const [{ id: keyId } = { id: '' }] = await api<{ id: string }[]>(`/projects/${id}/keys`);
  await place.getByRole('button', { name: `Disable key ${keyId}` }).press('Enter');
  await place.getByRole('button', { name: `Enable key ${keyId}` }).waitFor();
  await expect.poll(focused).toBe(`${keyId}/state`);
  await place.getByRole('button', { name: 'Show', exact: true }).press('Enter');
  expect(await page.evaluate('document.activeElement.tagName')).toBe('CODE');
  await page.close();
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
