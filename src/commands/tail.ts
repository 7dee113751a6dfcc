import { once } from 'node:events';
import { Command, Option } from 'commander';
import type { Refusal } from '../ingest/http/record.ts';
import { ITEM_TYPES } from '../lib/item-types.ts';
import { untilStopped } from '../lib/shutdown.ts';
import { ProjectStore } from '../projects/project-store.ts';
import { decodeFrame, type Entry, FrameError } from '../stream/frame.ts';
import { follow } from '../stream/tail.ts';
import { CHUNKS_STREAM } from '../stream/topology.ts';
import { printLine } from './print.ts';
import { parseProjectId } from './project/fields.ts';
import { withSession } from './session.ts';
import { refusalText, type SeenItem, seenItems, seenJson, seenText } from './tail-item.ts';

type Flags = { type?: SeenItem['type']; refused?: boolean; json?: boolean };

/**
 * Decodes the entries of a frame. A frame that cannot be decoded counts as empty here; the
 * processor reports the fault.
 */
function entriesOf(frame: Uint8Array): Entry[] {
  try {
    return decodeFrame(frame).flatMap((slot) => (slot.ok ? [slot.entry] : []));
  } catch (error) {
    if (error instanceof FrameError) return [];
    throw error;
  }
}

/**
 * Shows frames as the streams acknowledge them. It consumes no frame, and does not show frames from
 * before its start.
 */
async function run(idOrAlias: string | undefined, flags: Flags): Promise<void> {
  await withSession(async (session) => {
    const link = await session.connections.nats();
    // Without the streams of sluice no frame would ever come, so a missing stream ends the command.
    await (await link.manager()).streams.info(CHUNKS_STREAM);
    const id =
      idOrAlias === undefined ? undefined : (await (await ProjectStore.open(link)).get(idOrAlias)).id;
    const wanted = (item: SeenItem): boolean =>
      (id === undefined || item.projectId === id) && (flags.type === undefined || item.type === flags.type);
    const showRefusal = (bytes: Uint8Array): void => {
      const refusal = JSON.parse(Buffer.from(bytes).toString()) as Refusal;
      if (id === undefined || refusal.project_id === id)
        printLine(flags.json ? JSON.stringify(refusal) : refusalText(refusal));
    };
    const show = (frame: Uint8Array): void => {
      for (const item of entriesOf(frame).flatMap(seenItems).filter(wanted))
        printLine(flags.json ? seenJson(item) : seenText(item));
    };
    // Frames of all streams are read. The first item of an envelope decides the envelope's stream,
    // and an item of the wanted type may follow later in the envelope.
    follow(link, flags.refused ? 'refused' : 'frames', flags.refused ? showRefusal : show);
    const what = flags.refused ? 'requests as they are refused' : 'items as they are accepted';
    if (!flags.json) process.stderr.write(`Showing ${what}; Ctrl-C ends.\n`);
    // The command also ends when nobody reads its output any more.
    await Promise.race([untilStopped(), once(process.stdout, 'error')]);
  });
}

export function tailCommand(): Command {
  return new Command('tail')
    .description('print accepted items as they come, without consuming them')
    .argument('[id]', 'only of this project, by id or alias', parseProjectId)
    .addOption(new Option('--type <type>', 'only of this type').choices([...ITEM_TYPES, 'heartbeat']))
    .addOption(
      new Option(
        '--refused',
        'print requests that were refused, filtered or empty, and why, instead',
      ).conflicts('type'),
    )
    .option('--json', 'print one JSON object a line, with the payload')
    .action(run);
}
