/**
 * uWebSockets.js is a binary: one for each platform and each version of Node, and the package has
 * none for some of them. Without a fitting one workers die at their import, one after another, with
 * a stack that names no remedy. So a program that starts workers asks here first.
 */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

/** The runtime that loads the binary. */
export type Runtime = {
  /** As `process.version` has it. */
  version: string;
  /** The version of Node's binary interface. */
  modules: string;
  platform: string;
  arch: string;
  /** Version of the GNU C library; undefined where there is another one. */
  glibc: string | undefined;
};

/** The interface of Node 20, whose binary is built for an older C library than the others. */
const NODE_20 = '115';
const GLIBC_MIN = { node20: 2.27, others: 2.38 };

function thisRuntime(): Runtime {
  const { version, versions, platform, arch } = process;
  const { header } = process.report.getReport() as { header: { glibcVersionRuntime?: string } };
  return { version, modules: versions.modules, platform, arch, glibc: header.glibcVersionRuntime };
}

function packageHas(file: string): boolean {
  const { resolve } = createRequire(import.meta.url);
  return existsSync(join(dirname(resolve('uWebSockets.js')), file));
}

const glibcOf = (runtime: Runtime): number => Number(runtime.glibc ?? 0);

/**
 * Why no worker can start, in a sentence with the remedy; undefined: a binary fits.
 * @param command what the user wanted to run
 */
export function nativeProblem(
  command: string,
  runtime: Runtime = thisRuntime(),
  has: (file: string) => boolean = packageHas,
): string | undefined {
  const { version, modules, platform, arch } = runtime;
  const onLinux = platform === 'linux';
  if (onLinux && glibcOf(runtime) < GLIBC_MIN.node20)
    return `uWebSockets.js needs the GNU C library ${GLIBC_MIN.node20} or newer: run the image`;
  // Debian 12 and Ubuntu 22.04 have a C library that is too old for the binary of Node 24.
  const major = onLinux && glibcOf(runtime) < GLIBC_MIN.others ? 20 : 24;
  const remedy = `Run it by Node ${major}, which npm brings for one command: npx -y -p node@${major} -c '${command}'`;
  if (!has(`uws_${platform}_${arch}_${modules}.node`))
    return `uWebSockets.js has no binary for Node ${version} on ${platform} ${arch}. ${remedy}`;
  if (onLinux && modules !== NODE_20 && glibcOf(runtime) < GLIBC_MIN.others)
    return `uWebSockets.js for Node ${version} needs the GNU C library ${GLIBC_MIN.others}, and here is ${runtime.glibc}. ${remedy}`;
  return undefined;
}
