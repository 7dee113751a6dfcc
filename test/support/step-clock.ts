/** A wall clock of one process (and its children) that can be stepped from outside; the clocks of all others stay as they are. */
import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, closeSync, openSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { temporaryFolder } from './servers.ts';

const SOURCE = new URL('./step-clock.c', import.meta.url).pathname;

/** Needs a C compiler, and Linux's way of putting a library before others. Go programs (nats-server) do not ask the C library. */
export const canStepClocks = (): boolean =>
  process.platform === 'linux' && spawnSync('cc', ['--version'], { stdio: 'ignore' }).status === 0;

export class StepClock {
  readonly #dir = temporaryFolder('clock');
  readonly #file: number;
  #offsetMs = 0;
  /** For the process whose clock this shall be. */
  readonly env: Readonly<Record<string, string>>;

  constructor() {
    const library = join(this.#dir, 'step-clock.so');
    const path = join(this.#dir, 'offset');
    execFileSync('cc', ['-shared', '-fPIC', '-O2', '-o', library, SOURCE, '-ldl']);
    this.#file = openSync(path, 'w');
    this.#write();
    this.env = { LD_PRELOAD: library, STEP_CLOCK_FILE: path };
  }

  /** By milliseconds, negative ones back. */
  step(ms: number): void {
    this.#offsetMs += ms;
    this.#write();
  }

  #write(): void {
    const bytes = Buffer.alloc(8);
    bytes.writeBigInt64LE(BigInt(this.#offsetMs));
    writeSync(this.#file, bytes, 0, bytes.length, 0);
  }

  /** A program that runs `program` with this clock, for starters that take a path and no environment. @returns its path */
  wrapped(program: string): string {
    const path = join(this.#dir, 'program');
    const settings = Object.entries(this.env).map(([name, value]) => `${name}='${value}'`);
    writeFileSync(path, `#!/bin/sh\nexec env ${settings.join(' ')} '${program}' "$@"\n`);
    chmodSync(path, 0o755);
    return path;
  }

  close(): void {
    closeSync(this.#file);
    rmSync(this.#dir, { recursive: true, force: true });
  }
}
