/** What each hostile bench shows, at size: runs it, and says in words whether it held. */
import type { Harness } from '../harness.ts';
import { growth, type Samples, total } from '../scrape.ts';
import { runApplyFiles } from './apply-files.ts';
import { chunkCount } from './chunks.ts';
import { runHeads } from './heads.ts';
import type { BodyKind } from './mutate.ts';
import { type MutationOptions, type MutationResult, runMutations } from './mutations.ts';
import type { Show } from './scene.ts';
import { findStored, runAborts, runUploads, type UploadOptions } from './uploads.ts';
import type { HostileWorker } from './worker.ts';

const MIB = 1024 * 1024;
/** By how much a worker's resident memory may grow under large uploads. */
const GROWTH_MAX = 150 * MIB;
/** A minute's drift that counts as flat, in bytes per second. */
const SLOPE_MAX = MIB / 4;
const ABORT_BYTES = 5_000_000;
const DRAIN_MS_MAX = 600_000;

const mib = (bytes: number): string => (bytes / MIB).toFixed(1);
const counted = (counts: Record<string, number>): string =>
  Object.entries(counts)
    .sort(([, a], [, b]) => b - a)
    .map(([kind, count]) => `${count} × ${kind}`)
    .join(', ');
const memoryLine = (memory: { before: number; peak: number; after: number; slope: number }): string =>
  `memory     ${mib(memory.before)} MiB before, ${mib(memory.peak)} at most, ${mib(memory.after)} after; slope ${(memory.slope / 1024).toFixed(1)} KiB/s over the second half`;

/** `memory`: of the worker; undefined where no worker is asked. */
type Result = Omit<MutationResult, 'memory'> & Partial<Pick<MutationResult, 'memory'>>;
type Run = (worker: HostileWorker, options: MutationOptions) => Promise<Result>;
const bodies =
  (kind: BodyKind): Run =>
  (worker, options) =>
    runMutations(worker, options, kind);
/** Kinds of mutated input, and how many connections send it. */
const MUTATED: Readonly<Record<string, { run: Run; connections: number }>> = {
  envelopes: { run: bodies('envelopes'), connections: 16 },
  'otlp-json': { run: bodies('otlp-json'), connections: 16 },
  'otlp-protobuf': { run: bodies('otlp-protobuf'), connections: 16 },
  heads: { run: runHeads, connections: 256 },
  'apply-files': { run: (_worker, options) => runApplyFiles(options), connections: 1 },
};

/** Waits until the processor is done. @returns the items by what became of them since `before`; undefined: it is not done */
async function processed(harness: Harness, before: Samples): Promise<Record<string, number> | undefined> {
  if (!(await harness.drained(DRAIN_MS_MAX))) return undefined;
  return growth(before, await harness.processorMetrics(), {
    name: 'sluice_processed_total',
    label: 'result',
  });
}

export const mutations: Show = async ({ harness, worker, targets, count = 1_000_000, seed, only }) => {
  const found: string[] = [];
  let holds = true;
  await harness.startProcessor();
  for (const [kind, { run, connections }] of Object.entries(MUTATED)) {
    if (!kind.includes(only)) continue;
    // A run before the run: code is compiled and the heap has found its size.
    await run(worker, { targets, count: Math.ceil(count / 20), seed: seed + 1, connections });
    const before = await harness.processorMetrics();
    const result = await run(worker, { targets, count, seed, connections });
    const { answers, surprises, restarts, seconds, memory } = result;
    const items = await processed(harness, before);
    found.push(
      `mutations  ${count} ${kind}, seed ${seed}, in ${seconds.toFixed(0)} s (${Math.round(count / seconds)}/s)`,
      `answers    ${counted(answers)}`,
      `surprises  ${surprises.length === 0 ? 'none' : surprises.join('\n           ')}`,
      `restarts   ${restarts}`,
      `processed  ${items ? counted(items) || 'nothing' : 'not all that was accepted'}`,
      ...(memory ? [memoryLine(memory)] : []),
    );
    holds &&= surprises.length === 0 && restarts === 0 && items !== undefined;
    holds &&= memory === undefined || memory.slope < SLOPE_MAX;
  }
  return { lines: found, holds: holds && found.length > 0 };
};

type UploadShow = Omit<UploadOptions, 'targets' | 'count' | 'seed'> & { expect: 'stored' | 'refused' };

export const uploads =
  ({ expect, ...options }: UploadShow): Show =>
  async ({ harness, worker, crowd: targets, count = 400, seed }) => {
    await harness.startProcessor();
    // One before the others: what is loaded once is no growth.
    await runUploads(worker, { ...options, targets, count: 4, seed: seed + 1, bytesPerSecond: 10_000_000 });
    const result = await runUploads(worker, { ...options, targets, count, seed });
    const { answers, seconds, transmittedBytes, memory } = result;
    const drained = await harness.drained(DRAIN_MS_MAX);
    const found = await findStored(worker, result);
    const growth = memory.peak - memory.before;
    const refused = answers['413 {"error":"Payload too large"}'] ?? 0;
    const lines = [
      `uploads    ${count} of ${mib(options.payloadBytes)} MiB${options.gzip ? ' in gzip' : ''} at ${options.bytesPerSecond / 1000} kB/s each, ${mib(transmittedBytes)} MiB in all, in ${seconds.toFixed(1)} s`,
      `answers    ${counted(answers)}`,
      memoryLine(memory),
      `growth     ${mib(growth)} MiB, allowed are ${mib(GROWTH_MAX)}`,
      `stored     ${found.intact} intact, ${found.damaged.length} damaged, ${found.missing.length} missing${drained ? '' : '; the streams were not empty yet'}`,
    ];
    const asExpected = expect === 'stored' ? found.intact === count : refused === count;
    return { lines, holds: asExpected && growth <= GROWTH_MAX };
  };

export const aborts: Show = async ({ worker, targets, count = 10_000 }) => {
  const target = targets[0] as (typeof targets)[0];
  const startedAt = performance.now();
  const before = worker.rss();
  await runAborts(worker, { target, count, bodyBytes: ABORT_BYTES, atOnce: 8 });
  await worker.idle();
  const seconds = (performance.now() - startedAt) / 1000;
  const samples = await worker.metrics();
  const aborted = total(samples, 'sluice_requests_total', 'outcome="aborted"');
  const files = worker.spoolFiles();
  const chunks = await chunkCount(worker);
  const spooled = total(samples, 'sluice_spooled_bytes');
  const lines = [
    `aborts     ${count} bodies of ${ABORT_BYTES} bytes, each left before its last byte, in ${seconds.toFixed(0)} s`,
    `outcomes   ${aborted} aborted`,
    `left over  ${chunks} chunks in the stream, ${files.named} files in the spool folder, ${files.open} open; ${spooled} bytes spooled`,
    `memory     ${mib(before)} MiB before, ${mib(worker.rss())} after`,
  ];
  return { lines, holds: aborted === count && chunks + files.named + files.open + spooled === 0 };
};
