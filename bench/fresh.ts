import { type ChildProcess, fork } from 'node:child_process';
import type { FromChild, WorkName, WorkOptions, WorkResult } from './child.ts';

const PROGRAM = new URL('./child.js', import.meta.url);

export type Fresh<N extends WorkName> = { pid: number; result: Promise<WorkResult<N>>; end(): Promise<void> };

/** Starts one piece of work in a process of its own. `end` must be called, whatever came of it. */
export function startFresh<N extends WorkName>(name: N, options: WorkOptions<N>): Fresh<N> {
  const child = fork(PROGRAM, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'], serialization: 'advanced' });
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const result = new Promise<WorkResult<N>>((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code, signal) => reject(new Error(`the bench ${name} ended: ${signal ?? code}`)));
    child.once('message', ({ result, error }: FromChild) =>
      error === undefined
        ? resolve(result as WorkResult<N>)
        : reject(new Error(`the bench ${name} failed: ${error}`)),
    );
  });
  result.catch(() => undefined);
  child.send({ name, options });
  return { pid: child.pid ?? 0, result, end: () => endChild(child, exited) };
}

async function endChild(child: ChildProcess, exited: Promise<void>): Promise<void> {
  if (child.connected) child.disconnect();
  await exited;
}

/** Runs one piece of work in a process of its own. */
export async function runFresh<N extends WorkName>(name: N, options: WorkOptions<N>): Promise<WorkResult<N>> {
  const fresh = startFresh(name, options);
  try {
    return await fresh.result;
  } finally {
    await fresh.end();
  }
}
