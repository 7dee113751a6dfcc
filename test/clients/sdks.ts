/** The SDKs of the matrix: how each program is built and started, which version is pinned. */
import { execFile, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { aptInstall } from '../../src/commands/dev/install.ts';

const ROOT = new URL('../..', import.meta.url).pathname;
export const HERE = new URL('.', import.meta.url).pathname;
/** What the package managers of other languages install and build; git ignores it. */
export const OUT = `${ROOT}.clients/`;

export type Sdk = {
  readonly language: string;
  /** TEST_CLIENTS asks for it by this name. */
  readonly family: string;
  /** The framework or runtime with which it runs: a word of its manifest that has a version. */
  readonly host?: { readonly title: string; readonly pinned: RegExp };
  readonly package: string;
  /** How the SDK names itself to a server, before its version. */
  readonly name: string;
  /** Its whole name, where it says another thing than its version. */
  readonly said?: string;
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

/** Families that take part; undefined: all whose toolchain is found. */
export const asked = process.env.TEST_CLIENTS?.toLowerCase().split(',');
export const isAsked = ({ family }: Sdk): boolean =>
  family === 'javascript' || (asked?.includes(family) ?? true);

const javascript = (language: string, name: string): Sdk => ({
  language,
  family: 'javascript',
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
  family: 'python',
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

const framework = (title: string): Sdk => ({
  ...PYTHON,
  family: title.toLowerCase(),
  host: { title, pinned: new RegExp(`^${title.toLowerCase()}==([\\d.]+)$`, 'm') },
});
export const DJANGO = framework('Django');
export const FASTAPI = framework('FastAPI');
export const CELERY = framework('Celery');

const NPM = `${OUT}npm`;
/** Packages of npm that only this matrix needs. */
const npm = (language: string, name: string, host: string): Sdk => ({
  ...javascript(language, name),
  family: language.toLowerCase(),
  manifest: 'test/clients/npm/package.json',
  host: { title: host, pinned: new RegExp(`"${host.toLowerCase()}": "([\\d.]+)"`) },
  build: [
    ['mkdir', '-p', NPM],
    ['cp', '-R', `${HERE}npm/.`, `${HERE}javascript/steps.js`, NPM],
    ['npm', 'install', '--prefix', NPM, '--no-audit', '--no-fund', '--no-package-lock', '--loglevel=error'],
  ],
});
export const BUN = npm('Bun', 'bun', 'Bun');
export const DENO = npm('Deno', 'deno', 'Deno');
export const REACT = npm('React', 'react', 'React');
export const CLI: Sdk = {
  ...npm('Command line', 'cli', 'React'),
  family: 'cli',
  said: `sentry-cli/${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}`,
  host: undefined,
};

export const RUBY: Sdk = {
  language: 'Ruby',
  family: 'ruby',
  package: 'sentry-ruby',
  name: 'sentry.ruby',
  manifest: 'test/clients/ruby/client.rb',
  pinned: /sentry-ruby ([\d.]+) of Debian/,
  toolchain: [['ruby', '-e', 'require "sentry-ruby"; exit Sentry::VERSION == "5.3.0"']],
  apt: ['ruby', 'ruby-sentry-ruby'],
  build: [],
};

export const GO: Sdk = {
  language: 'Go',
  family: 'go',
  package: 'github.com/getsentry/sentry-go',
  name: 'sentry.go',
  manifest: 'test/clients/go/go.mod',
  pinned: /^require github\.com\/getsentry\/sentry-go v([\d.]+)$/m,
  toolchain: [['go', 'version']],
  build: [['go', 'build', '-C', `${HERE}go`, '-o', `${OUT}go/client`, '.']],
};

/** The steps that build the Java program of a folder with the packages of its pom.xml. */
export const maven = (folder: string, { out, program }: { out: string; program: string }): Sdk['build'] => [
  ['mvn', '-q', '-B', '-f', `${folder}/pom.xml`, 'dependency:copy-dependencies', `-DoutputDirectory=${out}`],
  ['javac', '-cp', `${out}/*`, '-d', out, `${folder}/${program}`],
];

/** The step that builds the Rust program of a folder. */
export const cargo = (folder: string, out: string): Sdk['build'] => [
  ['cargo', 'build', '--quiet', '--locked', '--manifest-path', `${folder}/Cargo.toml`, '--target-dir', out],
];

export const JAVA: Sdk = {
  language: 'Java',
  family: 'java',
  package: 'io.sentry:sentry',
  name: 'sentry.java',
  manifest: 'test/clients/java/pom.xml',
  pinned: /<artifactId>sentry<\/artifactId>\s*<version>([\d.]+)</,
  toolchain: [
    ['javac', '-version'],
    ['mvn', '-version'],
  ],
  build: maven(`${HERE}java`, { out: `${OUT}java`, program: 'Client.java' }),
};

export const RUST: Sdk = {
  language: 'Rust',
  family: 'rust',
  package: 'sentry',
  name: 'sentry.rust',
  manifest: 'test/clients/rust/Cargo.toml',
  pinned: /^sentry = "=([\d.]+)"$/m,
  // The SDK's default transport links the system's OpenSSL, which pkg-config finds on Linux.
  toolchain: [['cargo', '--version'], ...(process.platform === 'linux' ? [['pkg-config', 'openssl']] : [])],
  build: cargo(`${HERE}rust`, `${OUT}rust`),
};

/** No registry has its sources but for a package of Rust, which builds them. */
export const NATIVE: Sdk = {
  language: 'C',
  family: 'native',
  package: 'sentry-native',
  name: 'sentry.native',
  manifest: 'test/clients/native/Cargo.toml',
  pinned: /sentry-native ([\d.]+)/,
  toolchain: [
    ['cargo', '--version'],
    ['cmake', '--version'],
    ['pkg-config', 'libcurl'],
  ],
  apt: ['cmake', 'libcurl4-openssl-dev', 'pkg-config'],
  build: cargo(`${HERE}native`, `${OUT}native`),
};

export const SDKS: readonly Sdk[] = [
  PYTHON,
  DJANGO,
  FASTAPI,
  CELERY,
  GO,
  JAVA,
  RUST,
  NATIVE,
  RUBY,
  NODE,
  BUN,
  DENO,
  BROWSER,
  REACT,
  CLI,
];

/** Starts the application of a language. */
export const COMMANDS = {
  python: [`${OUT}python/bin/python`, `${HERE}python/client.py`],
  frameworks: [`${OUT}python/bin/python`, `${HERE}python/frameworks.py`],
  ruby: ['ruby', `${HERE}ruby/client.rb`],
  bun: [`${NPM}/node_modules/.bin/bun`, `${NPM}/bun.mjs`],
  deno: [`${NPM}/node_modules/.bin/deno`, 'run', '--quiet', '-A', `${NPM}/deno.mjs`],
  cli: [`${NPM}/node_modules/.bin/sentry-cli`, 'send-event', '--message'],
  go: [`${OUT}go/client`],
  java: ['java', '-cp', `${OUT}java:${OUT}java/*`, 'Client'],
  /** By default the JDK sends a request again in silence where a connection was closed. */
  javaWithoutRetry: ['java', '-Dsun.net.http.retryPost=false', '-cp', `${OUT}java:${OUT}java/*`, 'Client'],
  rust: [`${OUT}rust/debug/client`],
  native: [`${OUT}native/debug/client`],
  node: [process.execPath, `${HERE}javascript/node.mjs`],
} as const;

/** Scripts of pages. */
export const PAGES = { browser: `${HERE}javascript/browser.js`, react: `${NPM}/react.js` } as const;

export function versionOf({ manifest, pinned }: Pick<Sdk, 'manifest' | 'pinned'>): string {
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

export const say = (line: string): void => void process.stderr.write(`${line}\n`);

/** Does the same as {@link lacks}, after installing what is asked for by name. */
export function lacksStill(sdk: Sdk): string | undefined {
  const lacking = lacks(sdk);
  const installed = lacking && asked && isAsked(sdk) && sdk.apt && aptInstall(sdk.apt, say);
  return installed ? lacks(sdk) : lacking;
}

/** @throws with what the package manager or compiler said */
export async function build(commands: Sdk['build']): Promise<void> {
  for (const [program = '', ...args] of commands) await promisify(execFile)(program, args);
}
