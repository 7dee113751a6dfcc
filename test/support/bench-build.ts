/** Once before the files that run benches: compiles them, because two that compile at the same time would spoil each other's. */
import { spawnSync } from 'node:child_process';
import { copyFileSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';

const ROOT = new URL('../..', import.meta.url).pathname;

export default function setup(): void {
  // A copy that an earlier run measured: the tests are about the build that `npm test` made.
  rmSync(join(ROOT, '.bench/dist'), { recursive: true, force: true });
  const compiler = join(ROOT, 'node_modules/typescript/bin/tsc');
  const { stdout } = spawnSync(process.execPath, [compiler, '-p', 'bench'], { cwd: ROOT, encoding: 'utf8' });
  if (stdout !== '') throw new Error(stdout);
  const scripts = readdirSync(join(ROOT, 'src/ingest/limit')).filter((name) => name.endsWith('.lua'));
  for (const name of scripts)
    copyFileSync(join(ROOT, 'src/ingest/limit', name), join(ROOT, '.bench/src/ingest/limit', name));
}
