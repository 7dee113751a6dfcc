/** The workflows, as actionlint reads them (with shellcheck for their scripts, where the machine has it). */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { goProgram } from '../support/tools.ts';
import { HELM } from './kubernetes-objects.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const workflow = (name: string): string =>
  readFileSync(join(ROOT, '.github', 'workflows', `${name}.yml`), 'utf8');
const hasGo = spawnSync('go', ['version']).status === 0;
if (!hasGo) console.warn('LEFT OUT: actionlint, which Go builds');

it.runIf(hasGo)('finds nothing wrong, in the version that the workflow runs', () => {
  const [, version = ''] = /\/cmd\/actionlint@v(\S+)/.exec(workflow('test')) ?? [];
  const actionlint = goProgram('actionlint', 'github.com/rhysd/actionlint/cmd/actionlint', version);
  const { status, stdout } = spawnSync(actionlint, ['-no-color'], { cwd: ROOT, encoding: 'utf8' });
  expect([status, stdout]).toEqual([0, '']);
});

it('packs the chart with the Helm that the tests render it with', () => {
  expect(workflow('release')).toContain(`go install helm.sh/helm/v3/cmd/helm@v${HELM}\n`);
});

// GitHub starts a shell without pipefail where the workflow names none: notes that fail would have made a release without notes.
it('stops a release at any command of a pipe', () => {
  expect(workflow('release')).toContain('\ndefaults:\n  run:\n    shell: bash\n');
});

it('asks buildx for a digest, and not for the table that it prints where a format begins with {{.Manifest', () => {
  const release = readFileSync(join(ROOT, '.ci', 'release'), 'utf8');
  expect(release.match(/imagetools inspect/g)).toHaveLength(2);
  expect(release).not.toMatch(/--format\s+(\\\n\s*)?["']\{\{\.Manifest/);
});
