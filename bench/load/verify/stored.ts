/**
 * The interface by which `--verify` reads a sink. The readers of sinks are in src/commands/load and
 * src/sink.
 */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';

export type StoredItem = {
  projectId: string;
  eventId: string;
  /** Index of the item in its envelope. */
  index: number;
  /** How many times the sink has the item; 1 is right. */
  copies: number;
};

export interface StoredReader {
  /**
   * Returns the number of accepted envelopes by project. Undefined when the sink keeps no tally.
   */
  tally?(): Promise<ReadonlyMap<string, number>>;
  /**
   * Calls `onItem` for every item that was received at `since` or later; earlier items may be among
   * them.
   */
  scan(since: Date, onItem: (item: StoredItem) => void): Promise<void>;
  /** Set when a scan leaves out items that an earlier scan found. */
  readonly tellsOnce?: true;
  /** How long the sink may hold back items before it stores them. */
  readonly delayMs?: number;
  close(): Promise<void>;
}

/**
 * Makes a reader of `--verify-with COMMAND`. The command gets all ids on its input, one a line, and
 * prints the stored ones, one a line. An id that it prints twice counts as stored twice. So the
 * command can ask any server.
 */
export function commandReader(command: string, ids: () => Iterable<string>): StoredReader {
  return {
    scan: async (_since, onItem) => {
      const child = spawn(command, { shell: true, stdio: ['pipe', 'pipe', 'inherit'] });
      const ended = new Promise<number | null>((resolve, reject) => {
        child.once('error', reject);
        child.once('close', resolve);
      });
      // The command may close its input early, if it needs no ids. This is no error.
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
