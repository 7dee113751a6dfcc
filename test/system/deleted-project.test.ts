/** A project is deleted and made again under its id while a worker still has its counts in hand (contract part 6, Project life). */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createLog } from '../../src/lib/log.ts';
import { CheckpointBucket } from '../../src/projects/usage/checkpoint-bucket.ts';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { Command, System, until } from '../support/system.ts';

const USED = 10;
const log = createLog('silent');
let system: System;
beforeAll(async () => {
  system = await System.start();
});
afterAll(() => system.stop());

const month = (): string => new Date().toISOString().slice(0, 7);
const figure = (id: string): Promise<number | undefined> =>
  new CheckpointBucket({ link: system.link, log }).read(id, month());

describe('a project that gets the id of a deleted one', () => {
  it('begins with no usage, and neither a worker nor a reconciliation brings the old one back', async () => {
    const wanted = { id: '4711', quota: 100, key: 'k' };
    const first = await system.createProject(wanted);
    let usage: string | null = null;
    for (let n = 0; n < USED; n++)
      usage = (await system.send(first, errorEvent(eventId()))).headers.get('x-service-usage');
    expect(usage).toBe(`${USED}/100`);
    const run = async (...args: string[]): Promise<void> => {
      const command = new Command(args, system.env);
      expect(await command.exited, command.log).toBe(0);
    };
    await run('project', 'delete', '4711', '--yes');
    const second = await system.createProject(wanted);
    const id = eventId();
    const answer = await system.send(second, errorEvent(id));
    expect([answer.status, answer.headers.get('x-service-usage')]).toEqual([200, '1/100']);
    await system.storedOf(id);
    // The worker writes what it has in hand within ten seconds: 1 of the new project, and nothing of the old one.
    await until(async () => ((await figure('4711')) ?? 0) > 0);
    expect(await figure('4711')).toBe(1);
    await run('usage', 'reconcile', '4711');
    const after = await system.send(second, errorEvent(eventId()));
    expect(after.headers.get('x-service-usage')).toBe('2/100');
  });
});
