/** docs/supply-chain.md and the lists of hashes against what is installed. */
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
