/** What `--verify` asks of a sink. The readers are in src/commands/load, one for each kind of sink. */

export type StoredItem = {
  projectId: string;
  eventId: string;
  /** Place of the item in its envelope. */
  index: number;
  /** How often the sink has it; 1 is right. */
  copies: number;
};

export interface StoredReader {
  /** Accepted envelopes by project, of all months that the sink's tally keeps. */
  tally(): Promise<ReadonlyMap<string, number>>;
  /** Every item that was received at this moment or later; earlier ones may be among them. */
  scan(since: Date, onItem: (item: StoredItem) => void): Promise<void>;
  close(): Promise<void>;
}
