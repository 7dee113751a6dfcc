/** A run whose sink cannot be read keeps what it found: all that was asked for is written, and one check has failed. */
import { readFileSync, symlinkSync, unlinkSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LoadCommand, type Running } from '../support/load-command.ts';
import { System, until } from '../support/system.ts';

const REASON = /what was told 200 could not be looked up: .*ENOENT/;

describe('against ingest, with a sink that goes away during the run', () => {
  let command: LoadCommand;
  let system: System;
  let sink: string;
  beforeAll(async () => {
    command = new LoadCommand();
    sink = join(command.dir, 'sink');
    system = await System.start();
  });
  afterAll(async () => {
    await system?.stop();
    command?.close();
  });

  /** The processor goes on; only the way by which the load tester reads the sink is gone after a second. */
  async function startAndTakeAway(...args: string[]): Promise<Running> {
    const project = await system.createProject();
    symlinkSync(system.sinkDir, sink);
    const running = command.start([
      ...['--dsn', system.dsn(project), '--admin', system.adminUrl, '--sink', `ndjson:${sink}`, '--verify'],
      ...['--rate', '50', '--duration', '4s', '--warmup', '0', ...args],
    ]);
    await until(() => / {3}1 s /.test(running.err()));
    unlinkSync(sink);
    return running;
  }

  it('that stays away, the results are written and the check has failed', async () => {
    const running = await startAndTakeAway(
      ...['--verify-wait', '1s', '--json', 'away.json', '--report', 'away.html'],
      ...['--junit', 'away.xml', '--summary', 'away.md'],
    );
    const { status, err, out } = await running.ended;
    expect(err).toMatch(/\nFAILED: what was told 200 could not be looked up: .*ENOENT.*\n$/);
    expect(status).toBe(1);
    expect(out).toContain('answered as expected');
    const { requests, checks, missed, verification, unverified } = command.document('away.json');
    expect(requests).toBe(200);
    expect(verification).toBeUndefined();
    expect(unverified).toContain('ENOENT');
    expect(missed).toEqual([expect.stringMatching(REASON)]);
    expect(checks.map(({ missed: said }) => said === undefined)).toEqual([true, true, true, false]);
    for (const name of ['away.html', 'away.xml', 'away.md'])
      expect(readFileSync(join(command.dir, name), 'utf8')).toMatch(REASON);
  });

  it('that comes back, everything is looked up', async () => {
    const running = await startAndTakeAway('--json', 'back.json');
    await until(() => /cannot be read, and is read again: .*ENOENT/.test(running.err()));
    symlinkSync(system.sinkDir, sink);
    const { status, err, out } = await running.ended;
    expect(status, err + out).toBe(0);
    const { verification, unverified } = command.document('back.json');
    expect(verification).toMatchObject({ accepted: 200, stored: 200, lost: 0, double: 0, problems: [] });
    expect(unverified).toBeUndefined();
  });

  it('a merge with such a run has the failed check, too', async () => {
    const { status, err } = await command.run('merge', 'away.json', 'back.json');
    expect(err).toMatch(/^FAILED: what was told 200 could not be looked up: .*ENOENT.*\n$/);
    expect(status).toBe(1);
  });
});
