/** The report opens in a browser that may fetch nothing, draws everything, and takes no text of the run for markup. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { machineOf, type RunDocument } from '../../bench/load/document.ts';
import { newHistogram, Recording, TIMED_OUT } from '../../bench/load/recording.ts';
import { type Facts, resultOf, type Second } from '../../bench/load/result.ts';
import { junitXml } from '../../bench/load/show/junit.ts';
import { LiveView, type Screen, secondLine } from '../../bench/load/show/live.ts';
import { reportHtml } from '../../bench/load/show/report.ts';
import { summaryMarkdown } from '../../bench/load/show/summary.ts';
import { documentText } from '../../bench/load/show/text.ts';
import { parseBound, violations } from '../../bench/load/thresholds.ts';
import { openBrowser } from '../support/browser.ts';

const HOSTILE = '</script><script>document.title = "taken"</script><b>&';

function factsOf(): Facts {
  const second = (at: number): Second => ({
    second: at,
    stage: at > 5 ? 1 : 0,
    sent: 100,
    ok: 100,
    failed: at === 7 ? 2 : 0,
    statuses: { 200: 100, ...(at === 7 && { 429: 1, 'time-out': 1 }) },
    ...{ ms: 1_000, open: at },
    ...{ p50Ms: 5, p90Ms: 7, p95Ms: 8, p99Ms: at * 10, p999Ms: at * 11 },
  });
  const wait = newHistogram();
  wait.recordValue(0);
  const half = { seconds: 5, answered: 500, late: 0 };
  return {
    loop: 'open',
    targetRate: 150,
    connections: 64,
    startedAt: '2026-01-02T03:04:05.000Z',
    seconds: 10,
    expectedStatuses: [200],
    segments: [
      { name: '0 → 100/s', fromMs: 0, toMs: 5_000, fromRate: 0, toRate: 100, ...half },
      { name: HOSTILE, fromMs: 5_000, toMs: 10_000, fromRate: 100, toRate: 150, ...half },
    ],
    expectedInAll: 1_000,
    ...{ late: 0, waited: 0, wait, service: newHistogram(), unstored: {} },
    unanswered: { 'no answer within 10 s': 1 },
    sentBytes: 1,
    perSecond: Array.from({ length: 10 }, (_, n) => second(n + 1)),
    workload: 'abc',
    generator: { cpuUsPerRequest: 20, busy: 0.1, lateP50Ms: 0.4, lateP99Ms: 7, bottleneck: [HOSTILE] },
  };
}

function documentOf(): RunDocument {
  const recording = new Recording(['event', HOSTILE]);
  for (let n = 1; n <= 1_000; n++) recording.record({ stage: n > 500 ? 1 : 0, kind: n % 2 }, 200, n * 100);
  recording.record({ stage: 1, kind: 0 }, 429, 900);
  recording.record({ stage: 1, kind: 0 }, TIMED_OUT, 10_000_000);
  const result = resultOf(recording, factsOf());
  const missed = `2 requests failed (${HOSTILE})`;
  return {
    ...result,
    histograms: recording.toRecorded(),
    version: 2,
    runs: ['0123'],
    machine: machineOf(),
    settings: { dsn: HOSTILE },
    checks: [
      { name: 'at most 0 failures', figure: '2', missed },
      { name: 'p99 at most 500 ms', figure: '99 ms' },
    ],
    missed: [missed],
    server: {
      looks: [1, 2, 3].map((n) => ({
        second: n,
        values: { 'accepted/s': 100 * n, 'mean request ms': n, workers: 2 },
      })),
      outcomes: { accepted: 1_000 },
    },
  };
}

const document = documentOf();

describe('the report', () => {
  let browser: Browser;
  let dir: string;
  beforeAll(async () => {
    dir = mkdtempSync(join(tmpdir(), 'sluice-report-'));
    writeFileSync(join(dir, 'report.html'), reportHtml(document));
    browser = await openBrowser();
  });
  afterAll(async () => {
    await browser?.close();
    rmSync(dir, { recursive: true });
  });

  it.each(['light', 'dark'] as const)('draws itself, in %s, from one file', async (colorScheme) => {
    const page = await browser.newPage({ colorScheme });
    const requests: string[] = [];
    const errors: string[] = [];
    page.on('request', (request) => requests.push(request.url()));
    page.on('pageerror', (error) => errors.push(error.message));
    page.on('console', (message) => errors.push(message.text()));
    await page.goto(pathToFileURL(join(dir, 'report.html')).href);
    expect(errors).toEqual([]);
    expect(requests).toHaveLength(1);
    expect(await page.title()).toBe('sluice load');
    expect(await page.textContent('#verdict')).toBe('1 of 2 checks do not hold');
    expect(await page.locator('#charts .panel').count()).toBe(7);
    expect(await page.locator('#charts .legend li').count()).toBe(11);
    expect(await page.locator('#charts svg[role=img] rect.area').count()).toBeGreaterThan(20);
    expect(await page.locator('#charts').innerHTML()).not.toMatch(/NaN|undefined|Infinity/);
    const cards = await page.textContent('#cards');
    expect(cards).toContain('failed2');
    expect(cards).toContain('answered as expected100/s1000 in time, 0 after the end');
    expect(await page.textContent('#tables')).toContain(HOSTILE);
    const ground = await page.evaluate('getComputedStyle(document.body).backgroundColor');
    expect(ground).toBe(colorScheme === 'dark' ? 'rgb(15, 20, 27)' : 'rgb(245, 246, 248)');
    await page.close();
  });

  it('has letters of their own size on a telephone, and nothing to its right', async () => {
    const page = await browser.newPage({ viewport: { width: 400, height: 800 } });
    await page.goto(pathToFileURL(join(dir, 'report.html')).href);
    const scales: number[] = await page.$$eval('#charts svg[role=img]', (drawings) =>
      drawings.map((one) => one.clientWidth / Number(one.getAttribute('viewBox')?.split(' ')[2])),
    );
    expect(scales).toHaveLength(7);
    for (const scale of scales) expect(scale).toBeGreaterThan(0.9);
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(400);
    await page.close();
  });
});

it.each([
  ['a second in which nothing was asked', { sent: 0, ok: 0, p50Ms: null, p99Ms: null }, 2],
  ['a second of refusals', { ok: 0, statuses: { 429: 100 }, p50Ms: null, p99Ms: null }, 2],
  ['a second in which nothing was answered, with its open requests', { ok: 0, p50Ms: 900, p99Ms: 990 }, 1],
])('the line of latencies and %s', async (_name, second, lines) => {
  const perSecond = document.perSecond.map((one) => (one.second === 5 ? { ...one, ...second } : one));
  const browser = await openBrowser();
  try {
    const page = await browser.newPage();
    await page.setContent(reportHtml({ ...document, perSecond }));
    const chart = page.locator('svg[aria-label^="Latency from the intended moment"]');
    expect(await chart.locator('polyline.s3').count()).toBe(lines);
    const points = await chart
      .locator('polyline.s3')
      .evaluateAll((all) => all.map((one) => one.getAttribute('points')));
    expect(points.join(' ').split(' ')).toHaveLength(lines === 1 ? 10 : 9);
  } finally {
    await browser.close();
  }
});

describe('--fail-on', () => {
  // 1,000 requests took 0.1 to 100 ms, those of stage 2 50 and more; one was refused, and one given up after 10 s.
  it.each([
    ['p50>40', /^p50>40: it is 50/],
    ['p50>60', undefined],
    ['p99.9>900', undefined],
    ['max>900', /^max>900: it is 1000/],
    ['rate<500', /^rate<500: it is 100$/],
    ['rate<50', undefined],
    ['event:count<400', undefined],
    ['event:p95>90', /^event:p95>90/],
    ['429:share>1%', undefined],
    ['429:share>0.05%', /^429:share>0.05%/],
    ['503:share>0%', undefined],
    ['time-out:count>0', /^time-out:count>0: it is 1$/],
    ['stage 1:max>60', undefined],
    ['stage 2:p50>60', /^stage 2:p50>60/],
    ['wait:p99>0', undefined],
    ['service:count<1', /^service:count<1: it is 0$/],
    ['service:p99>200', /^service:p99>200: no request was accepted, so it has no p99$/],
    ['429:p99>200', undefined],
    ['503:p99>200', undefined],
    ['stage 3:p99>1', /nothing of "stage 3" was sent/],
    ['session:p99>1', /nothing of "session" was sent/],
  ])('%s', (text, said) => {
    const bound = parseBound(text);
    expect(bound).toBeDefined();
    const missed = violations(document, { maxFailures: 2, bounds: bound ? [bound] : [] });
    expect(missed).toEqual(said ? [expect.stringMatching(said)] : []);
  });
});

describe('a run of which every request was refused', () => {
  const recording = new Recording(['event']);
  for (let n = 1; n <= 100; n++) recording.record({ stage: n % 2, kind: 0 }, 429, 100);
  const result = resultOf(recording, { ...factsOf(), expectedStatuses: [200, 429], perSecond: [] });
  const refused: RunDocument = { ...document, ...result, histograms: recording.toRecorded() };

  it('has no latency in any output, and no bound of one holds', async () => {
    expect(JSON.parse(JSON.stringify(refused))).toMatchObject({
      latencyMs: { count: 0, p50: null, p99: null, points: [] },
      stages: [{ latencyMs: { p50: null } }, { latencyMs: { p50: null } }],
      byKind: { event: { p99: null } },
      byStatus: { 429: { p99: 0.1 } },
    });
    for (const text of [documentText(refused), junitXml(refused)]) {
      expect(text).toContain('latency ms: mean -  p50 -  p90 -  p95 -  p99 -  p99.9 -  max -');
      expect(text.match(/\/s {2}p50 - {2}p99 - {2}max - ms/g)).toHaveLength(2);
    }
    expect(summaryMarkdown(refused)).toContain('| - | - | - | - | - |');
    for (const bound of ['p99>200', 'p99<200', 'event:p95>200', 'stage 1:max>900']) {
      const bounds = [parseBound(bound) as NonNullable<ReturnType<typeof parseBound>>];
      expect(violations(refused, { bounds })).toEqual([expect.stringContaining('so it has no ')]);
    }
    const browser = await openBrowser();
    try {
      const page = await browser.newPage();
      await page.setContent(reportHtml(refused));
      expect(await page.textContent('#cards')).toMatch(/p50– ms.*p99– ms.*p99\.9– ms/s);
      expect(await page.textContent('#tables')).not.toMatch(/NaN|undefined|null/);
    } finally {
      await browser.close();
    }
  });
});

it('JUnit has each check, and no text of the run as markup', () => {
  const xml = junitXml({ ...document, checks: [{ name: 'a\u0007<b>', figure: '1', missed: '"2" & more' }] });
  expect(xml).toContain(
    '<testcase classname="sluice load" name="a&lt;b&gt;" time="0"><failure message="&quot;2&quot; &amp; more"/>',
  );
  expect(xml).toContain('tests="1" failures="1"');
  expect(xml).toMatch(
    /<system-out>open loop, .*answered as expected 100\/s .*<\/system-out>\n<\/testsuite>\n$/s,
  );
});

it('the summary for CI names what does not hold', () => {
  const text = summaryMarkdown(document);
  expect(text).toMatch(/^## sluice load: ❌ 1 of 2 do not hold\n/);
  expect(text).toContain('| p99 at most 500 ms | 99 ms | ✅ |');
});

describe('the live view', () => {
  const shown = (isTTY: boolean): string[] => {
    const written: string[] = [];
    const screen: Screen = { isTTY, columns: 60, write: (text) => written.push(text) };
    const view = new LiveView(screen);
    for (const second of document.perSecond) view.show(second);
    return written;
  };

  it('is a line a second where nobody looks', () => {
    expect(shown(false)[6]).toBe(
      '   7 s        102/s  p50 5.00 ms  p99 70.0 ms  open 7  429: 1  time-out: 1\n',
    );
  });

  it('has a count, not a rate, of what came after the end', () => {
    const [second] = document.perSecond as [Second];
    expect(secondLine({ ...second, ms: 250, ok: 30 })).toContain(' 120/s ');
    expect(secondLine({ ...second, ms: 250, ok: 30, late: true })).toContain(' 30.0 after the end ');
  });

  it('has no latency of a second in which every request was refused', () => {
    const [second] = document.perSecond as [Second];
    expect(secondLine({ ...second, statuses: { 429: 100 }, p50Ms: null, p99Ms: null })).toBe(
      '   1 s        100/s  p50 - ms  p99 - ms  open 1  429: 100',
    );
  });

  it('is a chart that is drawn over itself on a terminal', () => {
    const [first, second, ...more] = shown(true);
    expect(first).not.toContain('\x1b[4A');
    expect(second?.startsWith('\x1b[4A\r   2 s')).toBe(true);
    const lines = more.at(-1)?.replaceAll('\x1b[K', '').trimEnd().split('\n') ?? [];
    expect(lines[2]).toBe('\rp99, to 100 ms        ▁▂▃▄▄▅▆▇██');
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(64);
  });
});
