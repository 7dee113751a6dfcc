/** Micro benches: one part at a time, no I/O. They explain a change that the system benches show; they are no headline. */
import { Bench } from 'tinybench';
import { authTasks } from './auth.ts';
import { decompressionTasks } from './decompression.ts';
import { envelopeSizeTasks } from './envelope-sizes.ts';
import { filterTasks } from './filters.ts';
import { frameTasks } from './frame.ts';
import { inflationTasks } from './inflation.ts';
import { leaseCacheTasks } from './lease-cache.ts';
import { parserTasks } from './parser.ts';
import { scrubTasks } from './scrub.ts';
import { micro } from './task.ts';

export const MICRO_SUITES = {
  parser: parserTasks,
  frame: frameTasks,
  'lease-cache': leaseCacheTasks,
  filters: filterTasks,
  auth: authTasks,
  decompression: decompressionTasks,
  'envelope-sizes': envelopeSizeTasks,
  inflation: inflationTasks,
  scrub: scrubTasks,
};
export type MicroSuite = keyof typeof MICRO_SUITES;
export type MicroOptions = { suite: MicroSuite; timeMs: number };
export type MicroRow = { name: string; nsPerOperation: number; marginPercent: number; samples: number };

/** @throws when a task throws */
export async function runMicro({ suite, timeMs }: MicroOptions): Promise<MicroRow[]> {
  const bench = new Bench({ time: timeMs, warmupTime: timeMs / 4, throws: true });
  const tasks = MICRO_SUITES[suite]();
  for (const { name, run } of tasks) bench.add(name, run);
  await bench.run();
  return bench.tasks.map((task, at) => {
    const { result } = task;
    if (!('latency' in result)) throw new Error(`${task.name}: ${result.state}`);
    const operations = tasks[at]?.operations ?? micro.operations;
    return {
      name: task.name,
      nsPerOperation: (result.latency.p50 * 1e6) / operations,
      marginPercent: result.latency.rme,
      samples: result.latency.samplesCount,
    };
  });
}
