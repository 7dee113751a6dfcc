/** With `--json -` a log that both streams of the program go to, as that of a pod, is the JSON and nothing else. */
import { spawnSync } from 'node:child_process';
import { closeSync, openSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { readDocument } from '../../bench/load/document.ts';
import { temporaryFolder } from '../support/servers.ts';

const CLI = new URL('../../dist/cli.js', import.meta.url).pathname;
const dir = temporaryFolder('load-log');
afterAll(() => rmSync(dir, { recursive: true }));

/** @returns the exit status; everything that was said is in the log */
function load(log: string, ...args: string[]): number | null {
  const fd = openSync(join(dir, log), 'w');
  const { GITHUB_STEP_SUMMARY: _, ...env } = process.env;
  try {
    return spawnSync(process.execPath, [CLI, 'load', ...args], { cwd: dir, env, stdio: ['ignore', fd, fd] })
      .status;
  } finally {
    closeSync(fd);
  }
}

describe('a log with the JSON', () => {
  // Nobody listens there: each request fails, and so do two checks.
  const run = (log: string): number | null =>
    load(log, '--dsn', 'http://k@127.0.0.1:9/1', '--rate', '20', '--duration', '300ms', '--json=-');

  it('has no line of a check that failed: they are in the JSON', () => {
    expect(run('a.json')).toBe(1);
    const { missed, generator } = readDocument(join(dir, 'a.json'));
    expect(missed).toEqual(['no request was answered', expect.stringMatching(/^6 requests failed/)]);
    expect(generator.bottleneck).toEqual(expect.any(Array));
  });

  it('is merged with that of another generator', () => {
    expect(run('b.json')).toBe(1);
    expect(load('merged.json', 'merge', 'a.json', 'b.json', '--json', '-')).toBe(1);
    expect(readDocument(join(dir, 'merged.json')).failed).toBe(12);
    expect(load('merged.txt', 'merge', 'a.json', 'b.json', '--json', 'c.json')).toBe(1);
    expect(readFileSync(join(dir, 'merged.txt'), 'utf8')).toMatch(/\nFAILED: no request was answered\n/);
  });

  it('has the figures, and other files are written, when one cannot be', () => {
    const outputs = ['--json', 'missing/c.json', '--report', 'missing/c.html', '--junit', 'c.xml'];
    expect(load('unwritten.txt', 'merge', 'a.json', 'b.json', ...outputs)).toBe(1);
    const said = readFileSync(join(dir, 'unwritten.txt'), 'utf8');
    expect(said).toMatch(/\nFAILED: no request was answered\n/);
    expect(said).toMatch(/\nsluice load: --json: ENOENT.*\n--report: ENOENT.*\n$/);
    expect(readFileSync(join(dir, 'c.xml'), 'utf8')).toContain('<testsuite');
  });

  it('has the line of a command that makes no sense', () => {
    expect(load('wrong.txt', '--dsn', 'http://k@h/1', '--rate', 'fast', '--json=-')).toBe(2);
    expect(readFileSync(join(dir, 'wrong.txt'), 'utf8')).toMatch(/^sluice load: --rate: /);
  });
});
