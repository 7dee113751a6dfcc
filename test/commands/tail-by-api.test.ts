/** `sluice tail --api` shows what `sluice tail` shows, without NATS. */
import { type ChildProcess, spawn } from 'node:child_process';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { DIST, System, until } from '../support/system.ts';
import { runCommand } from './run-command.ts';

const NOWHERE = { SLUICE_NATS_URL: 'nats://127.0.0.1:1', SLUICE_REDIS_URL: 'redis://127.0.0.1:1' };
const VIEWER = 'a-viewer-of-sixteen';
let system: System;
const children: ChildProcess[] = [];
beforeAll(async () => {
  const env = { SLUICE_ADMIN_TOKEN: 'correct-horse-battery', SLUICE_VIEWER_TOKEN: VIEWER };
  system = await System.start({ processor: false, env });
});
afterAll(async () => {
  for (const child of children) child.kill();
  await system?.stop();
});

class Tail {
  readonly child: ChildProcess;
  out = '';
  err = '';
  readonly ended: Promise<number | null>;

  constructor(args: string[], env: Record<string, string>) {
    this.child = spawn(process.execPath, [`${DIST}cli.js`, 'tail', ...args], {
      env: { ...process.env, ...env },
    });
    children.push(this.child);
    this.child.stdout?.on('data', (data: Buffer) => {
      this.out += data.toString();
    });
    this.child.stderr?.on('data', (data: Buffer) => {
      this.err += data.toString();
    });
    this.ended = new Promise((resolve) => this.child.once('close', resolve));
  }

  /** The lines about these events. */
  about(ids: readonly string[]): string[] {
    return this.out.split('\n').filter((line) => ids.some((id) => line.includes(id)));
  }

  stop(): Promise<number | null> {
    this.child.kill('SIGINT');
    return this.ended;
  }
}
const near = (...args: string[]): Tail => new Tail(args, system.env);
/** Knows a token that may look and change nothing. */
const far = (...args: string[]): Tail =>
  new Tail([...args, '--api', system.adminUrl], { ...NOWHERE, SLUICE_VIEWER_TOKEN: VIEWER });

it('prints the same items, as text and as JSON, of one project and type', async () => {
  const [mine, other] = [await system.createProject(), await system.createProject()];
  const kinds: [args: string[], lines: number][] = [
    [[], 4],
    [[mine.id, '--type', 'event', '--json'], 2],
  ];
  const pairs = kinds.map(([args]) => [near(...args), far(...args)] as const);
  const without = far(other.id, '--type', 'transaction');
  const send = async (): Promise<string[]> => {
    const ids = [eventId(), eventId()];
    for (const [at, project] of [mine, other].entries())
      expect((await system.send(project, errorEvent(`${ids[at]}`, 'to be seen'))).status).toBe(200);
    return ids;
  };
  // Until all look on, what comes passes unseen.
  await until(async () => {
    await send();
    return without.err !== '' && pairs.flat().every(({ out }) => out !== '');
  });
  const ids = [await send(), await send()].flat();
  for (const [at, [here, there]] of pairs.entries()) {
    await until(() => [here, there].every((tail) => tail.about(ids).length >= Number(kinds[at]?.[1])));
    expect(there.about(ids)).toEqual(here.about(ids));
    expect(there.about(ids)).toHaveLength(Number(kinds[at]?.[1]));
  }
  expect(await Promise.all([without, ...pairs.flat()].map((tail) => tail.stop()))).toEqual([0, 0, 0, 0, 0]);
  expect(without.out).toBe('');
});

it('prints refusals', async () => {
  const project = await system.createProject();
  const [here, there] = [near('--refused', project.id), far('--refused', project.id)];
  const refused = (): Promise<Response> =>
    system.send({ ...project, key: 'not_its_key' }, errorEvent(eventId()));
  await until(async () => {
    await refused();
    return here.out !== '' && there.out !== '';
  });
  await until(() => here.out.endsWith(`${there.out.trimEnd().split('\n').at(-1)}\n`));
  expect(there.out).toMatch(new RegExp(`^\\S+  ${project.id}  forbidden_key   key .* unknown-key\n`));
  expect(await Promise.all([here.stop(), there.stop()])).toEqual([0, 0]);
});

it('says what is wrong, and ends', async () => {
  const ask = (args: string[], env: Record<string, string>) =>
    runCommand(['tail', ...args, '--api', system.adminUrl], { ...NOWHERE, ...env });
  const token = { SLUICE_VIEWER_TOKEN: VIEWER };
  expect(await ask(['999999'], token)).toEqual({
    status: 1,
    out: '',
    err: 'sluice: There is no project 999999\n',
  });
  const wrong = await ask([], { SLUICE_VIEWER_TOKEN: 'wrong-but-long-enough' });
  expect([wrong.status, wrong.err]).toEqual([1, expect.stringContaining('to a token that the API knows')]);
  const page = await runCommand(['tail', '--api', system.url], NOWHERE);
  expect([page.status, page.err]).toEqual([1, expect.stringContaining('is no management API of sluice')]);
});

it('ends with 1 when the API goes away', async () => {
  const tail = far();
  await until(() => tail.err.includes('Ctrl-C ends'));
  await system.ingest.stop();
  expect(await tail.ended).toBe(1);
  expect(tail.err).toContain(`sluice: ${system.adminUrl} ended its answer`);
});
