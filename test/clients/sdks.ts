/** The SDKs of the matrix: how each program is built and started, which version is pinned. */
import { execFile, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';

const ROOT = new URL('../..', import.meta.url).pathname;
const HERE = new URL('.', import.meta.url).pathname;
/** What the package managers of other languages install and build; git ignores it. */
const OUT = `${ROOT}.clients/`;

export type Sdk = {
  readonly language: string;
  readonly package: string;
  /** How the SDK names itself to a server. */
  readonly name: string;
  /** From the root of the project. */
  readonly manifest: string;
  /** Finds the pinned version in the manifest. */
  readonly pinned: RegExp;
  /** Commands that succeed where the toolchain is installed. */
  readonly toolchain: readonly (readonly string[])[];
  /** Debian's packages of the toolchain, where they are small and new enough. */
  readonly apt?: readonly string[];
  /** Commands that install and build, quick and without a network when nothing changed. */
  readonly build: readonly (readonly string[])[];
};

const javascript = (language: string, name: string): Sdk => ({
  language,
  package: `@sentry/${name}`,
  name: `sentry.javascript.${name}`,
  manifest: 'package.json',
  pinned: new RegExp(`"@sentry/${name}": "([\\d.]+)"`),
  toolchain: [],
  build: [],
});

export const NODE = javascript('Node', 'node');
export const BROWSER = javascript('Browser', 'browser');

export const PYTHON: Sdk = {
  language: 'Python',
  package: 'sentry-sdk',
  name: 'sentry.python',
  manifest: 'test/clients/python/requirements.txt',
  pinned: /^sentry-sdk==([\d.]+)$/m,
  toolchain: [['python3', '-c', 'import venv, ensurepip']],
  apt: ['python3-venv'],
  build: [
    ['python3', '-m', 'venv', `${OUT}python`],
    [`${OUT}python/bin/pip`, 'install', '--quiet', '-r', `${HERE}python/requirements.txt`],
  ],
};

export const GO: Sdk = {
  language: 'Go',
  package: 'github.com/getsentry/sentry-go',
  name: 'sentry.go',
  manifest: 'test/clients/go/go.mod',
  pinned: /^require github\.com\/getsentry\/sentry-go v([\d.]+)$/m,
  toolchain: [['go', 'version']],
  build: [['go', 'build', '-C', `${HERE}go`, '-o', `${OUT}go/client`, '.']],
};

export const JAVA: Sdk = {
  language: 'Java',
  package: 'io.sentry:sentry',
  name: 'sentry.java',
  manifest: 'test/clients/java/pom.xml',
  pinned: /<artifactId>sentry<\/artifactId>\s*<version>([\d.]+)</,
  toolchain: [
    ['javac', '-version'],
    ['mvn', '-version'],
  ],
  build: [
    [
      'mvn',
      '-q',
      '-B',
      '-f',
      `${HERE}java/pom.xml`,
      'dependency:copy-dependencies',
      `-DoutputDirectory=${OUT}java`,
    ],
    ['javac', '-cp', `${OUT}java/*`, '-d', `${OUT}java`, `${HERE}java/Client.java`],
  ],
};

export const RUST: Sdk = {
  language: 'Rust',
  package: 'sentry',
  name: 'sentry.rust',
  manifest: 'test/clients/rust/Cargo.toml',
  pinned: /^sentry = "=([\d.]+)"$/m,
  // The SDK's default transport links the system's OpenSSL, which pkg-config finds on Linux.
  toolchain: [['cargo', '--version'], ...(process.platform === 'linux' ? [['pkg-config', 'openssl']] : [])],
  build: [
    [
      'cargo',
      'build',
      '--quiet',
      '--locked',
      '--manifest-path',
      `${HERE}rust/Cargo.toml`,
      '--target-dir',
      `${OUT}rust`,
    ],
  ],
};

export const SDKS: readonly Sdk[] = [PYTHON, GO, JAVA, RUST, NODE, BROWSER];

/** Starts the application of a language. */
export const COMMANDS = {
  python: [`${OUT}python/bin/python`, `${HERE}python/client.py`],
  go: [`${OUT}go/client`],
  java: ['java', '-cp', `${OUT}java:${OUT}java/*`, 'Client'],
  /** By default the JDK sends a request again in silence where a connection was closed. */
  javaWithoutRetry: ['java', '-Dsun.net.http.retryPost=false', '-cp', `${OUT}java:${OUT}java/*`, 'Client'],
  rust: [`${OUT}rust/debug/client`],
  node: [process.execPath, `${HERE}javascript/node.mjs`],
} as const;

export function versionOf({ manifest, pinned }: Sdk): string {
  const version = pinned.exec(readFileSync(ROOT + manifest, 'utf8'))?.[1];
  if (!version) throw new Error(`${manifest} pins no version that ${pinned} finds`);
  return version;
}

/** The first command of its toolchain that fails on this machine. */
export function lacks({ toolchain }: Sdk): string | undefined {
  return toolchain
    .find(([program = '', ...args]) => spawnSync(program, args, { stdio: 'ignore' }).status !== 0)
    ?.join(' ');
}

/** @throws with what the package manager or compiler said */
export async function build({ build: commands }: Sdk): Promise<void> {
  for (const [program = '', ...args] of commands) await promisify(execFile)(program, args);
}
