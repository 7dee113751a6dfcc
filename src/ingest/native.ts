/**
 * Checks that a tested binary of uWebSockets.js is installed. The package has a binary only for
 * some platforms and versions of Node. Without one each worker would die at its import, with a
 * stack trace that names no remedy. So a program that starts workers makes this check first. Nobody
 * can review a binary as source code, so only binaries that the tests ran with are loaded
 * (docs/supply-chain.md).
 */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

/** The runtime that loads the binary of uWebSockets.js. */
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
 * Version of Node 20's binary interface. The binary of uWebSockets.js for Node 20 runs with an
 * older C library than its binaries for later versions of Node.
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

const fileOf = ({ platform, arch, modules }: Runtime): string => `uws_${platform}_${arch}_${modules}.node`;

const glibcOf = (runtime: Runtime): number => Number(runtime.glibc ?? 0);

/** Whether the C library is too old for the binary of Node 24, as on Debian 12 and Ubuntu 22.04. */
const isOldLinux = (runtime: Runtime): boolean =>
  runtime.platform === 'linux' && glibcOf(runtime) < GLIBC_MIN.others;

/**
 * Returns the npm package of a Node that can load a tested binary on this platform. The package
 * `node` would fit all platforms, but needs a script at its installation, which npm 12 does not
 * run.
 */
export function fittingNode(runtime: Runtime = thisRuntime()): string {
  const { platform, arch } = runtime;
  const name = platform === 'darwin' && arch === 'arm64' ? 'node-bin' : 'node';
  return `${name}-${platform}-${arch}@${isOldLinux(runtime) ? 20 : 24}`;
}

/**
 * Returns the shell command that runs `command` of this program, for `npx -c`. The shell command
 * starts `node` directly, because a second npx would take the options of the first.
 */
export const thisProgram = (command: string): string => `node ${process.argv[1]} ${command}`;

/**
 * Returns why `runtime` cannot load a tested binary; undefined when it can. `fitting` is the npm
 * package of a Node that can, where there is one.
 */
export function misfit(runtime: Runtime = thisRuntime()): { why: string; fitting?: string } | undefined {
  const { version, modules, platform, arch } = runtime;
  const tested = testedHashes();
  if (![...tested.keys()].some((name) => name.startsWith(`uws_${platform}_${arch}_`)))
    return {
      why: `uWebSockets.js has no tested binary for ${platform} ${arch}, only for Linux and macOS on x64 and arm64`,
    };
  if (platform === 'linux' && glibcOf(runtime) < GLIBC_MIN.node20)
    return {
      why: `uWebSockets.js needs the GNU C library ${GLIBC_MIN.node20} or newer: run the image`,
    };
  const fitting = fittingNode(runtime);
  if (!tested.has(fileOf(runtime)))
    return { why: `uWebSockets.js has no tested binary for Node ${version}`, fitting };
  if (isOldLinux(runtime) && modules !== NODE_20)
    return {
      why: `uWebSockets.js for Node ${version} needs the GNU C library ${GLIBC_MIN.others}, and here is ${runtime.glibc}`,
      fitting,
    };
  return undefined;
}

/**
 * Returns why no worker can start, with the remedy; undefined when the tested binary is there.
 * Reading and hashing the binary (7 MB) costs 10 ms of CPU.
 * @param command what the user wanted to run
 */
export function nativeProblem(
  command: string,
  runtime: Runtime = thisRuntime(),
  folder: string = installedIn(),
): string | undefined {
  const found = misfit(runtime);
  if (found?.fitting)
    return `${found.why}. Run it by another Node: npx -y -p ${found.fitting} -c '${command}'`;
  if (found) return found.why;
  const tested = testedHashes().get(fileOf(runtime));
  const path = join(folder, fileOf(runtime));
  if (sha256Of(path) !== tested)
    return `${path} is not the binary that sluice was tested with (SHA-256 ${tested}). Install sluice again, in a checkout by npm ci`;
  return undefined;
}
