import { Command } from 'commander';
import { printLine, record, table } from './print.ts';
import { type ApiFlags, printUrls, remarkOnUrls, withApi, withOperations } from './session.ts';

type Output = ApiFlags & { json?: boolean };

async function create(flags: Output): Promise<void> {
  await withOperations(flags, async (operations) => {
    const { token, url } = await operations.createHeartbeat();
    if (flags.json) printUrls(operations, { token, url });
    else
      printLine(
        record([
          ['token', token],
          ['url', url],
          ['', remarkOnUrls(operations)],
        ]),
      );
  });
}

async function list(flags: Output): Promise<void> {
  await withOperations(flags, async (operations) => {
    const rows = await operations.listHeartbeats();
    if (flags.json) printUrls(operations, rows);
    else if (rows.length === 0)
      printLine('There is no heartbeat token yet; sluice heartbeat create makes one.');
    else {
      const cells = rows.map(({ token, url, createdAt }) => [token, url, createdAt]);
      const remark = remarkOnUrls(operations);
      printLine([table(['TOKEN', 'URL', 'CREATED'], cells), ...(remark ? [remark] : [])].join('\n'));
    }
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
