import type { Job, Settings } from './plan.ts';
import type { BenchRecord } from './records.ts';

/** Runs all jobs `rounds` times, going backwards every other round, so that what drifts does not favour one of them. */
export async function runJobs(jobs: readonly Job[], { rounds, say }: Settings): Promise<BenchRecord[]> {
  const records: BenchRecord[] = [];
  for (let round = 1; round <= rounds; round++) {
    const order = round % 2 === 1 ? jobs : jobs.toReversed();
    for (const job of order) {
      const startedAt = performance.now();
      const finding = await job.run();
      records.push({ ...finding, round, at: new Date().toISOString() } as BenchRecord);
      say(`round ${round}/${rounds}  ${job.name}  ${((performance.now() - startedAt) / 1000).toFixed(1)} s`);
    }
  }
  return records;
}
