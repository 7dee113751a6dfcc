/**
 * Ten tasks of a day on the page, done by somebody who sees the page for the first time: by roles and names alone, as a
 * screen reader tells them, among 500 projects. Clicks and filled fields are counted; docs/CONTRIBUTING.md has the table.
 */
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { keyId, type Project } from '../../../src/projects/project.ts';
import { ProjectStore } from '../../../src/projects/project-store.ts';
import { seedProjects } from '../../projects/broker.ts';
import { openBrowser, openPage } from '../../support/browser.ts';
import { errorEvent, eventId } from '../../support/envelopes.ts';
import { fileLetter, frameOf } from '../../support/letters.ts';
import { temporaryFolder } from '../../support/servers.ts';
import { System, until } from '../../support/system.ts';

const PROJECTS = 500;
const SHOPS = [
  'Bakery',
  'Bicycles',
  'Books',
  'Flowers',
  'Garden',
  'Music',
  'Shoes',
  'Toys',
  'Travel',
  'Wine',
];
const title = (n: number): string => `${SHOPS[n % SHOPS.length]} ${n}`;
/** The project of all tasks. */
const NUMBER = 437;
const NAME = title(NUMBER);
const REASON = 'the sink was away';

let system: System;
let browser: Browser;
const read = async (): Promise<Project> => (await ProjectStore.open(system.link)).get(`${NUMBER}`);

beforeAll(async () => {
  const env = { SLUICE_PUBLIC_URL: 'https://in.example' };
  [system, browser] = await Promise.all([System.start({ workers: 2, env }), openBrowser()]);
  await seedProjects(system.link, { count: PROJECTS, title });
  await system.changeProject(await read(), (record) => ({ ...record, filters: [], quota: 1_000 }));
  await system.registryKnown();
  const project = await read();
  for (const key of ['an-old-key', 'an-old-key', project.key]) {
    const sent = await system.send({ ...project, key }, errorEvent(eventId()));
    expect(sent.status).toBe(key === project.key ? 200 : 401);
  }
  for (const frame of ['day-1', 'day-2'])
    await fileLetter(system.link, frame, {
      reason: REASON,
      projectId: project.id,
      body: frameOf(project.id, eventId()),
    });
  // A worker saves what became of requests every five seconds.
  const usage = async (): Promise<string> =>
    (await fetch(`${system.adminUrl}/v1/projects/${NUMBER}/usage?hours=2`)).text();
  await until(async () => /unknown-key/.test(await usage()) && /"accepted":1/.test(await usage()));
});
afterAll(async () => {
  await browser?.close();
  await system?.stop();
});

/** Somebody at the page, who finds things by role and name, and counts clicks and fields. */
class Person {
  clicks = 0;
  fields = 0;
  readonly page: Page;

  constructor(page: Page) {
    this.page = page;
  }

  async click(role: 'button' | 'checkbox', name: string | RegExp, place: Page | Locator = this.page) {
    await place.getByRole(role, { name, exact: true }).click();
    this.clicks++;
  }

  async fill(
    role: 'searchbox' | 'spinbutton' | 'textbox',
    name: string | RegExp,
    text: string,
    place: Page | Locator = this.page,
  ) {
    await place.getByRole(role, { name }).fill(text);
    this.fields++;
  }

  async choose(name: string, option: string): Promise<void> {
    await this.page.getByRole('combobox', { name }).selectOption({ label: option });
    this.fields++;
  }

  /** Searches for a project by its name. @returns its row */
  async find(name: string): Promise<Locator> {
    await this.fill('searchbox', 'search projects', name);
    const rows = this.page.getByRole('table', { name: 'all projects' }).getByRole('row', { name });
    await expect.poll(() => rows.count()).toBe(1);
    return rows;
  }

  /** Finds the project of the tasks, and opens it. */
  async openProject(): Promise<void> {
    await this.click('button', `${NUMBER}`, await this.find(NAME));
    await this.page.getByRole('heading', { name: 'History' }).waitFor();
  }

  form(name: string): Locator {
    return this.page.getByRole('form', { name });
  }
}

type Task = readonly [name: string, work: (person: Person) => Promise<void>];
const TASKS: readonly Task[] = [
  [
    'A customer says that events vanish: why?',
    async (person) => {
      await person.openProject();
      const why = person.page.getByRole('table', { name: 'Why refused, filtered or empty' });
      const row = why.getByRole('row', { name: 'forbidden_key unknown-key' });
      expect(await row.textContent()).toContain(keyId('an-old-key'));
    },
  ],
  [
    'Hand out a DSN',
    async (person) => {
      await person.openProject();
      await person.click('button', 'Show and copy the DSN');
      const { key } = await read();
      const field = person.page.getByRole('textbox', { name: 'DSN' });
      expect(await field.inputValue()).toBe(`https://${key}@in.example/${NUMBER}`);
    },
  ],
  [
    'Replace a leaked key, the old one ends after a day',
    async (person) => {
      const { key } = await read();
      await person.openProject();
      await person.choose('The keys before end', 'after a day');
      await person.click('button', 'Replace');
      await expect.poll(async () => (await read()).key).not.toBe(key);
      expect((await read()).keys?.find((one) => one.key === key)?.expires).toBeDefined();
    },
  ],
  [
    'Switch a key off',
    async (person) => {
      const { key } = await read();
      await person.openProject();
      await person.click('button', `Disable key ${keyId(key)}`);
      const isEnabled = async () => (await read()).keys?.find((one) => one.key === key)?.enabled;
      await expect.poll(isEnabled).toBe(false);
    },
  ],
  [
    'Raise a limit',
    async (person) => {
      await person.openProject();
      await person.fill('spinbutton', 'Limit a minute', '5000', person.form('Change it'));
      await person.click('button', 'Save');
      await expect.poll(async () => (await read()).rateLimit).toBe(5000);
    },
  ],
  [
    'Add a filter',
    async (person) => {
      await person.openProject();
      await person.click('checkbox', 'crawler');
      await person.click('button', 'Save');
      await expect.poll(async () => (await read()).filters).toEqual(['crawler']);
    },
  ],
  [
    'Find a project among 500',
    async (person) => {
      expect(await (await person.find('Wine 499')).getByRole('button').textContent()).toBe('499');
    },
  ],
  [
    'Replay the dead letters of one reason',
    async (person) => {
      await person.click('button', `Replay all letters of project ${NUMBER}: ${REASON}`);
      await person.page.getByRole('status').filter({ hasText: '2 stored' }).waitFor();
      const became = person.page.getByRole('table', { name: 'What became of each' });
      expect(await became.getByRole('row', { name: 'stored' }).count()).toBe(2);
    },
  ],
  [
    'Check when an event came last',
    async (person) => {
      await person.openProject();
      await person.page.getByText(/^last accepted request: in the hour from \d{4}-/).waitFor();
    },
  ],
  [
    'Delete a project',
    async (person) => {
      await person.openProject();
      await person.fill('textbox', new RegExp(`^Type ${NUMBER}:`), `${NUMBER}`);
      await person.click('button', 'Delete', person.form('Delete it'));
      await expect.poll(async () => (await read().catch(() => undefined))?.id).toBeUndefined();
    },
  ],
];

/** Rows of the table in docs/CONTRIBUTING.md: clicks and fields of each task, by name. */
function documented(): Map<string, string> {
  const text = readFileSync(new URL('../../../docs/CONTRIBUTING.md', import.meta.url), 'utf8');
  const rows = [...text.matchAll(/^\| ([^|]+?) \| (\d+) \| (\d+) \|/gm)];
  return new Map(rows.map(([, name = '', clicks, fields]) => [name, `${clicks} clicks, ${fields} fields`]));
}

/** Some requests of eight projects, of which a few are refused, so that the pictures have figures. */
async function makeTraffic(rounds: number): Promise<void> {
  const project = await read();
  for (let round = 0; round < rounds; round++) {
    const requests = Array.from({ length: 8 + (round % 5) * 4 }, (_, at) => {
      const id = `${NUMBER - (at % 8)}`;
      const key = at === 9 ? 'an-old-key' : id.padStart(32, 'b');
      return system.send({ ...project, id, key }, errorEvent(eventId()));
    });
    await Promise.all(requests);
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}

const PICTURE_BYTES_MAX = 600_000;
/** Folder for which pictures are made; undefined: the test alone looks at them. */
const { PAGE_PICTURES } = process.env;
it('looks as docs/page-*.png show; PAGE_PICTURES=docs puts the pictures there', async () => {
  const folder = PAGE_PICTURES ?? temporaryFolder('pictures');
  const looks = [
    { width: 1280, height: 2000, top: 'body' },
    { width: 400, height: 1640, top: '#listed-projects' },
  ].flatMap((size) => [
    { ...size, colorScheme: 'light' as const },
    { ...size, colorScheme: 'dark' as const },
  ]);
  const { page } = await openPage(browser, system.adminUrl);
  if (PAGE_PICTURES) await makeTraffic(60);
  await new Person(page).openProject();
  for (const { width, height, top, colorScheme } of looks) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width, height });
    await page.evaluate(`document.activeElement.blur(); document.querySelector('${top}').scrollIntoView()`);
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(width);
    const path = join(folder, `page-${width}-${colorScheme}.png`);
    await page.screenshot({ path });
    expect(statSync(path).size, path).toBeLessThan(PICTURE_BYTES_MAX);
  }
  await page.close();
});

it.each(TASKS)(
  '%s: done by roles and names, in as many clicks and fields as docs say',
  async (name, work) => {
    const { page, complaints } = await openPage(browser, system.adminUrl);
    const person = new Person(page);
    await work(person);
    await page.close();
    expect(complaints).toEqual([]);
    expect(`${person.clicks} clicks, ${person.fields} fields`).toBe(documented().get(name));
  },
);

it('has no further task in the docs', () => {
  const names = TASKS.map(([name]) => name);
  expect([...documented().keys()].filter((name) => names.includes(name))).toEqual(names);
});
