/** What the contract says of a Redis that came back empty: it is noticed, and `usage reconcile` corrects the counter. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { ProjectName, Terms, Told } from './ledger.ts';
import type { Stand } from './stand.ts';

const CLI = new URL('../../dist/cli.js', import.meta.url).pathname;
const run = promisify(execFile);

async function reconciled(stand: Stand, id: string): Promise<number> {
  const args = [CLI, 'usage', 'reconcile', id, '--json'];
  const { stdout } = await run(process.execPath, args, { env: { ...process.env, ...stand.env } });
  return (JSON.parse(stdout) as { after: number }).after;
}

/** For a scenario's end. @returns sentences about what is wrong */
export async function redisForgot(stand: Stand, terms: Terms, told: readonly Told[]): Promise<string[]> {
  const broken: string[] = [];
  if ((await stand.metric('sluice_limiter_state_lost_total')) === 0)
    broken.push('sluice_limiter_state_lost_total says nothing');
  const check = async ([name, { id }]: [string, { id: string }]): Promise<void> => {
    const mine = told.filter((one) => one.project === (name as ProjectName));
    const accepted = mine.filter(({ status }) => status === 200).length;
    const unknown = mine.filter(({ status }) => status === 0 || status === 500).length;
    const usage = await reconciled(stand, id);
    if (usage < accepted || usage > accepted + unknown)
      broken.push(`${name}: reconciled to ${usage}, and ${accepted} were accepted, ${unknown} unknown`);
  };
  // Together: each waits for as long as an answer may be due.
  await Promise.all(Object.entries(terms.projects).map(check));
  return broken;
}
