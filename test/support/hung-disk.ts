/** A folder whose disk hangs for one program when a test says so, as one does that has lost its cable: calls to it do not return. */
import { execFileSync } from 'node:child_process';
import { closeSync, mkdirSync, openSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { temporaryFolder } from './servers.ts';

const SOURCE = new URL('./hung-disk.c', import.meta.url).pathname;
const LETTERS = { open: 'o', write: 'w', read: 'r' } as const;

/** Needs what StepClock needs (test/support/step-clock.ts). */
export class HungDisk {
  readonly #dir = temporaryFolder('hung-disk');
  readonly #file: number;
  readonly folder = join(this.#dir, 'spool');
  /** For the process whose disk this shall be. */
  readonly env: Readonly<Record<string, string>>;

  constructor() {
    const library = join(this.#dir, 'hung-disk.so');
    const path = join(this.#dir, 'calls');
    mkdirSync(this.folder);
    execFileSync('cc', ['-shared', '-fPIC', '-O2', '-o', library, SOURCE, '-ldl']);
    this.#file = openSync(path, 'w');
    this.hang();
    this.env = { LD_PRELOAD: library, HUNG_DISK_FILE: path, HUNG_DISK_FOLDER: this.folder };
  }

  /** From now on these calls hang and no others; calls that hang no longer go on. */
  hang(...calls: (keyof typeof LETTERS)[]): void {
    const letters = calls.map((call) => LETTERS[call]).join('');
    writeSync(this.#file, letters.padEnd(4, '-'), 0);
  }

  close(): void {
    this.hang();
    closeSync(this.#file);
    rmSync(this.#dir, { recursive: true, force: true });
  }
}
