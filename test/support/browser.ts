/** Headless Chromium, as Debian packages it or wherever the machine has it. The one without windows uses half the CPU. */
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { type Browser, chromium, type Page } from 'playwright-core';

const PLACES = [
  '/usr/bin/chromium-headless-shell',
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
  '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome',
];

export const findBrowser = (): string | undefined => PLACES.find((path) => existsSync(path));

/** Quiet: without these flags Chromium looks up its maker's hosts at every start. */
const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

export function openBrowser(): Promise<Browser> {
  const executablePath = findBrowser();
  if (!executablePath) throw new Error('no Chromium found: apt-get install chromium');
  return chromium.launch({ executablePath, args: FLAGS });
}

/** A page of the admin port, everything that it asks for, and everything that it complains about. */
export type Opened = { page: Page; asked: string[]; complaints: string[] };

export async function openPage(browser: Browser, url: string): Promise<Opened> {
  const page = await browser.newPage();
  const asked: string[] = [];
  const complaints: string[] = [];
  page.on('request', (request) => asked.push(request.url()));
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(message.text());
  });
  await page.goto(new URL(url).href);
  await page.locator('#main').waitFor({ state: 'visible' });
  return { page, asked, complaints };
}

/** Finds what axe-core finds wrong in the page: the rule, and where. */
export async function violations(page: Page): Promise<string[]> {
  await page.evaluate(readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8'));
  type Found = { violations: { id: string; nodes: { target: string[]; failureSummary: string }[] }[] };
  const found = (await page.evaluate('axe.run()')) as Found;
  return found.violations.flatMap(({ id, nodes }) =>
    nodes.map(({ target, failureSummary }) => `${id}: ${target.join(' ')}: ${failureSummary}`),
  );
}
