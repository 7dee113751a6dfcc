/** The Node that `npm start` and `npm test` run on. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '..');
const folder = mkdtempSync(join(tmpdir(), 'fitting-node-'));

/** Says that this Node has another binary interface: that of Node 26. */
const AS_NODE_26 = [
  '--import',
  'data:text/javascript,Object.defineProperty(process.versions,"modules",{value:"147"})',
];

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
