import type { Job, Settings } from './plan.ts';
import type { BenchRecord } from './records.ts';

/** In a smoke run jobs mostly wait for processes to start; figures mean nothing there, so they may disturb one another. */
const SMOKE_JOBS_AT_ONCE = 3;

/**
 * Runs all jobs `rounds` times, going backwards every other round, so that what drifts does not favour one of them.
 * @param keep is given everything found so far after each job: a run that is ended early loses nothing
 */
export async function runJobs(
  jobs: readonly Job[],
  settings: Settings,
  keep: (records: readonly BenchRecord[]) => void,
): Promise<BenchRecord[]> {
  const { rounds, say, smoke } = settings;
  const records: BenchRecord[] = [];
  for (let round = 1; round <= rounds; round++) {
    const waiting = round % 2 === 1 ? [...jobs] : jobs.toReversed();
    const worker = async (): Promise<void> => {
      for (let job = waiting.shift(); job; job = waiting.shift()) {
        const startedAt = performance.now();
        const finding = await job.run();
        records.push({ ...finding, round, at: new Date().toISOString() } as BenchRecord);
        keep(records);
        say(
          `round ${round}/${rounds}  ${job.name}  ${((performance.now() - startedAt) / 1000).toFixed(1)} s`,
        );
      }
    };
    await Promise.all(Array.from({ length: smoke ? SMOKE_JOBS_AT_ONCE : 1 }, worker));
  }
  return records;
}
