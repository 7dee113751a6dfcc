/** What the kernel says of a process: CPU time and memory. Linux only; elsewhere the figures are absent. */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

/** USER_HZ, which Linux fixes at 100 for everything that reads /proc. */
const TICKS_PER_SEC = 100;

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

/** Sum of fields of /proc/<pid>/stat that count ticks, in microseconds; resolution 10 ms. 0 when there is no such process. */
function ticksUs(pid: number, places: readonly number[]): number {
  const text = read(`/proc/${pid}/stat`);
  // The name in parentheses may hold anything.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  return (places.reduce((sum, at) => sum + Number(fields[at] ?? 0), 0) / TICKS_PER_SEC) * 1e6;
}

/** User and system time of all threads, in microseconds. */
export const cpuUs = (pid: number): number => ticksUs(pid, [11, 12]);

/** User and system time of a process and its descendants, also of those that have ended, in microseconds. */
export const treeCpuUs = (pid: number): number =>
  [pid, ...descendantsOf(pid)].reduce((sum, one) => sum + ticksUs(one, [11, 12, 13, 14]), 0);

/** User and system time of everything that runs on this machine, in microseconds; the first line of /proc/stat without idle and waiting. */
export function machineCpuUs(): number {
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0, steal = 0] = read('/proc/stat')
    .split('\n', 1)[0]!
    .trim()
    .split(/\s+/)
    .slice(1)
    .map(Number);
  return ((user + nice + system + irq + softirq + steal) / TICKS_PER_SEC) * 1e6;
}

/** What each descriptor stands for: `socket:[123]`, `/tmp/sluice-spool-1-ab (deleted)`. Linux only. @throws when there is no such process */
export function descriptorsOf(pid: number): string[] {
  return readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
    try {
      return [readlinkSync(`/proc/${pid}/fd/${fd}`)];
    } catch {
      return []; // closed since
    }
  });
}

/** Largest resident set so far, in bytes. */
export function peakRssBytes(pid: number): number {
  const kib = /VmHWM:\s+(\d+) kB/.exec(read(`/proc/${pid}/status`))?.[1];
  return Number(kib ?? 0) * 1024;
}

/** Resident set, in bytes. */
export function residentBytes(pid: number): number {
  const kib = /VmRSS:\s+(\d+) kB/.exec(read(`/proc/${pid}/status`))?.[1];
  return Number(kib ?? 0) * 1024;
}

/** How often the threads of a process have waited for something, and gone on. A thread that ended is not counted. */
export function wakeUps(pid: number): number {
  try {
    return readdirSync(`/proc/${pid}/task`).reduce((sum, task) => {
      const waited = /voluntary_ctxt_switches:\s+(\d+)/.exec(read(`/proc/${pid}/task/${task}/status`))?.[1];
      return sum + Number(waited ?? 0);
    }, 0);
  } catch {
    return 0;
  }
}

/** Living children, by any thread. */
export function childrenOf(pid: number): number[] {
  try {
    return readdirSync(`/proc/${pid}/task`).flatMap((task) =>
      read(`/proc/${pid}/task/${task}/children`).split(' ').filter(Boolean).map(Number),
    );
  } catch {
    return [];
  }
}

/** Living children, their children, and so on. */
export const descendantsOf = (pid: number): number[] =>
  childrenOf(pid).flatMap((child) => [child, ...descendantsOf(child)]);
