import { once } from 'node:events';
import { Command, Option } from 'commander';
import type { Refusal } from '../ingest/http/record.ts';
import { untilStopped } from '../lib/shutdown.ts';
import { SEEN_TYPES } from '../management/operations.ts';
import type { Seen, SeenItem, Sighting, TailWanted } from '../management/tail-item.ts';
import { inOneLine, printLine } from './print.ts';
import { parseProjectId } from './project/fields.ts';
import { type ApiFlags, withApi, withOperations } from './session.ts';

const SUMMARY_CHARS_MAX = 80;

/** Returns the value at a path, or undefined if a step of the path does not exist. */
function at(value: unknown, ...path: (string | number)[]): unknown {
  let here = value;
  for (const step of path) {
    if (here === null || typeof here !== 'object') return undefined;
    here = (here as Record<string | number, unknown>)[step];
  }
  return here;
}

/** Describes an item in short: exception, message, transaction, or a container's first element. */
function summary(payload: unknown): string {
  const text =
    typeof payload === 'string'
      ? payload
      : (at(payload, 'exception', 'values', 0, 'type') ??
        at(payload, 'message') ??
        at(payload, 'logentry', 'formatted') ??
        at(payload, 'transaction') ??
        at(payload, 'items', 0, 'body') ??
        at(payload, 'items', 0, 'name'));
  if (typeof text !== 'string') return '';
  const detail = at(payload, 'exception', 'values', 0, 'value');
  const whole = typeof detail === 'string' ? `${text}: ${detail}` : text;
  return whole.replaceAll(/\p{Cc}+/gu, ' ').slice(0, SUMMARY_CHARS_MAX);
}

const itemColumns = (item: SeenItem): string[] => [
  item.received_at,
  item.project_id ?? '-',
  item.type.padEnd(16),
  item.event_id ?? item.token ?? '',
  `${item.payload_bytes} B`,
  summary(item.payload ?? item.body),
];

const refusalColumns = ({ at, project_id, outcome, reason = '', key, bytes }: Refusal): string[] => [
  at,
  project_id,
  outcome.padEnd(14),
  `key ${key}`,
  `${bytes} B`,
  reason,
];

/** Makes the line of an item or a refusal. */
export function seenText(seen: Seen): string {
  const columns = 'outcome' in seen ? refusalColumns(seen) : itemColumns(seen);
  const missed = seen.missed ? [`(${seen.missed} more before)`] : [];
  return [...columns, ...missed].map(inOneLine).join('  ').trimEnd();
}

type Flags = ApiFlags & Omit<TailWanted, 'project'> & { json?: boolean };

/**
 * Prints items as the streams take them, or requests as they are refused. The command consumes no
 * item, and shows none from before its start.
 */
async function run(project: string | undefined, flags: Flags): Promise<void> {
  const { type, refused, json } = flags;
  const print = (sighting: Sighting): void => {
    for (const seen of sighting()) printLine(json ? JSON.stringify(seen) : seenText(seen));
  };
  await withOperations(flags, async (operations) => {
    const { ended, stop } = await operations.tail({ project, type, refused }, print);
    const what = refused ? 'requests as they are refused' : 'items as they are accepted';
    if (!json) process.stderr.write(`Showing ${what}; Ctrl-C ends.\n`);
    // The command also ends when nobody reads its output any more.
    await Promise.race([untilStopped(), once(process.stdout, 'error'), ended]).finally(stop);
  });
}

export const tailCommand = (): Command =>
  withApi(
    new Command('tail')
      .description('print accepted items as they come, without consuming them')
      .argument('[id]', 'only of this project, by id or alias', parseProjectId)
      .addOption(new Option('--type <type>', 'only of this type').choices(SEEN_TYPES))
      .addOption(
        new Option(
          '--refused',
          'print requests that were refused, filtered or empty, and why, instead',
        ).conflicts('type'),
      )
      .option('--json', 'print one JSON object a line, with the payload')
      .action(run),
  );
