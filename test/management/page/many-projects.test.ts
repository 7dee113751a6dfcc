/** The page of the admin port with hundreds and with fifty thousand projects, in a real browser over a real system. */
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { seedProjects } from '../../projects/broker.ts';
import { openBrowser, openPage } from '../../support/browser.ts';
import { System } from '../../support/system.ts';

const [NARROW, WIDE] = [400, 1280];
const FEW = 500;
/** No longer name or label is allowed. The first letters sort against the ids: the last project comes first. */
const TITLE_CHARS = 100;
const title = (n: number): string => `${100_000 - n}`.padEnd(TITLE_CHARS - `${n}`.length, 'w') + n;

let system: System;
let browser: Browser;

beforeAll(async () => {
  [system, browser] = await Promise.all([
    System.start({ processor: false, env: { SLUICE_PUBLIC_URL: 'https://in.example' } }),
    openBrowser(),
  ]);
});
afterAll(async () => {
  await browser?.close();
  await system?.stop();
});

const shown = (page: Page): Promise<string[]> =>
  page.locator('#listed-projects > table > tbody > tr:not(.details) > td:first-child').allTextContents();
const ids = (first: number, count: number, step = 1): string[] =>
  Array.from({ length: count }, (_, at) => `${first + step * at}`);
const width = (page: Page): Promise<unknown> => page.evaluate('document.documentElement.scrollWidth');

it.each([
  [FEW, 1],
  [50_000, FEW + 1],
])(
  'lists, searches, sorts and pages %i projects with names and labels of 100 letters',
  async (count, first) => {
    await seedProjects(system.link, { first, count: count - first + 1, title });
    const most = `${count - 7}`;
    await system.noteUsage(most, count);
    const { page, asked, complaints } = await openPage(browser, system.adminUrl);
    await page.setViewportSize({ width: NARROW, height: 900 });
    const more = page.locator('#listed-projects .more');

    // All records are read first, which takes long on a busy machine.
    await expect.poll(() => shown(page), { timeout: 120_000 }).toEqual(ids(1, 50));
    expect(await width(page)).toBe(NARROW);
    await more.click();
    await expect.poll(() => shown(page)).toEqual(ids(1, 100));

    await page.getByRole('button', { name: 'name', exact: true }).click();
    await expect.poll(() => shown(page)).toEqual(ids(count, 50, -1));
    await more.click();
    await expect.poll(() => shown(page)).toEqual(ids(count, 100, -1));
    await page.getByRole('button', { name: 'usage this month' }).click();
    await expect.poll(async () => (await shown(page))[0]).toBe(most);
    await more.click();
    await expect.poll(() => shown(page)).toHaveLength(100);
    expect(new Set(await shown(page)).size).toBe(100);

    await page.getByRole('searchbox').fill(title(count));
    await expect.poll(() => shown(page)).toEqual([`${count}`]);
    await page.setViewportSize({ width: WIDE, height: 900 });
    const panel = `document.querySelector('#listed-projects')`;
    expect(await page.evaluate(`${panel}.scrollWidth - ${panel}.clientWidth`)).toBe(0);
    await page.setViewportSize({ width: NARROW, height: 900 });
    await page.getByRole('button', { name: `${count}`, exact: true }).click();
    await page.locator('tr.details h2', { hasText: 'History' }).waitFor();
    expect(await width(page)).toBe(NARROW);
    await page.close();
    expect(complaints).toEqual([]);

    // The page asks for one page of the list at a time, whatever the number of projects.
    const lists = asked.filter((url) => url.includes('/v1/projects?'));
    expect(lists.filter((url) => new URL(url).searchParams.get('limit') !== '50')).toEqual([]);
    expect(lists.length).toBeLessThan(10);
  },
);
