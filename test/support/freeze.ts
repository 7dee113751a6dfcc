/** Processes that stand still while their connections stay open. */
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

/** One letter for each thread, as `ps` says it: T is stopped. */
function threadStates(pid: number): string[] {
  if (process.platform !== 'linux')
    return [
      execFileSync('ps', ['-o', 'state=', '-p', `${pid}`], { encoding: 'utf8' })
        .trim()
        .slice(0, 1),
    ];
  const tasks = `/proc/${pid}/task`;
  return readdirSync(tasks).map((task) => {
    try {
      const stat = readFileSync(`${tasks}/${task}/stat`, 'utf8');
      // The program's name stands in brackets, and may have brackets itself.
      return stat.charAt(stat.lastIndexOf(')') + 2);
    } catch {
      return 'X'; // a thread that has ended meanwhile
    }
  });
}

/** Waits until no thread runs: those of a busy machine go on for a moment after the signal, and a server still answers. */
export async function freeze(pid: number | undefined): Promise<void> {
  if (pid === undefined) throw new Error('the process did not start');
  process.kill(pid, 'SIGSTOP');
  for (;;) {
    const states = threadStates(pid);
    if (states.includes('Z')) throw new Error(`process ${pid} has ended`);
    if (states.every((state) => state === 'T')) return;
    await sleep(1);
  }
}

/** Also for one that runs, or has ended meanwhile. */
export function thaw(pid: number | undefined): void {
  try {
    if (pid !== undefined) process.kill(pid, 'SIGCONT');
  } catch {
    // It has ended.
  }
}
