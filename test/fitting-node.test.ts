/** The Node that `npm start` and `npm test` run on. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '..');
const folder = mkdtempSync(join(tmpdir(), 'fitting-node-'));

/** Flags of Node with which the program takes it for another version. */
const as = (version: string, modules: string): string[] => [
  '--import',
  `data:text/javascript,Object.defineProperties(process.versions,{node:{value:"${version}"},modules:{value:"${modules}"}})`,
];
const AS_NODE_26 = as('26.12.1', '147');

/** @param npx what the program finds by that name, a script of the shell */
function run(
  flags: readonly string[],
  npx: string,
): { status: number | null; stdout: string; stderr: string } {
  writeFileSync(join(folder, 'npx'), `#!/bin/sh\n${npx}\n`, { mode: 0o755 });
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [...flags, join(ROOT, 'dist', 'fitting-node.js')],
    { encoding: 'utf8', env: { PATH: `${folder}:${process.env.PATH}` } },
  );
  return { status, stdout, stderr };
}

afterAll(() => rmSync(folder, { recursive: true }));

describe('a checkout', () => {
  it('keeps a Node that sluice runs on', () => {
    expect(run([], 'echo /never')).toEqual({ status: 0, stdout: '', stderr: '' });
  });

  it('takes one that npm fetches in the place of another, and says so in one line', () => {
    const { status, stdout, stderr } = run(AS_NODE_26, 'echo "/fetched"; echo "$@" >&2');
    expect([status, stdout]).toEqual([0, '/fetched:']);
    const lines = stderr.trim().split('\n');
    expect(lines[0]).toMatch(
      /^uWebSockets\.js has no tested binary for Node v[\d.]+: npm fetches node-\w+-\w+@2[04] for this command\.$/,
    );
    expect(lines[1]).toMatch(
      /^-y --loglevel=error -p node-\w+-\w+@2[04] -c dirname "\$\(command -v node\)"$/,
    );
  });

  it.each([
    ['18.20.4', '108'],
    ['20.18.1', '115'],
    ['22.11.0', '127'],
  ])(
    'that npm ci has left incomplete, because of Node %s, is told the commands that work',
    (version, modules) => {
      const { status, stdout, stderr } = run(as(version, modules), 'echo /never');
      expect([status, stdout]).toEqual([1, '']);
      expect(stderr).toMatch(
        /^Node v[\d.]+ is too old to build sluice\. Run both commands by another: npx -y -p node-\w+-\w+@2[04] -c 'npm ci && npm start'\n$/,
      );
    },
  );

  it('starts nothing where npm cannot fetch it', () => {
    expect(run(AS_NODE_26, 'exit 7')).toMatchObject({ status: 1, stdout: '' });
  });

  it.each(['start', 'test'])('asks before npm %s bundles, starts and tests', (name) => {
    const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
      scripts: Record<string, string>;
    };
    expect(scripts[name]).toMatch(
      /^npm run --silent compile && PATH="\$\(node dist\/fitting-node\.js\)\$PATH" && node src\/bundle\.js && /,
    );
  });
});
