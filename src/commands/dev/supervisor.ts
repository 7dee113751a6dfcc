import { type ChildProcess, fork } from 'node:child_process';
import { get } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';
import { COLLECTIONS_ON_REQUEST, PROCESSOR_FLAGS } from '../../ingest/worker-pool.ts';
import type { RunningServer } from './servers.ts';

const RESTART_MS = 500;
const READY_POLL_MS = 50;
const STOP_MS_MAX = 35_000;
/**
 * V8 flags, by command. The primary of ingest takes no requests, and with a small young space it
 * needs 14 MB less. It gives its workers flags of their own.
 */
const FLAGS: Readonly<Record<string, readonly string[]>> = {
  ingest: ['--max-semi-space-size=1', COLLECTIONS_ON_REQUEST],
  processor: PROCESSOR_FLAGS,
};

/** A child of `sluice dev`. When it dies after it was ready, it is started again, until `stop`. */
export interface Child {
  stop(): Promise<void>;
}

type Say = (line: string) => void;

type CommandOptions = { program: URL; env: NodeJS.ProcessEnv; readyUrl: string; say: Say };

/**
 * Starts a server, and starts it again on the same port whenever it ends.
 * @param start takes the port, or undefined for any free one
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
      await pause(RESTART_MS);
      if (stopping) return;
      const next = await start(port).catch((error: Error) => say(error.message));
      if (!next) continue;
      server = next;
      return watch();
    }
  };
  const watching = watch();
  const stop = async (): Promise<void> => {
    stopping = true;
    await server.stop();
    await watching; // the watch may have just started a server
    await server.stop();
  };
  return { url, stop };
}

/** Whether the URL answers with status 200. `fetch` would keep 16 MB for WebAssembly. */
function answersOk(url: string): Promise<boolean> {
  return new Promise((resolve) => {
    get(url, { agent: false }, (answer) => {
      answer.resume();
      resolve(answer.statusCode === 200);
    }).on('error', () => resolve(false));
  });
}

/**
 * A command of sluice that runs as a child process, and is started again when it ends. The child
 * ends when this process dies, because its IPC channel closes. A child that ends before it was ever
 * ready is not started again.
 */
export class CommandChild implements Child {
  readonly #name: string;
  readonly #options: CommandOptions;
  #process: ChildProcess;
  #wasReady = false;
  #stopping = false;

  constructor(name: string, options: CommandOptions) {
    this.#name = name;
    this.#options = options;
    this.#process = this.#start();
  }

  /**
   * Waits until `readyUrl` answers that the command is ready.
   * @throws when the command has ended, or after `msMax`
   */
  async ready(msMax: number): Promise<void> {
    for (const until = Date.now() + msMax; Date.now() < until; await pause(READY_POLL_MS)) {
      this.#wasReady = await answersOk(this.#options.readyUrl);
      if (this.#wasReady) return;
      const { exitCode, signalCode } = this.#process;
      const how = signalCode ?? exitCode;
      if (how !== null)
        throw new Error(`sluice ${this.#name} ended at start (${how}); the lines above say why`);
    }
    throw new Error(`sluice ${this.#name} is not ready after ${msMax / 1000} s; the lines above say why`);
  }

  async stop(): Promise<void> {
    this.#stopping = true;
    const child = this.#process;
    if (child.exitCode !== null || child.signalCode !== null) return;
    const gone = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGTERM');
    const killer = setTimeout(() => child.kill('SIGKILL'), STOP_MS_MAX);
    await gone;
    clearTimeout(killer);
  }

  #start(): ChildProcess {
    const { program, env } = this.#options;
    const child = fork(program, [this.#name], {
      env,
      execArgv: [...process.execArgv, ...(FLAGS[this.#name] ?? [])],
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      detached: true,
    });
    child.once('exit', (code, signal) => void this.#ended(signal ?? code));
    return child;
  }

  async #ended(how: string | number | null): Promise<void> {
    if (this.#stopping || !this.#wasReady) return;
    this.#options.say(`sluice ${this.#name} ended (${how}); starting it again`);
    await pause(RESTART_MS);
    if (!this.#stopping) this.#process = this.#start();
  }
}
