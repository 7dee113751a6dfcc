import { type ChildProcess, fork } from 'node:child_process';
import { get } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';
import { PROCESSOR_FLAGS } from '../../ingest/worker-pool.ts';
import type { RunningServer } from './servers.ts';

const RESTART_MS = 500;
const READY_MS_MAX = 30_000;
const READY_POLL_MS = 50;
const STOP_MS_MAX = 35_000;

/**
 * A part of `sluice dev`. A process of it that dies after it was ready is started again, until
 * `stop`.
 */
export interface Part {
  stop(): Promise<void>;
}

type Say = (line: string) => void;

type ProcessorOptions = { program: URL; env: NodeJS.ProcessEnv; readyUrl: string; say: Say };

/**
 * Starts a server, and starts it again on the same port whenever it ends.
 * @param start takes the port, or undefined for any free one
 */
export async function superviseServer(
  name: string,
  start: (port?: number) => Promise<RunningServer>,
  say: Say,
): Promise<Part & { url: string }> {
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
 * Waits until a part of sluice answers on its `readyUrl` that it is ready.
 * @param ended tells how the part's process has ended; null while it runs
 * @throws when the process has ended, or after READY_MS_MAX
 */
export async function untilReady(
  name: string,
  readyUrl: string,
  ended: () => string | number | null = () => null,
): Promise<void> {
  for (const until = Date.now() + READY_MS_MAX; Date.now() < until; await pause(READY_POLL_MS)) {
    if (await answersOk(readyUrl)) return;
    const how = ended();
    if (how !== null) throw new Error(`sluice ${name} ended at start (${how}); the lines above say why`);
  }
  throw new Error(`sluice ${name} is not ready after ${READY_MS_MAX / 1000} s; the lines above say why`);
}

/**
 * The processor as a child process, which is started again when it ends. The child ends when this
 * process dies, because its IPC channel closes. A child that ends before it was ever ready is not
 * started again.
 */
export class ProcessorChild implements Part {
  readonly #options: ProcessorOptions;
  #process: ChildProcess;
  #wasReady = false;
  #stopping = false;

  constructor(options: ProcessorOptions) {
    this.#options = options;
    this.#process = this.#start();
  }

  /**
   * Waits until the processor is ready.
   * @throws as {@link untilReady}
   */
  async ready(): Promise<void> {
    await untilReady('processor', this.#options.readyUrl, () => this.#how);
    this.#wasReady = true;
  }

  async stop(): Promise<void> {
    this.#stopping = true;
    const child = this.#process;
    if (this.#how !== null) return;
    const gone = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGTERM');
    const killer = setTimeout(() => child.kill('SIGKILL'), STOP_MS_MAX);
    await gone;
    clearTimeout(killer);
  }

  /** How the process has ended; null while it runs. */
  get #how(): string | number | null {
    return this.#process.signalCode ?? this.#process.exitCode;
  }

  #start(): ChildProcess {
    const { program, env } = this.#options;
    const child = fork(program, ['processor'], {
      env,
      execArgv: [...process.execArgv, ...PROCESSOR_FLAGS],
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      detached: true,
    });
    child.once('exit', (code, signal) => void this.#ended(signal ?? code));
    return child;
  }

  async #ended(how: string | number | null): Promise<void> {
    if (this.#stopping || !this.#wasReady) return;
    this.#options.say(`sluice processor ended (${how}); starting it again`);
    await pause(RESTART_MS);
    if (!this.#stopping) this.#process = this.#start();
  }
}
