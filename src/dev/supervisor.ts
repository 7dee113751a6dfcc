import { type ChildProcess, fork } from 'node:child_process';
import type { RunningServer } from './servers.ts';

const RESTART_MS = 500;
const STOP_MS_MAX = 35_000;

/** One child of `sluice dev`, started again whenever it dies, until it is stopped. */
export interface Child {
  stop(): Promise<void>;
}

type Say = (line: string) => void;

/**
 * Keeps a server alive on the port it first got.
 * @param start with a port: on that port
 */
export async function superviseServer(
  name: string,
  start: (port?: number) => Promise<RunningServer>,
  say: Say,
): Promise<Child & { url: string }> {
  let server = await start();
  let stopping = false;
  const { url, port } = server;
  const watch = async (): Promise<void> => {
    await server.exited;
    while (!stopping) {
      say(`${name} ended; starting it again`);
      await new Promise((resolve) => setTimeout(resolve, RESTART_MS));
      if (stopping) return;
      const next = await start(port).catch((error: Error) => say(error.message));
      if (!next) continue;
      server = next;
      return watch();
    }
  };
  void watch();
  const stop = async (): Promise<void> => {
    stopping = true;
    await server.stop();
  };
  return { url, stop };
}

/**
 * Keeps one of our own commands alive as a child. The child ends when we die (its IPC channel
 * closes).
 */
export function superviseCommand(
  name: string,
  options: { program: URL; env: NodeJS.ProcessEnv; say: Say },
): Child {
  let stopping = false;
  const start = (): ChildProcess => {
    const child = fork(options.program, [name], {
      env: options.env,
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      detached: true,
    });
    child.once('exit', (code, signal) => {
      if (stopping) return;
      options.say(`sluice ${name} ended (${signal ?? code}); starting it again`);
      setTimeout(() => {
        if (!stopping) current = start();
      }, RESTART_MS);
    });
    return child;
  };
  let current = start();
  const stop = async (): Promise<void> => {
    stopping = true;
    if (current.exitCode !== null || current.signalCode !== null) return;
    const gone = new Promise((resolve) => current.once('exit', resolve));
    current.kill('SIGTERM');
    const killer = setTimeout(() => current.kill('SIGKILL'), STOP_MS_MAX);
    await gone;
    clearTimeout(killer);
  };
  return { stop };
}
