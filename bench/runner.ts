import type { Job, Settings } from './plan.ts';
import type { BenchRecord, Finding } from './records.ts';

/** A smoke run measures nothing, so its jobs may run side by side: they mostly wait for programs to start. */
const SMOKE_LANES = 3;

/**
 * Runs all jobs `rounds` times, going backwards every other round, so that what drifts does not favour one of them. A job that fails is
 * recorded as such, and the others go on: an hour's run shall not end with one refusal of a broker. A smoke run is to show that the
 * benches work, so there a job has a second try: one moment in which the machine stood still says nothing of that.
 * @param keep is given everything found so far after each job: a run that is ended early loses nothing
 */
export async function runJobs(
  jobs: readonly Job[],
  settings: Settings,
  keep: (records: readonly BenchRecord[]) => void,
): Promise<BenchRecord[]> {
  const records: BenchRecord[] = [];
  for (let round = 1; round <= settings.rounds; round++) {
    const queue = (round % 2 === 1 ? jobs : jobs.toReversed()).values();
    const lane = async (): Promise<void> => {
      for (const job of queue) {
        records.push(await recordOf(job, round, settings));
        keep(records);
      }
    };
    await Promise.all(Array.from({ length: settings.smoke ? SMOKE_LANES : 1 }, lane));
  }
  return records;
}

async function recordOf(job: Job, round: number, { rounds, say, smoke }: Settings): Promise<BenchRecord> {
  const startedAt = performance.now();
  let finding = await findingOf(job);
  const faults = faultsOf(finding);
  if (smoke && faults.length > 0) {
    say(`round ${round}/${rounds}  ${job.name}  once more: ${faults.join('; ').split('\n')[0]}`);
    finding = await findingOf(job);
  }
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
  const end = finding.bench === 'failed' ? `FAILED: ${finding.data.error}` : `${seconds} s`;
  say(`round ${round}/${rounds}  ${job.name}  ${end}`);
  return { ...finding, round, at: new Date().toISOString() } as BenchRecord;
}

async function findingOf(job: Job): Promise<Finding> {
  try {
    return await job.run();
  } catch (error) {
    return { bench: 'failed', name: job.name, data: { error: (error as Error).message } };
  }
}

function faultsOf({ bench, data }: Finding): readonly string[] {
  if (bench === 'failed') return [data.error];
  return 'problems' in data ? data.problems : [];
}
