/**
 * Checks that a tested binary of uWebSockets.js is installed. The package has one binary for each
 * platform and version of Node, and none for some of them. Without a fitting binary each worker
 * would die at its import, with a stack trace that names no remedy. So a program that starts
 * workers makes this check first. Nobody can review a binary as source code, so only binaries that
 * the tests ran with are loaded (docs/supply-chain.md).
 */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

/** The runtime that loads the binary. */
export type Runtime = {
  /** Version of Node, as in `process.version`. */
  version: string;
  /** Version of Node's binary interface. */
  modules: string;
  platform: string;
  arch: string;
  /** Version of the GNU C library; undefined on a system with another C library. */
  glibc: string | undefined;
};

/**
 * The binary interface of Node 20, whose binary is built for an older C library than the others.
 */
const NODE_20 = '115';
const GLIBC_MIN = { node20: 2.27, others: 2.38 };

function thisRuntime(): Runtime {
  const { version, versions, platform, arch } = process;
  const { header } = process.report.getReport() as { header: { glibcVersionRuntime?: string } };
  return { version, modules: versions.modules, platform, arch, glibc: header.glibcVersionRuntime };
}

/** SHA-256 of the binaries that sluice is tested with, by name. */
function testedHashes(): Map<string, string> {
  const lines = readFileSync(new URL('./uws.sha256', import.meta.url), 'utf8')
    .trim()
    .split('\n');
  return new Map(lines.map((line) => line.split('  ').reverse() as [string, string]));
}

const installedIn = (): string => dirname(createRequire(import.meta.url).resolve('uWebSockets.js'));

function sha256Of(path: string): string | undefined {
  return existsSync(path) ? createHash('sha256').update(readFileSync(path)).digest('hex') : undefined;
}

const glibcOf = (runtime: Runtime): number => Number(runtime.glibc ?? 0);

/**
 * Returns the shell command that runs `command` of this program, for `npx -c`. The shell command
 * starts `node` directly, because a second npx would take the options of the first.
 */
export const thisProgram = (command: string): string => `node ${process.argv[1]} ${command}`;

/**
 * Returns why no worker can start, as a sentence with the remedy; undefined when the tested binary
 * is there. Reading and hashing the binary (7 MB) costs 10 ms of CPU.
 * @param command what the user wanted to run
 */
export function nativeProblem(
  command: string,
  runtime: Runtime = thisRuntime(),
  folder: string = installedIn(),
): string | undefined {
  const { version, modules, platform, arch } = runtime;
  const onLinux = platform === 'linux';
  if (onLinux && glibcOf(runtime) < GLIBC_MIN.node20)
    return `uWebSockets.js needs the GNU C library ${GLIBC_MIN.node20} or newer: run the image`;
  // The C library of Debian 12 and Ubuntu 22.04 is too old for the binary of Node 24.
  const major = onLinux && glibcOf(runtime) < GLIBC_MIN.others ? 20 : 24;
  const remedy = `Run it by Node ${major}, which npm brings for one command: npx -y -p node@${major} -c '${command}'`;
  const file = `uws_${platform}_${arch}_${modules}.node`;
  const tested = testedHashes().get(file);
  if (!tested)
    return `uWebSockets.js has no tested binary for Node ${version} on ${platform} ${arch}. ${remedy}`;
  if (onLinux && modules !== NODE_20 && glibcOf(runtime) < GLIBC_MIN.others)
    return `uWebSockets.js for Node ${version} needs the GNU C library ${GLIBC_MIN.others}, and here is ${runtime.glibc}. ${remedy}`;
  const path = join(folder, file);
  if (sha256Of(path) !== tested)
    return `${path} is not the binary that sluice was tested with (SHA-256 ${tested}). Install sluice again, in a checkout by npm ci`;
  return undefined;
}
