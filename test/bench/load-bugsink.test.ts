/** `sluice load` against a server of the same convention that is not sluice: Bugsink, as PyPI has it. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { freePort } from '../../src/commands/dev/servers.ts';
import { LoadCommand } from '../support/load-command.ts';
import { until } from '../support/system.ts';
import { pythonPrograms } from '../support/tools.ts';

const VERSION = '2.6.2';
const PROJECT =
  "from projects.models import Project; print('dsn ' + Project.objects.create(name='load').dsn)";

const STORED = `import sqlite3
for (id,) in sqlite3.connect('file:db.sqlite3?mode=ro', uri=True).execute('SELECT event_id FROM events_event'): print(id)
`;

let command: LoadCommand;
let server: ChildProcess;
let dsn: string;
/** The command that prints the ids that Bugsink has. */
let stored: string;
beforeAll(async () => {
  command = new LoadCommand();
  const bin = pythonPrograms('bugsink', VERSION);
  const port = await freePort();
  const manage = (...args: string[]): string =>
    execFileSync(join(bin, 'bugsink-manage'), args, {
      cwd: command.dir,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    });
  execFileSync(join(bin, 'bugsink-create-conf'), ['--template=local'], { cwd: command.dir, stdio: 'ignore' });
  const settings = join(command.dir, 'bugsink_conf.py');
  const address = `http://127.0.0.1:${port}`;
  writeFileSync(
    settings,
    readFileSync(settings, 'utf8').replace(/"BASE_URL": "[^"]*"/, `"BASE_URL": "${address}"`),
  );
  writeFileSync(join(command.dir, 'stored.py'), STORED);
  stored = `${join(bin, 'python')} stored.py`;
  manage('migrate');
  manage('migrate', 'snappea', '--database=snappea');
  dsn = /^dsn (\S+)$/m.exec(manage('shell', '-c', PROJECT))?.[1] ?? '';
  server = spawn(join(bin, 'gunicorn'), ['--bind', `127.0.0.1:${port}`, '--threads', '4', 'bugsink.wsgi'], {
    cwd: command.dir,
    stdio: 'ignore',
  });
  const answers = async (): Promise<boolean> => (await fetch(address).catch(() => undefined)) !== undefined;
  await until(answers);
});
afterAll(async () => {
  const ended = new Promise((resolve) => server?.once('exit', resolve));
  server?.kill();
  await ended;
  command.close();
});

it('needs a DSN alone; what Bugsink stores is found, and what it ignores is told as such', async () => {
  const args = [
    '--dsn',
    dsn,
    '--rate',
    '20',
    '--duration',
    '3s',
    '--warmup',
    '0',
    '--quiet',
    '--json',
    'b.json',
  ];
  const untold = await command.run(...args);
  expect(untold.out).toContain('the server does not say what it stores: none of its 60 answers 200');
  expect(untold.status, untold.out + untold.err).toBe(0);
  const asked = await command.run(...args, '--verify-wait', '3s', '--verify-with', stored);
  const { verification, byKind, unstored } = command.document('b.json');
  const { transaction, log, replay } = verification?.ignored ?? {};
  expect([transaction, log, replay]).toEqual(
    ['transaction', 'log', 'replay'].map((kind) => byKind[kind]?.count),
  );
  expect(verification).toMatchObject({ accepted: 60, stored: byKind.event?.count, lost: 0, double: 0 });
  expect(unstored['transaction is ignored there']).toBe(transaction);
  expect(asked.err).toMatch(/^FAILED: \d+ requests were told 200 and nothing of them is stored/m);
  expect(asked.status).toBe(1);
  const events = await command.run(...args, '--mix', 'event=1', '--verify-with', stored);
  expect(events.out).toMatch(/stored 60, lost 0, double 0, late 0\n/);
  expect(events.status, events.out + events.err).toBe(0);
});
