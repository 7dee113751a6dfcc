import { setTimeout as pause } from 'node:timers/promises';
import { childrenOf } from '../../bench/processes.ts';
import { Command, DIST } from '../support/system.ts';

const RESTART_MS = 300;

/** A command of ours that is started again whenever it ends, as a supervisor would. */
export class Supervised {
  readonly #start: () => Command;
  #command: Command;
  #wanted = true;
  #log = '';
  starts = 1;
  /** The build that runs from the next start on. */
  dist: string;

  constructor(args: string[], env: Record<string, string>, dist = DIST) {
    this.dist = dist;
    this.#start = () => new Command(args, env, this.dist);
    this.#command = this.#start();
    void this.#keep();
  }

  get pid(): number {
    return this.#command.child.pid ?? 0;
  }

  /** Process ids of its children. */
  get children(): number[] {
    return childrenOf(this.pid);
  }

  /** Everything that it logged in all its lives. */
  get log(): string {
    return this.#log + this.#command.log;
  }

  /** Does nothing when it has just ended. */
  signal(signal: NodeJS.Signals): void {
    this.#command.child.kill(signal);
  }

  /** Ends it and leaves it ended. */
  async stop(): Promise<number | null> {
    this.#wanted = false;
    this.signal('SIGCONT');
    return this.#command.stop();
  }

  /** After stop(). */
  again(): void {
    this.#wanted = true;
    this.#replace();
    void this.#keep();
  }

  /** SIGTERM, and resolves when it has ended; it is started again. @returns its exit status */
  async endOnce(): Promise<number | null> {
    const { exited } = this.#command;
    this.signal('SIGTERM');
    return exited;
  }

  async #keep(): Promise<void> {
    for (;;) {
      await this.#command.exited;
      await pause(RESTART_MS);
      if (!this.#wanted) return;
      this.#replace();
    }
  }

  #replace(): void {
    this.#log += this.#command.log;
    this.#command = this.#start();
    this.starts++;
  }
}
