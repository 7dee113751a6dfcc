import { Command } from 'commander';
import { printJson, printLine, record, table } from './print.ts';
import { type ApiFlags, withApi, withOperations } from './session.ts';

type Output = ApiFlags & { json?: boolean };

async function create(flags: Output): Promise<void> {
  await withOperations(flags, async (operations, session) => {
    const { token, url } = await operations.createHeartbeat();
    if (flags.json) printJson({ token, url });
    else
      printLine(
        record([
          ['token', token],
          ['url', url],
          ['', session.remarkOnUrls(flags)],
        ]),
      );
  });
}

async function list(flags: Output): Promise<void> {
  await withOperations(flags, async (operations) => {
    const rows = await operations.listHeartbeats();
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

async function remove(token: string, flags: ApiFlags): Promise<void> {
  await withOperations(flags, async (operations) => {
    await operations.deleteHeartbeat(token);
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
  for (const sub of command.commands) withApi(sub);
  return command;
}
