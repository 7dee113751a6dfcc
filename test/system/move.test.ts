/** A project moves from one whole system to another under load: nobody is refused, and no count is lost or doubled. */
import { type ChildProcess, spawn } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runCommand } from '../commands/run-command.ts';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { temporaryFolder } from '../support/servers.ts';
import { DIST, type Project, System, until } from '../support/system.ts';

type UsageByHour = { current: number; hours: { outcomes: { accepted?: number } }[] };
type KeyJson = { lastUsed?: string };

const folder = temporaryFolder('move');
const fileOf = new Map<System, string>();
let paris: System;
let oslo: System;
beforeAll(async () => {
  [paris, oslo] = await Promise.all([System.start({ workers: 2 }), System.start()]);
  for (const [name, system] of Object.entries({ paris, oslo })) {
    const file = join(folder, `${name}.env`);
    const { SLUICE_NATS_URL, SLUICE_REDIS_URL } = system.env;
    writeFileSync(
      file,
      `# ${name}\nSLUICE_NATS_URL=${SLUICE_NATS_URL}\nSLUICE_REDIS_URL="${SLUICE_REDIS_URL}"\n`,
    );
    fileOf.set(system, file);
  }
});
afterAll(async () => {
  await Promise.all([paris?.stop(), oslo?.stop()]);
  rmSync(folder, { recursive: true, force: true });
});

/** The command as an operator runs it, and what it said. */
class Moving {
  readonly #child: ChildProcess;
  said = '';
  readonly status: Promise<number | null>;

  constructor(from: System, to: System, id: string) {
    const args = [`${DIST}cli.js`, 'project', 'move', id, '--to', fileOf.get(to) ?? '', '--json'];
    this.#child = spawn('node', args, { env: { ...process.env, ...from.env }, stdio: 'pipe' });
    for (const stream of [this.#child.stdout, this.#child.stderr])
      stream?.on('data', (data: Buffer) => {
        this.said += data;
      });
    this.status = new Promise((resolve) => this.#child.once('close', resolve));
  }

  servedByBoth(): Promise<void> {
    return until(() => this.said.includes('press Enter'));
  }

  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.status;
  }

  async enter(): Promise<void> {
    this.#child.stdin?.end('\n');
    expect(await this.status, this.said).toBe(0);
  }
}

/** Clients that each send one request after the other to the cell that the switch names. */
class Load {
  readonly told = new Map<number, number>();
  readonly #clients: Promise<void>[] = [];
  readonly #cells: System[];
  #stopped = false;

  constructor(cells: readonly System[], project: Project, pauseMs: number) {
    this.#cells = [...cells];
    for (const client of cells.keys()) this.#clients.push(this.#send(client, project, pauseMs));
  }

  async #send(client: number, project: Project, pauseMs: number): Promise<void> {
    while (!this.#stopped) {
      const answer = await (this.#cells[client] as System).send(project, errorEvent(eventId()));
      await answer.text();
      this.told.set(answer.status, (this.told.get(answer.status) ?? 0) + 1);
      await pause(pauseMs);
    }
  }

  get accepted(): number {
    return this.told.get(200) ?? 0;
  }

  switchTo(cell: System, client: number): void {
    this.#cells[client] = cell;
  }

  async more(count: number): Promise<void> {
    const before = this.accepted;
    await until(() => this.accepted >= before + count);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await Promise.all(this.#clients);
  }
}

async function usageIn(system: System, { id }: Project): Promise<UsageByHour> {
  const { out, err } = await runCommand(['usage', id, '--json'], system.env);
  expect(err).toBe('');
  return JSON.parse(out) as UsageByHour;
}
const acceptedIn = ({ hours }: UsageByHour): number =>
  hours.reduce((sum, { outcomes }) => sum + (outcomes.accepted ?? 0), 0);
const keysIn = async (system: System, { id }: Project): Promise<KeyJson[]> =>
  JSON.parse((await runCommand(['project', 'keys', 'list', id, '--json'], system.env)).out) as KeyJson[];

/** What the cell says of the project once its workers have written all. */
async function expectAll(system: System, project: Project, accepted: number): Promise<void> {
  await until(async () => acceptedIn(await usageIn(system, project)) >= accepted);
  const usage = await usageIn(system, project);
  expect({ usage: usage.current, outcomes: acceptedIn(usage) }).toEqual({
    usage: accepted,
    outcomes: accepted,
  });
}

/** Clients go over one by one; then the operator says so. */
async function switchOver(load: Load, to: System, moving: Moving): Promise<void> {
  await moving.servedByBoth();
  for (const client of [0, 1, 2, 3]) {
    load.switchTo(to, client);
    await load.more(20);
  }
  await moving.enter();
}

describe('a project that is moved', () => {
  it('is refused no request, and has its usage, outcomes and uses of keys, also when the move was killed, and back again', async () => {
    const keys = ['a', 'b'].map((letter) => ({ key: letter.repeat(32), enabled: true }));
    const project = await paris.createProject({
      alias: '77',
      key: keys[0]?.key ?? '',
      keys,
    } as Partial<Project>);
    // A key that is used before the move alone.
    expect((await paris.send({ ...project, key: 'b'.repeat(32) }, errorEvent(eventId()))).status).toBe(200);
    const load = new Load([paris, paris, paris, paris], project, 20);
    await load.more(50);

    const killed = new Moving(paris, oslo, project.id);
    await killed.servedByBoth();
    load.switchTo(oslo, 3);
    await load.more(40);
    await killed.kill();
    await load.more(40);
    await switchOver(load, oslo, new Moving(paris, oslo, '77'));
    await load.more(20);
    expect((await paris.send(project, errorEvent(eventId()))).status).toBe(401);
    expect([...load.told.keys()]).toEqual([200]);

    await switchOver(load, paris, new Moving(oslo, paris, project.id));
    expect([...load.told.keys()]).toEqual([200]);
    await load.stop();
    const accepted = load.accepted + 1;
    await expectAll(paris, project, accepted);
    expect((await keysIn(oslo, project)).map(({ lastUsed }) => typeof lastUsed)).toEqual([
      'string',
      'string',
    ]);
    expect((await keysIn(paris, project)).map(({ lastUsed }) => typeof lastUsed)).toEqual([
      'string',
      'string',
    ]);
    await until(() => paris.stored().length + oslo.stored().length >= accepted);
    expect(paris.stored().length + oslo.stored().length).toBe(accepted);

    // The tally of one cell lacks what the other stored.
    const { out } = await runCommand(['usage', 'reconcile', project.id, '--json'], paris.env);
    expect(JSON.parse(out)).toMatchObject({ before: accepted, after: accepted, moved: true });
    await expectAll(paris, project, accepted);

    // Once more: nothing is added twice.
    await new Moving(oslo, paris, project.id).enter();
    await expectAll(paris, project, accepted);
  });

  it('has one quota, not one in each cell', async () => {
    const quota = 400;
    const project = await paris.createProject({ quota });
    const before = new Load(Array(8).fill(paris), project, 1);
    await until(() => before.accepted >= quota - 100);
    await before.stop();
    const left = quota - before.accepted;
    const moving = new Moving(paris, oslo, project.id);
    await moving.servedByBoth();
    const load = new Load([paris, oslo], project, 100);
    await until(() => (load.told.get(429) ?? 0) >= 10);
    await load.stop();
    // Each cell by itself would take what is left. Both are told of the other's every quarter of a second.
    expect(load.accepted).toBeGreaterThanOrEqual(left);
    expect(load.accepted).toBeLessThan(1.5 * left);
    await moving.enter();
    const accepted = before.accepted + load.accepted;
    await until(async () => acceptedIn(await usageIn(oslo, project)) >= accepted);
    expect((await usageIn(oslo, project)).current).toBe(accepted);
  });

  it('is not moved onto another one, into its own cell, or without settings', async () => {
    const project = await paris.createProject();
    await oslo.createProject({ id: project.id });
    const run = (file: string) => runCommand(['project', 'move', project.id, '--to', file], paris.env);
    expect(await run(fileOf.get(oslo) ?? '')).toMatchObject({
      status: 1,
      err: expect.stringContaining('did not come from here'),
    });
    expect(await run(fileOf.get(paris) ?? '')).toMatchObject({
      status: 1,
      err: expect.stringContaining('same cell'),
    });
    const empty = join(folder, 'empty.env');
    writeFileSync(empty, 'SLUICE_NATS_URL=nats://127.0.0.1:1\n');
    expect(await run(empty)).toMatchObject({ status: 2, err: expect.stringContaining('SLUICE_REDIS_URL') });
    expect(await run(join(folder, 'none.env'))).toMatchObject({ status: 2 });
  });
});
