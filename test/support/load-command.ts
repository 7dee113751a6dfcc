/** `sluice load` as a user runs it, in a folder of its own. */
import { spawn } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { RunDocument } from '../../bench/load/document.ts';
import { temporaryFolder } from './servers.ts';

const CLI = new URL('../../dist/cli.js', import.meta.url).pathname;

export type Ran = { status: number | null; out: string; err: string };
export type Running = { ended: Promise<Ran>; err(): string; interrupt(): void };

export class LoadCommand {
  readonly dir = temporaryFolder('load');

  start(args: readonly string[], settings: Record<string, string> = {}): Running {
    const env: NodeJS.ProcessEnv = { ...process.env, ...settings };
    if (!settings.SLUICE_SINK) delete env.SLUICE_SINK;
    delete env.GITHUB_STEP_SUMMARY;
    const child = spawn(process.execPath, [CLI, 'load', ...args], {
      cwd: this.dir,
      env,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const ran: Ran = { status: null, out: '', err: '' };
    child.stdout.on('data', (data: Buffer) => {
      ran.out += data.toString();
    });
    child.stderr.on('data', (data: Buffer) => {
      ran.err += data.toString();
    });
    const ended = new Promise<Ran>((resolve) => child.once('close', (status) => resolve({ ...ran, status })));
    return { ended, err: () => ran.err, interrupt: () => void child.kill('SIGINT') };
  }

  run(...args: string[]): Promise<Ran> {
    return this.start(args).ended;
  }

  /** What `--json` left. */
  document(name: string): RunDocument {
    return JSON.parse(readFileSync(join(this.dir, name), 'utf8')) as RunDocument;
  }

  close(): void {
    rmSync(this.dir, { recursive: true });
  }
}
