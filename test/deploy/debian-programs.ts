/** Programs of Debian's packages: those of the machine, else unpacked beside us without being installed. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export type Program = { path: string; env: Record<string, string> };

const FOLDER = join(tmpdir(), 'sluice-debian-programs');

/** `apt-get download` needs no rights, asks nothing and starts no service. */
export function unpackPackages(folder: string, packages: readonly string[]): void {
  mkdirSync(folder, { recursive: true });
  for (const name of packages)
    spawnSync('apt-get', ['download', '-qq', name], { cwd: folder, stdio: 'ignore' });
  for (const file of readdirSync(folder).filter((name) => name.endsWith('.deb')))
    spawnSync('dpkg', ['-x', file, '.'], { cwd: folder, stdio: 'ignore' });
}

/**
 * @param packages the program's own and those of libraries that a small machine lacks
 * @returns undefined on a machine that has neither the program nor apt
 */
export function findProgram(name: string, packages: readonly string[]): Program | undefined {
  for (const folder of ['/usr/sbin', '/usr/local/sbin'])
    if (existsSync(join(folder, name))) return { path: join(folder, name), env: {} };
  const path = join(FOLDER, 'usr/sbin', name);
  if (!existsSync(path) && existsSync('/usr/bin/apt-get')) unpackPackages(FOLDER, packages);
  const libraries = join(FOLDER, 'usr/lib', `${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}-linux-gnu`);
  const program = { path, env: { LD_LIBRARY_PATH: libraries } };
  const { status } = spawnSync(path, ['-v'], { env: program.env, stdio: 'ignore' });
  return status === 0 ? program : undefined;
}
