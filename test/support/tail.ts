import { type ChildProcess, spawn } from 'node:child_process';
import { DIST, type System, until } from './system.ts';

/** The `sluice tail` that a test has started. */
export class Tails {
  readonly #children: ChildProcess[] = [];

  /** Starts `sluice tail …`. @returns what it has printed, once it follows */
  async start(system: System, ...args: string[]): Promise<() => string> {
    let out = '';
    let err = '';
    const child = spawn(process.execPath, [`${DIST}cli.js`, 'tail', ...args], {
      env: { ...process.env, ...system.env },
    });
    this.#children.push(child);
    child.stdout.on('data', (data: Buffer) => {
      out += data.toString();
    });
    child.stderr.on('data', (data: Buffer) => {
      err += data.toString();
    });
    await until(() => err.includes('Ctrl-C ends'));
    return () => out;
  }

  end(): void {
    for (const child of this.#children) child.kill();
  }
}
