/** `sluice load` as a user runs it, against the whole system, with faults in the middle. */
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RunDocument } from '../../bench/load/document.ts';
import type { Project } from '../../src/projects/project.ts';
import { TestPostgres } from '../support/postgres.ts';
import { System, until } from '../support/system.ts';

const CLI = new URL('../../dist/cli.js', import.meta.url).pathname;

type Ran = { status: number | null; out: string; err: string };
type Running = { ended: Promise<Ran>; err(): string };

let dir: string;
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'sluice-load-'));
});
afterAll(() => rmSync(dir, { recursive: true }));

function start(...args: string[]): Running {
  const env = { ...process.env };
  delete env.SLUICE_SINK;
  delete env.GITHUB_STEP_SUMMARY;
  const child = spawn(process.execPath, [CLI, 'load', ...args], {
    cwd: dir,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const ran: Ran = { status: null, out: '', err: '' };
  child.stdout.on('data', (data: Buffer) => {
    ran.out += data.toString();
  });
  child.stderr.on('data', (data: Buffer) => {
    ran.err += data.toString();
  });
  const ended = new Promise<Ran>((resolve) => child.once('close', (status) => resolve({ ...ran, status })));
  return { ended, err: () => ran.err };
}
const load = (...args: string[]): Promise<Ran> => start(...args).ended;
const documentAt = (name: string): RunDocument =>
  JSON.parse(readFileSync(join(dir, name), 'utf8')) as RunDocument;

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
    for (const encoding of ['sdk', 'deflate']) {
      const { status, err, out } = await load(
        ...common,
        ...[
          '--encoding',
          encoding,
          '--mix',
          'event=5,transaction=3,log,span,replay',
          '--verify',
          '--json',
          'a.json',
        ],
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
    process.kill(system.redis.pid, 'SIGSTOP');
    await until(() => / {3}6 s /.test(running.err()));
    process.kill(system.redis.pid, 'SIGCONT');
    const { status, err, out } = await running.ended;
    expect(status, err + out).toBe(0);
    const found = documentAt('faults.json');
    expect(found.verification).toMatchObject({ lost: 0, double: 0, refusedStored: 0, problems: [] });
    expect(found.stages.map(({ name }) => name)).toContain('spike 600/s');
    // The stall of Redis is there, second by second: refusals, or answers that waited.
    const stalled = found.perSecond.filter(
      ({ second, failed, p99Ms }) => second > 3 && (failed > 0 || p99Ms > 300),
    );
    expect(stalled.length).toBeGreaterThan(0);
    expect(found.failed).toBeGreaterThan(0);
    expect(readFileSync(join(dir, 'faults.html'), 'utf8')).toContain('"lost":0');
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
