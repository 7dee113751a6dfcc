import { Command } from 'commander';
import { systemClock } from '../lib/clock.ts';
import { HeartbeatStore } from '../projects/heartbeat-store.ts';
import { printJson, printLine, record, table } from './print.ts';
import { type Session, withSession } from './session.ts';

type Output = { json?: boolean };

const urlOf = ({ publicUrl, config }: Session, token: string): string =>
  `${publicUrl}${config.heartbeatPath}/${token}`;

const open = async (session: Session): Promise<HeartbeatStore> => HeartbeatStore.open(await session.nats());

async function create(flags: Output): Promise<void> {
  await withSession(async (session) => {
    const { token } = await (await open(session)).create(new Date(systemClock.now()));
    const url = urlOf(session, token);
    if (flags.json) printJson({ token, url });
    else
      printLine(
        record([
          ['token', token],
          ['url', url],
        ]),
      );
  });
}

async function list(flags: Output): Promise<void> {
  await withSession(async (session) => {
    const tokens = await (await open(session)).list();
    const rows = tokens.map(({ token, createdAt }) => ({ token, url: urlOf(session, token), createdAt }));
    if (flags.json) printJson(rows);
    else if (rows.length === 0)
      printLine('There is no heartbeat token yet; sluice heartbeat create makes one.');
    else
      printLine(
        table(
          ['TOKEN', 'URL', 'CREATED'],
          rows.map(({ token, url, createdAt }) => [token, url, createdAt]),
        ),
      );
  });
}

async function remove(token: string): Promise<void> {
  await withSession(async (session) => {
    await (await open(session)).delete(token);
    printLine(`Deleted heartbeat token ${token}.`);
  });
}

export function heartbeatCommand(): Command {
  const command = new Command('heartbeat').description('create, list and delete heartbeat tokens');
  command
    .command('create')
    .description('create a token and print the URL to ping')
    .option('--json', 'print JSON')
    .action(create);
  command.command('list').description('print all tokens').option('--json', 'print JSON').action(list);
  command
    .command('delete')
    .description('delete a token; pings of it get 404 within a second')
    .argument('<token>')
    .action(remove);
  return command;
}
