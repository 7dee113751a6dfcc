/** What `--verify` asks of a sink. The readers of sinks are in src/commands/load and src/sink. */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';

export type StoredItem = {
  projectId: string;
  eventId: string;
  /** Place of the item in its envelope. */
  index: number;
  /** How often the sink has it; 1 is right. */
  copies: number;
};

export interface StoredReader {
  /** Accepted envelopes by project; undefined where the sink keeps no tally. */
  tally?(): Promise<ReadonlyMap<string, number>>;
  /** Every item that was received at this moment or later; earlier ones may be among them. */
  scan(since: Date, onItem: (item: StoredItem) => void): Promise<void>;
  /** A scan leaves out what an earlier one told. */
  readonly tellsOnce?: true;
  /** For so long the sink holds back what it is given. */
  readonly delayMs?: number;
  close(): Promise<void>;
}

/**
 * `--verify-with COMMAND`: the ids go to its input, a line each, and a line of its output is one that is stored; one that is there
 * twice is stored twice. So any server can be asked.
 */
export function commandReader(command: string, ids: () => Iterable<string>): StoredReader {
  return {
    scan: async (_since, onItem) => {
      const child = spawn(command, { shell: true, stdio: ['pipe', 'pipe', 'inherit'] });
      const ended = new Promise<number | null>((resolve, reject) => {
        child.once('error', reject);
        child.once('close', resolve);
      });
      // A command may know all ids without reading them.
      child.stdin.on('error', () => undefined);
      Readable.from(withLineEnds(ids())).pipe(child.stdin);
      for await (const line of createInterface(child.stdout)) {
        const eventId = line.trim().replaceAll('-', '').toLowerCase();
        onItem({ projectId: '', eventId, index: 0, copies: 1 });
      }
      const status = await ended;
      if (status !== 0) throw new Error(`--verify-with: the command ended with ${status}`);
    },
    close: async () => undefined,
  };
}

function* withLineEnds(ids: Iterable<string>): Iterable<string> {
  for (const id of ids) yield `${id}\n`;
}
