/** docs/supply-chain.md and the lists of hashes against what is installed. */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '..', '..');
const PACKAGE = join(ROOT, 'node_modules', 'uWebSockets.js');
const read = (...path: string[]): string => readFileSync(join(ROOT, ...path), 'utf8');
const lines = read('src', 'ingest', 'uws.sha256').trim().split('\n');

it('has a hash of the binary for each Node that is supported, on each system and processor', () => {
  const names = ['linux', 'darwin'].flatMap((system) =>
    ['x64', 'arm64'].flatMap((cpu) => [115, 127, 137].map((abi) => `uws_${system}_${cpu}_${abi}.node`)),
  );
  expect(lines.map((line) => line.slice(66))).toEqual(names);
});

it.each(lines)('names the hash of an installed file: %s', (line) => {
  const bytes = readFileSync(join(PACKAGE, line.slice(66)));
  expect(createHash('sha256').update(bytes).digest('hex')).toBe(line.slice(0, 64));
});

it('names the commit that the package names', () => {
  expect(read('docs', 'supply-chain.md')).toContain(
    readFileSync(join(PACKAGE, 'source_commit'), 'utf8').trim(),
  );
});

type Lock = { packages: Record<string, { integrity?: string; version?: string }> };

it('has a SHA-512 of every package in the lock file', () => {
  const { packages } = JSON.parse(read('package-lock.json')) as Lock;
  const found = Object.entries(packages).filter(([path]) => path !== '');
  expect(found.length).toBeGreaterThan(400);
  expect(found.filter(([, { integrity = '' }]) => !integrity.startsWith('sha512-'))).toEqual([]);
});

it('packs the built program, its scripts and pages, and nothing else', () => {
  const packed = execFileSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  // An array, and from npm 12 on an object by name.
  const [{ files }] = Object.values(JSON.parse(packed)) as [{ files: { path: string }[] }];
  const paths = files.map(({ path }) => path);
  expect(paths.filter((path) => !path.startsWith('dist/')).sort()).toEqual([
    'LICENSE',
    'README.md',
    'package.json',
  ]);
  const others = paths.filter((path) => path.startsWith('dist/') && !path.endsWith('.js'));
  expect(others.sort()).toEqual([
    ...['css', 'html'].map((end) => `dist/bench/load/show/report-view.${end}`),
    ...['admit', 'forget-usage', 'heartbeat', 'refund', 'set-usage', 'share-usage'].map(
      (name) => `dist/ingest/limit/${name}.lua`,
    ),
    'dist/ingest/uws.sha256',
    ...['css', 'html'].map((end) => `dist/management/page/page-view.${end}`),
  ]);
  for (const program of ['cli', 'ingest/worker', 'bench/load/main'])
    expect(paths).toContain(`dist/${program}.js`);
});

it('takes the versions of the lock file along, under the name that npm installs by', () => {
  const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> };
  expect(scripts.prepack).toContain('cp package-lock.json npm-shrinkwrap.json');
});
