/** What `--verify` asks of a sink. The readers are in src/commands/load and src/sink. */

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
