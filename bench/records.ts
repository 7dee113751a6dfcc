/** What a bench run leaves behind: one line of raw.ndjson each, whatever the bench. */
import type { JetStreamRow } from './component/jetstream.ts';
import type { RedisScriptRow } from './component/redis-script.ts';
import type { LoadResult } from './load/result.ts';
import type { MicroRow } from './micro/run.ts';
import type { PairRun } from './pairs.ts';
import type { PeerRun } from './peers/run.ts';
import type { SystemRun } from './system/run.ts';

export type UwsRun = { load: LoadResult; serverUs: number };

export type BenchRecord = { round: number; at: string } & (
  | { bench: 'system'; name: string; title: string; data: SystemRun }
  | { bench: 'peer'; name: string; data: PeerRun }
  | { bench: 'pair'; name: string; data: PairRun }
  | { bench: 'micro'; name: string; data: MicroRow[] }
  | { bench: 'component'; name: 'uws'; mix: 'canonical' | 'single-event'; data: UwsRun }
  | { bench: 'component'; name: 'redis-script'; data: RedisScriptRow[] }
  | { bench: 'component'; name: 'jetstream'; data: JetStreamRow[] }
  /** `name`: of the job that found nothing. */
  | { bench: 'failed'; name: string; data: { error: string } }
);
/** A record before it has its round and time. */
export type Finding = BenchRecord extends infer R
  ? R extends BenchRecord
    ? Omit<R, 'round' | 'at'>
    : never
  : never;

export const recordsToText = (records: readonly BenchRecord[]): string =>
  records.map((record) => `${JSON.stringify(record)}\n`).join('');

export const parseRecords = (text: string): BenchRecord[] =>
  text
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as BenchRecord);
