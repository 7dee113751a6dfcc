/** `sluice load` as a user runs it, against the whole system, with faults in the middle. */
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import type { RunDocument } from '../../bench/load/document.ts';
import { openBrowser } from '../support/browser.ts';
import { freeze, thaw } from '../support/freeze.ts';
import { LoadCommand, type Ran, type Running } from '../support/load-command.ts';
import { TestPostgres } from '../support/postgres.ts';
import { type Project, System, until } from '../support/system.ts';

let command: LoadCommand;
let dir: string;
beforeAll(() => {
  command = new LoadCommand();
  dir = command.dir;
});
afterAll(() => command.close());
const start = (...args: string[]): Running => command.start(args);
const load = (...args: string[]): Promise<Ran> => command.run(...args);
const documentAt = (name: string): RunDocument => command.document(name);

const PICTURE_BYTES_MAX = 150 * 1024;

/** Pictures of a report for docs/load-testing.md; LOAD_PICTURES=docs puts them there. */
async function takePictures(report: string): Promise<void> {
  const browser = await openBrowser();
  try {
    for (const [width, height] of [
      [1280, 1110],
      [400, 1560],
    ] as const)
      for (const colorScheme of ['light', 'dark'] as const) {
        const page = await browser.newPage({ viewport: { width, height }, colorScheme });
        await page.goto(pathToFileURL(report).href);
        expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(width);
        const path = join(process.env.LOAD_PICTURES ?? dir, `load-report-${width}-${colorScheme}.png`);
        await page.screenshot({ path });
        await page.close();
        expect(statSync(path).size, path).toBeLessThan(PICTURE_BYTES_MAX);
      }
  } finally {
    await browser.close();
  }
}

describe('without a server', () => {
  it('a wrong command line has exit status 2 and names the option', async () => {
    const { status, err, out } = await load('--dsn', 'http://k@127.0.0.1:9/1', '--rate', 'fast');
    expect(err).toBe('sluice load: --rate: a number from 0.1, not fast\n');
    expect([status, out]).toEqual([2, '']);
  });

  it('a missed threshold has exit status 1, and CI is told', async () => {
    const { status, err } = await load(
      ...['--dsn', 'http://k@127.0.0.1:9/1', '--rate', '20', '--duration', '500ms', '--warmup', '0'],
      ...['--junit', 'junit.xml', '--summary', 'summary.md', '--quiet'],
    );
    expect(err).toMatch(/^FAILED: no request was answered\nFAILED: 10 requests failed \(10 ECONNREFUSED\)/);
    expect(status).toBe(1);
    expect(readFileSync(join(dir, 'junit.xml'), 'utf8')).toContain('failures="2"');
    expect(readFileSync(join(dir, 'summary.md'), 'utf8')).toContain('❌ 10 requests failed');
  });

  it('help says what there is', async () => {
    const { status, out } = await load('--help');
    expect(out).toContain('--stages T:N,…');
    expect(status).toBe(0);
  });
});

describe('against ingest with two workers', () => {
  let system: System;
  let project: Project;
  let common: string[];
  beforeAll(async () => {
    system = await System.start({ workers: 2 });
    project = await system.createProject();
    common = ['--dsn', system.dsn(project), '--admin', system.adminUrl, '--sink', `ndjson:${system.sinkDir}`];
  });
  afterAll(() => system?.stop());

  it('everything that was told 200 is stored once, in all encodings, also where the server makes the id', async () => {
    for (const [encoding, mix] of [
      ['sdk', 'event=5,transaction=3,log,span,replay,otlp-traces=3,otlp-logs=2'],
      ['deflate', 'event=5,transaction=3,log,span,replay'],
    ] as const) {
      const { status, err, out } = await load(
        ...common,
        ...['--encoding', encoding, '--mix', mix, '--verify', '--json', 'a.json'],
        ...['--rate', '200', '--duration', '1s', '--warmup', '200ms', '--quiet', '--connections', '16'],
      );
      expect(status, err + out).toBe(0);
      const { verification: found, statuses, server } = documentAt('a.json');
      expect(found).toMatchObject({
        accepted: 240,
        stored: 240,
        tallied: 240,
        usage: 240,
        lost: 0,
        double: 0,
      });
      expect(statuses).toEqual({ 200: 200 });
      expect(server?.outcomes.accepted).toBe(240);
    }
  });

  it('a worker that is killed and a Redis that stands still show in the report, and nothing is lost', async () => {
    const running = start(
      ...common,
      ...['--stages', '2s:200,6s:200,1s:0', '--spike', '7s+500ms:600', '--verify', '--connections', '32'],
      ...['--max-failure-rate', '60%', '--json', 'faults.json', '--report', 'faults.html'],
    );
    await until(() => / {3}2 s /.test(running.err()));
    const worker = readFileSync(
      `/proc/${system.ingest.child.pid}/task/${system.ingest.child.pid}/children`,
      'utf8',
    );
    process.kill(Number(worker.split(' ')[0]), 'SIGKILL');
    await until(() => / {3}4 s /.test(running.err()));
    await freeze(system.redis.pid);
    await until(() => / {3}6 s /.test(running.err()));
    thaw(system.redis.pid);
    const { status, err, out } = await running.ended;
    expect(status, err + out).toBe(0);
    const found = documentAt('faults.json');
    expect(found.verification).toMatchObject({ lost: 0, double: 0, refusedStored: 0, problems: [] });
    expect(found.stages.map(({ name }) => name)).toContain('spike 600/s');
    // The stall of Redis is there, second by second: refusals, or answers that waited.
    const stalled = found.perSecond.filter(
      ({ second, failed, p99Ms }) => second > 3 && (failed > 0 || (p99Ms ?? 0) > 300),
    );
    expect(stalled.length).toBeGreaterThan(0);
    expect(found.failed).toBeGreaterThan(0);
    expect(readFileSync(join(dir, 'faults.html'), 'utf8')).toContain('"lost":0');
    await takePictures(join(dir, 'faults.html'));
  });

  it('what the sink counted and does not have is told as lost', async () => {
    // The sink's journals, in which its tally is, without its data.
    const view = join(dir, 'journals');
    for (const stream of readdirSync(system.sinkDir)) {
      if (!existsSync(join(system.sinkDir, stream, 'journal'))) continue;
      mkdirSync(join(view, stream), { recursive: true });
      symlinkSync(join(system.sinkDir, stream, 'journal'), join(view, stream, 'journal'));
    }
    const { status, err } = await load(
      ...[
        '--dsn',
        system.dsn(project),
        '--sink',
        `ndjson:${view}`,
        '--verify',
        '--verify-wait',
        '5s',
        '--quiet',
      ],
      ...['--rate', '100', '--duration', '1s', '--warmup', '0', '--json', 'b.json'],
    );
    expect(err).toMatch(/FAILED: 100 of 100 envelopes that were told 200 are not in the sink/);
    expect(status).toBe(1);
    expect(documentAt('b.json').verification).toMatchObject({ tallied: 100, lost: 100, stored: 0 });
  });

  it('results of several generators are merged', async () => {
    const one = (name: string): Promise<Ran> =>
      load(...common, '--rate', '50', '--duration', '1s', '--warmup', '0', '--quiet', '--json', name);
    const ran = await Promise.all([one('g1.json'), one('g2.json')]);
    expect(ran.map(({ status }) => status)).toEqual([0, 0]);
    const merged = await load('merge', 'g1.json', 'g2.json', '--json', 'g.json', '--report', 'g.html');
    expect(merged.status, merged.err).toBe(0);
    const { requests, targetRate, runs } = documentAt('g.json');
    expect([requests, targetRate, runs.length]).toEqual([100, 100, 2]);
    const twice = await load('merge', 'g1.json', 'g1.json');
    expect([twice.status, twice.err]).toEqual([1, 'sluice load: merge: a run is in two of the files\n']);
    const none = await load('merge', 'g1.json', 'junit.xml');
    expect([none.status, none.err]).toEqual([1, expect.stringContaining('junit.xml')]);
  });

  it('the ten generators of deploy/kubernetes/load, with a smaller plan, are one result', async () => {
    const folder = new URL('../../deploy/kubernetes/load/', import.meta.url).pathname;
    const job = parse(readFileSync(join(folder, 'job.yaml'), 'utf8'));
    const { completions, template } = job.spec;
    const [name, ...args]: string[] = template.spec.containers[0].args;
    expect([name, completions]).toEqual(['load', 10]);
    const startAt = new Date(Date.now() + 20_000).toISOString();
    const partOf = async (index: number): Promise<void> => {
      const own = args.map((arg) =>
        arg
          .replace('$(DSN)', system.dsn(project))
          .replace('$(JOB_COMPLETION_INDEX)', `${index}`)
          .replace('$(START_AT)', startAt)
          .replace(/^--stages=.*/, '--stages=1s:50,2s:250'),
      );
      const { status, out, err } = await load(...own);
      // The log of a pod is both.
      writeFileSync(join(dir, `load-${index}.json`), out + err);
      expect(status, out + err).toBe(0);
    };
    await Promise.all(Array.from({ length: completions }, (_, index) => partOf(index)));
    const told = readFileSync(join(folder, 'kustomization.yaml'), 'utf8');
    const merge = /^# +sluice load (merge load-\*\.json --report .*) --max-p99 250 (.*)$/m.exec(told);
    const names = Array.from({ length: completions }, (_, index) => `load-${index}.json`);
    const [, command = '', more = ''] = merge ?? [];
    const merged = await load(
      ...command.split(' ').flatMap((word) => (word === 'load-*.json' ? names : [word])),
      ...[...more.split(' '), '--json', 'ten.json'],
    );
    expect(merged.status, merged.err).toBe(0);
    const { requests, failed, targetRate, runs, stages, connections, startedAt } = documentAt('ten.json');
    expect([requests, failed, targetRate, runs.length, connections]).toEqual([325, 0, 250, 10, 640]);
    expect(stages.map((one) => one.name)).toEqual(['0 → 50/s', '50 → 250/s']);
    expect(Date.parse(startedAt)).toBeGreaterThanOrEqual(Date.parse(startAt));
    expect(readFileSync(join(dir, 'all.html'), 'utf8')).toContain('"requests":325');
  });
});

describe('against ingest whose management API has tokens', () => {
  const TOKENS = 'ci=correct-horse-battery,another-of-sixteen';
  let system: System;
  beforeAll(async () => {
    system = await System.start({
      workers: 2,
      env: { SLUICE_ADMIN_TOKEN: TOKENS, SLUICE_ADMIN_HOST: '0.0.0.0' },
    });
  });
  afterAll(() => system?.stop());
  const withToken = (...args: string[]): Promise<Ran> =>
    command.start([...args, '--sink', `ndjson:${system.sinkDir}`], { SLUICE_ADMIN_TOKEN: TOKENS }).ended;

  it('projects are made by it, and their usage is compared by it', async () => {
    const { status, err, out } = await withToken(
      ...['--projects', '20', '--api', system.adminUrl, '--even', '--verify', '--quiet'],
      ...['--rate', '200', '--duration', '1s', '--warmup', '200ms', '--json', 'projects.json'],
    );
    expect(status, err + out).toBe(0);
    expect(documentAt('projects.json').verification).toMatchObject({
      accepted: 240,
      stored: 240,
      tallied: 240,
      usage: 240,
      lost: 0,
      double: 0,
      problems: [],
      notes: [],
    });
    const senders = new Set(system.stored().map(({ project_id }) => project_id));
    expect(senders.size).toBe(20);
  });

  it('the usage of the page is compared where only the admin port is named', async () => {
    const project = await system.createProject();
    const { status, err, out } = await withToken(
      ...['--dsn', system.dsn(project), '--admin', system.adminUrl, '--verify', '--quiet'],
      ...['--rate', '50', '--duration', '1s', '--warmup', '0', '--json', 'page.json'],
    );
    expect(status, err + out).toBe(0);
    expect(documentAt('page.json').verification).toMatchObject({ usage: 50, notes: [] });
  });

  it('a token that it does not know is named', async () => {
    const args = ['--projects', '1', '--api', system.adminUrl];
    const { status, err } = await command.start(args, { SLUICE_ADMIN_TOKEN: 'wrong-but-long-enough' }).ended;
    expect(err).toMatch(/refuses the token of SLUICE_ADMIN_TOKEN \(401\)\n$/);
    expect(status).toBe(1);
  });

  it('the knee is the last rate at which nothing was refused', async () => {
    // 500 requests a minute: with their warm-up 50 a second are 125, 75 are 188, and of the 283 of 113 a second some are refused.
    const project = await system.createProject({ rateLimit: 500 });
    const common = [
      '--dsn',
      system.dsn(project),
      '--find-knee',
      '--step',
      '2s',
      '--warmup',
      '500ms',
      '--quiet',
    ];
    const search = (...args: string[]): Promise<Ran> => load(...common, ...args);
    const found = await search('--rate', '50', '--json', 'knee.json');
    expect(found.status, found.err + found.out).toBe(0);
    expect(found.out + found.err).toMatch(/75\/s is good\n113\/s is not good: /);
    const { knee, checks, requests } = documentAt('knee.json');
    expect(knee?.lastGoodRate).toBe(75);
    expect(knee?.steps.slice(0, 3).map(({ rate, good }) => [rate, good])).toEqual([
      [50, true],
      [75, true],
      [113, false],
    ]);
    expect(checks).toEqual([{ name: 'a rate is good', figure: '75/s' }]);
    expect(requests).toBeGreaterThan(113);
    const none = await search('--rate', '60');
    expect(none.err).toMatch(/FAILED: not even 60 requests\/s are good\n$/);
    expect(none.status).toBe(1);
  });
});

it('the ids are looked up in PostgreSQL, too', async () => {
  const server = await TestPostgres.start();
  const system = await System.start({ env: { SLUICE_SINK: server.url } });
  try {
    const project = await system.createProject();
    const { status, err, out } = await load(
      ...[
        '--dsn',
        system.dsn(project),
        '--admin',
        system.adminUrl,
        '--sink',
        server.url,
        '--verify',
        '--quiet',
      ],
      ...[
        '--mix',
        'event=3,transaction,log,span,replay',
        '--rate',
        '200',
        '--duration',
        '1s',
        '--json',
        'pg.json',
      ],
    );
    expect(status, err + out).toBe(0);
    const { verification: found } = documentAt('pg.json');
    expect(found).toMatchObject({
      accepted: 400,
      stored: 400,
      tallied: 400,
      lost: 0,
      double: 0,
      problems: [],
    });
  } finally {
    await system.stop();
    await server.close();
  }
});
