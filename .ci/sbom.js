// Prints a CycloneDX 1.5 document of all that an image holds: packages of npm (sluice's, and those of the base's own npm) and of Debian,
// Node with the libraries in it, and the binary of uWebSockets.js with its hash. It fails where the image and the lists do not agree: a
// package that package-lock.json has not, one that is missing, a file that belongs to nothing, a program that no list names.
//   node .ci/sbom.js sluice:local > sluice.cdx.json
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

/** What is in the image. It runs there, as source text, so it uses nothing from outside. */
function collect() {
  const { execFileSync } = require('node:child_process');
  const { createHash } = require('node:crypto');
  const { closeSync, existsSync, openSync, readdirSync, readFileSync, readSync, realpathSync } =
    require('node:fs');
  const lines = (command, ...args) =>
    execFileSync(command, args, { encoding: 'utf8', maxBuffer: 2 ** 28 })
      .split('\n')
      .filter(Boolean);
  const files = lines('find', '/', '-xdev', '-type', 'f', '-not', '-path', '/proc/*');
  // Debian 13 has moved /bin and /lib below /usr, and its lists have the names from before.
  const real = (path) => {
    const [, first] = path.split('/');
    return /^(bin|sbin|lib|lib64)$/.test(first)
      ? `${realpathSync(`/${first}`)}${path.slice(first.length + 1)}`
      : path;
  };
  const info = '/var/lib/dpkg/info/';
  const debian = new Set(
    readdirSync(info)
      .filter((name) => name.endsWith('.list'))
      .flatMap((name) =>
        readFileSync(info + name, 'utf8')
          .split('\n')
          .map(real),
      ),
  );
  // Node's own images have Yarn outside of node_modules.
  const manifest = /^(.*\/node_modules\/(?:@[^/]+\/)?[^/]+|\/opt\/yarn-[^/]+)\/package\.json$/;
  const packages = files
    .filter((path) => manifest.test(path))
    .map((path) => ({
      path: path.replace(/\/package\.json$/, ''),
      ...JSON.parse(readFileSync(path, 'utf8')),
    }))
    .map(({ path, name, version, license }) => ({ path, name, version, license }));
  const binaries = files
    .filter((path) => path.endsWith('.node'))
    .map((path) => ({ path, sha256: createHash('sha256').update(readFileSync(path)).digest('hex') }));
  const owned = (path) => debian.has(path) || packages.some((one) => path.startsWith(`${one.path}/`));
  const unowned = files.filter((path) => !owned(path));
  const isProgram = (path) => {
    const file = openSync(path, 'r');
    const start = Buffer.alloc(4);
    readSync(file, start);
    closeSync(file);
    return start.equals(Buffer.from('\x7fELF'));
  };
  const field =
    '$' +
    '{Package}\t$' +
    '{Version}\t$' +
    '{Architecture}\t$' +
    '{source:Package}\t$' +
    '{db:Status-Status}\n';
  return {
    arch: process.arch,
    os: existsSync('/etc/os-release') ? readFileSync('/etc/os-release', 'utf8') : '',
    node: process.versions,
    packages,
    binaries,
    debian: lines('dpkg-query', '-W', '-f', field).map((line) => line.split('\t')),
    unowned,
    programs: unowned.filter(isProgram),
  };
}

const [image] = process.argv.slice(2);
if (!image) throw new Error('usage: node .ci/sbom.js IMAGE');
const inside = ['run', '--rm', '--user=0', '--network=none', '--entrypoint=node', image];
const found = JSON.parse(
  execFileSync('docker', [...inside, '-e', `process.stdout.write(JSON.stringify((${collect})()))`], {
    encoding: 'utf8',
    maxBuffer: 2 ** 28,
  }),
);
const root = JSON.parse(readFileSync('package.json', 'utf8'));
const lock = JSON.parse(readFileSync('package-lock.json', 'utf8')).packages;
const problems = [];

// Each package in the image has the version of the lock file, and none is missing.
const APP = '/app/';
const mine = found.packages.filter(({ path }) => path.startsWith(APP));
for (const { path, name, version } of mine) {
  const locked = lock[path.slice(APP.length)];
  if (locked?.version !== version) problems.push(`${name} ${version} at ${path}: not in package-lock.json`);
  else if (locked.dev) problems.push(`${name} at ${path}: only for development`);
}
const present = new Set(mine.map(({ path }) => path.slice(APP.length)));
for (const [place, { dev, optional, devOptional }] of Object.entries(lock))
  if (place && !dev && !optional && !devOptional && !present.has(place)) problems.push(`${place} is missing`);

const tested = readFileSync('src/ingest/uws.sha256', 'utf8');
for (const { path, sha256 } of found.binaries)
  if (!tested.includes(sha256)) problems.push(`${path}: a binary with an unknown hash, ${sha256}`);

// Files that are made at installation, and the program itself.
const MADE =
  /^\/(app\/(dist\/|package\.json$|node_modules\/\.package-lock\.json$)|usr\/local\/bin\/(node|docker-entrypoint\.sh)$|usr\/local\/(include|share)\/|etc\/|var\/(lib|cache|log)\/|root\/|home\/node\/|\.dockerenv$|usr\/local\/[A-Z]+(\.md)?$|usr\/share\/(info\/dir$|mime|icons|glib|applications)|usr\/lib\/.*\/(gconv-modules\.cache|immodules\.cache)$|usr\/lib\/locale\/)/;
for (const path of found.unowned) if (!MADE.test(path)) problems.push(`${path} belongs to no package`);
for (const path of found.programs)
  if (path !== '/usr/local/bin/node' && MADE.test(path)) problems.push(`${path}: a program of no package`);

const hashOf = (place) => {
  const [, alg = '', base64 = ''] = /^(sha512)-(.*)$/.exec(lock[place]?.integrity ?? '') ?? [];
  return alg ? { hashes: [{ alg: 'SHA-512', content: Buffer.from(base64, 'base64').toString('hex') }] } : {};
};
const distribution = /^VERSION_ID="?(.*?)"?$/m.exec(found.os)?.[1];
const npm = ({ path, name, version, license }) => ({
  type: 'library',
  'bom-ref': path,
  name,
  version,
  purl: `pkg:npm/${name.replace('@', '%40')}@${version}`,
  ...(typeof license === 'string' && { licenses: [{ expression: license }] }),
  ...(path.startsWith(APP) && hashOf(path.slice(APP.length))),
});
const components = [
  ...found.packages.filter(({ name, version }) => name && version).map(npm),
  ...found.debian
    .filter(([, , , , status]) => status === 'installed')
    .map(([name, version, arch, source]) => ({
      type: 'library',
      'bom-ref': `deb:${name}`,
      name,
      version,
      purl: `pkg:deb/debian/${name}@${encodeURIComponent(version)}?arch=${arch}&distro=debian-${distribution}`,
      properties: [{ name: 'debian:source', value: source }],
    })),
  ...Object.entries(found.node).map(([name, version]) => ({
    type: name === 'node' ? 'platform' : 'library',
    'bom-ref': `node:${name}`,
    name,
    version,
    ...(name === 'node' && { purl: `pkg:generic/node@${version}` }),
  })),
  ...found.binaries.map(({ path, sha256 }) => ({
    type: 'file',
    'bom-ref': `file:${path}`,
    name: path,
    hashes: [{ alg: 'SHA-256', content: sha256 }],
  })),
];
const text = {
  bomFormat: 'CycloneDX',
  specVersion: '1.5',
  version: 1,
  metadata: {
    component: {
      type: 'container',
      'bom-ref': 'sluice',
      name: root.name,
      version: root.version,
      licenses: [{ expression: root.license }],
    },
    properties: [{ name: 'architecture', value: found.arch }],
  },
  components,
};
const counts = `${found.packages.length} packages of npm, ${found.debian.length} of Debian, Node ${found.node.node}, ${found.binaries.length} binaries`;
console.error(`${image}: ${counts}`);
for (const problem of problems) console.error(`differs: ${problem}`);
console.log(JSON.stringify(text, undefined, 1));
process.exitCode = problems.length > 0 ? 1 : 0;
