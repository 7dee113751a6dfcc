import { once } from 'node:events';
import { Command, Option } from 'commander';
import { ITEM_TYPES } from '../lib/item-types.ts';
import { untilStopped } from '../lib/shutdown.ts';
import { ProjectStore } from '../projects/project-store.ts';
import { decodeFrame, type Entry, FrameError } from '../stream/frame.ts';
import { followFrames } from '../stream/tail.ts';
import { CHUNKS_STREAM } from '../stream/topology.ts';
import { printLine } from './print.ts';
import { parseProjectId } from './project/fields.ts';
import { withSession } from './session.ts';
import { type SeenItem, seenItems, seenJson, seenText } from './tail-item.ts';

type Flags = { type?: SeenItem['type']; json?: boolean };

/** Entries of a frame; none where the frame cannot be decoded, which the processor reports. */
function entriesOf(frame: Uint8Array): Entry[] {
  try {
    return decodeFrame(frame).flatMap((slot) => (slot.ok ? [slot.entry] : []));
  } catch (error) {
    if (error instanceof FrameError) return [];
    throw error;
  }
}

/**
 * Shows frames that the streams have acknowledged. It consumes none, and does not show those
 * accepted before its start.
 */
async function run(idOrAlias: string | undefined, flags: Flags): Promise<void> {
  await withSession(async (session) => {
    const link = await session.connections.nats();
    // Without streams nothing would ever come: that is said instead.
    await (await link.manager()).streams.info(CHUNKS_STREAM);
    const id =
      idOrAlias === undefined ? undefined : (await (await ProjectStore.open(link)).get(idOrAlias)).id;
    const wanted = (item: SeenItem): boolean =>
      (id === undefined || item.projectId === id) && (flags.type === undefined || item.type === flags.type);
    const show = (frame: Uint8Array): void => {
      for (const item of entriesOf(frame).flatMap(seenItems).filter(wanted))
        printLine(flags.json ? seenJson(item) : seenText(item));
    };
    // All streams: an item of the wanted type may follow the first one of its envelope, which
    // decides the stream.
    followFrames(link, show);
    if (!flags.json) process.stderr.write('Showing items as they are accepted; Ctrl-C ends.\n');
    // It ends with its reader, too.
    await Promise.race([untilStopped(), once(process.stdout, 'error')]);
  });
}

export function tailCommand(): Command {
  return new Command('tail')
    .description('print accepted items as they come, without consuming them')
    .argument('[id]', 'only of this project, by id or alias', parseProjectId)
    .addOption(new Option('--type <type>', 'only of this type').choices([...ITEM_TYPES, 'heartbeat']))
    .option('--json', 'print one JSON object a line, with the payload')
    .action(run);
}
