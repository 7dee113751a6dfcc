/**
 * `sluice project move`: moves a project and its counts to another cell (a deployment with Redis
 * and NATS of its own), while both cells serve the project.
 */
import { readFile } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseEnv } from 'node:util';
import { Command } from 'commander';
import { type Config, loadConfig } from '../../config.ts';
import { ANSWER_MS_MAX, LEDGER_FLUSH_MS } from '../../limits.ts';
import { Connections } from '../../management/connections.ts';
import { ProjectMove } from '../../management/move-project.ts';
import { reasonOf } from '../../management/operation-error.ts';
import { operatorName } from '../../projects/audit-log.ts';
import { CommandError, UsageError } from '../command-error.ts';
import { printJson, printLine } from '../print.ts';
import { type Session, withSession } from '../session.ts';
import { parseProjectId } from './fields.ts';

/** Pause between two exchanges of the project's counts between the cells. */
const SHARE_MS = 250;
/** Time after which every connected worker has seen a change of the registry. */
const REGISTRY_MS = 1_000;
const MARGIN_MS = 2_000;

const NEEDED = ['SLUICE_NATS_URL', 'SLUICE_REDIS_URL'] as const;
const tell = (sentence: string): void => {
  process.stderr.write(`sluice: ${sentence}\n`);
};

/**
 * Reads the settings of the other cell from the file that `--to` names.
 * @throws UsageError, ConfigError
 */
async function settingsIn(file: string): Promise<Config> {
  const text = await readFile(file, 'utf8').catch((error: Error) => {
    throw new UsageError(`--to: ${reasonOf(error)}.`);
  });
  const env = parseEnv(text) as NodeJS.ProcessEnv;
  const missing = NEEDED.filter((name) => !env[name]);
  if (missing.length > 0) throw new UsageError(`--to: ${file} does not name ${missing.join(' and ')}.`);
  return loadConfig(env).config;
}

function connectionsOf(config: Config, { log }: Session): Connections {
  const { redisUrls, natsUrls, natsCredsFile, redisPasswordFile, tlsCaFile } = config;
  const secrets = { natsCredsFile, redisPasswordFile, tlsCaFile };
  return new Connections({ redisUrls, natsUrls, ...secrets, name: 'sluice command', role: 'cli', log });
}

/** Exchanges the cells' counts again and again, whatever fails, until `done` settles. */
async function shareUntil(move: ProjectMove, done: Promise<unknown>): Promise<void> {
  let isDone = false;
  let isAway = false;
  const end = done.finally(() => {
    isDone = true;
  });
  while (!isDone) {
    try {
      await move.share();
      if (isAway) tell('the counts are shared again.');
      isAway = false;
    } catch (error) {
      if (!isAway) tell(`the cells count apart, trying again: ${reasonOf(error)}`);
      isAway = true;
    }
    await Promise.race([end, sleep(SHARE_MS)]);
  }
  await end;
}

/**
 * Waits for a line on standard input.
 * @throws CommandError when standard input ends first
 */
async function nextLine(): Promise<void> {
  const lines = createInterface({ input: process.stdin });
  try {
    for await (const _ of lines) return;
  } finally {
    lines.close();
  }
  throw new CommandError(
    'nobody said that the requests go to the other cell. Both serve the project now, and count apart: run the same command again.',
  );
}

async function run(session: Session, id: string, flags: { to: string; json?: boolean }): Promise<void> {
  const to = connectionsOf(await settingsIn(flags.to), session);
  try {
    const cells = { from: session.connections, to };
    const move = await ProjectMove.begin(cells, id, { by: operatorName(), log: session.log });
    const { project } = move;
    if (move.isServedHere) {
      await shareUntil(move, sleep(REGISTRY_MS + MARGIN_MS));
      tell(`both cells serve project ${project.id}, and count together.`);
      tell('Send its requests to the other cell. When no request comes here any more, press Enter.');
      await shareUntil(move, nextLine());
      await move.disableHere();
    }
    // After this wait, requests that this cell accepted before the project was disabled are
    // counted, and their outcomes are written.
    await shareUntil(move, sleep(REGISTRY_MS + Math.max(ANSWER_MS_MAX, LEDGER_FLUSH_MS) + MARGIN_MS));
    const usage = Object.fromEntries([...(await move.carry())].sort());
    if (flags.json) printJson({ id: project.id, usage });
    else
      printLine(
        `Project ${project.id} has moved, and is disabled here. Its usage there: ${JSON.stringify(usage)}.`,
      );
  } finally {
    await to.close();
  }
}

export const moveCommand = (): Command =>
  new Command('move')
    .description('move a project to another cell with its usage, while both serve it')
    .argument('<id>', 'id or alias', parseProjectId)
    .requiredOption(
      '--to <file>',
      "the other cell's settings, NAME=VALUE a line: SLUICE_NATS_URL, SLUICE_REDIS_URL, …",
    )
    .option('--json', 'print JSON')
    .action((id: string, flags: { to: string; json?: boolean }) =>
      withSession((session) => run(session, id, flags)),
    );
