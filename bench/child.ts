/**
 * A bench in a process of its own: takes its options over the channel, runs, and sends back the result. The generator must not share
 * an event loop with anything, and a bench must not inherit the heap or the compiled code of the one before it.
 */
import type { JetStreamOptions } from './component/jetstream.ts';
import type { RedisScriptOptions } from './component/redis-script.ts';
import type { UwsOptions } from './component/uws.ts';
import type { WitnessOptions } from './isolation/witness.ts';
import type { LoadOptions } from './load/options.ts';
import type { MicroOptions } from './micro/run.ts';
import type { ReplicaOptions } from './projects/replica.ts';

/** What can run in a child: options in, result out. A server sends its port at once and lives until its parent ends it. */
export const WORK = {
  load: async (options: LoadOptions) => (await import('./load/options.ts')).runLoad(options),
  micro: async (options: MicroOptions) => (await import('./micro/run.ts')).runMicro(options),
  redisScript: async (options: RedisScriptOptions) =>
    (await import('./component/redis-script.ts')).runRedisScript(options),
  jetStream: async (options: JetStreamOptions) =>
    (await import('./component/jetstream.ts')).runJetStream(options),
  isolationWitness: async (options: WitnessOptions) =>
    (await import('./isolation/witness.ts')).runWitness(options),
  replica: async (options: ReplicaOptions) => (await import('./projects/replica.ts')).runReplica(options),
  uws: async (options: UwsOptions) => (await import('./component/uws.ts')).serveUws(options),
};
export type WorkName = keyof typeof WORK;
export type WorkOptions<N extends WorkName> = Parameters<(typeof WORK)[N]>[0];
export type WorkResult<N extends WorkName> = Awaited<ReturnType<(typeof WORK)[N]>>;
export type FromChild = { result?: unknown; error?: string };

async function work(message: { name: WorkName; options: unknown }): Promise<void> {
  const run = WORK[message.name] as (options: unknown) => Promise<unknown>;
  try {
    process.send?.({ result: await run(message.options) } satisfies FromChild);
  } catch (error) {
    process.send?.({
      error: error instanceof Error ? (error.stack ?? error.message) : String(error),
    } satisfies FromChild);
  }
}

process.once('message', (message: { name: WorkName; options: unknown }) => void work(message));
// Whoever started us is gone, or has what it wanted.
process.on('disconnect', () => process.exit(0));
