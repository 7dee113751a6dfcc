/** The scripts of `sluice completion`, in the shells that they are for. */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { aptInstall } from '../../src/commands/dev/install.ts';
import { temporaryFolder } from '../support/servers.ts';
import { DIST } from '../support/system.ts';

const folder = temporaryFolder('completion');
const sluice = (...args: string[]): string =>
  execFileSync(process.execPath, [`${DIST}cli.js`, ...args], { encoding: 'utf8' });
const isThere = (shell: string): boolean =>
  spawnSync(shell, ['--version']).status === 0 || aptInstall([shell], console.log);
beforeAll(() => {
  for (const shell of ['bash', 'zsh', 'fish'])
    writeFileSync(join(folder, `${shell}.script`), sluice('completion', shell));
  writeFileSync(join(folder, 'projects.yaml'), '');
  mkdirSync(join(folder, 'a-folder'));
});
afterAll(() => rmSync(folder, { recursive: true }));

const run = (shell: string, script: string, ...args: string[]): string[] =>
  execFileSync(shell, ['-c', script, shell, ...args], { cwd: folder, encoding: 'utf8' })
    .split('\n')
    .filter((line) => line !== '')
    .sort();

/** The words that bash offers behind these; the last one is begun. */
const inBash = (...words: string[]): string[] =>
  run(
    'bash',
    `source bash.script; COMP_WORDS=(sluice "$@"); COMP_CWORD=$#; _sluice; printf '%s\\n' "\${COMPREPLY[@]}"`,
    ...words,
  );
/** fish asks its own completion. The descriptions are left out. */
const inFish = (line: string): string[] =>
  run('fish', 'source fish.script; complete -C "$argv[2]"', `sluice ${line}`).map(
    (found) => `${found.split('\t')[0]}`,
  );
/** The completion system of zsh works within a terminal alone, so its parts print what they are given. */
const inZsh = (...words: string[]): string[] =>
  run(
    'zsh',
    `compdef() { :; }; compadd() { shift; print -rl -- "$@"; }; _message() { :; }
    _files() { print -r -- "files $*"; }; _describe() { print -rl -- "\${(@P)2}"; }
    source ./zsh.script; words=(sluice "$@"); CURRENT=$#words; _sluice`,
    ...words,
  ).map((found) => `${found.split(':')[0]}`);

const ALL = sluice('--help')
  .split('\n')
  .flatMap((line) => /^ {2}([a-z-]+)\b/.exec(line)?.[1] ?? [])
  .filter((word) => !word.startsWith('-'));

describe('bash', () => {
  it('is told which function completes sluice', () => {
    expect(run('bash', 'source bash.script; complete -p sluice')).toEqual(['complete -F _sluice sluice']);
  });

  it('offers every command', () => {
    expect(ALL).toContain('completion');
    expect(inBash('').filter((word) => !word.startsWith('-'))).toEqual(ALL.sort());
  });

  it.each<[words: string[], offered: string[]]>([
    [['pro'], ['processor', 'project']],
    [['project', 'keys', 'r'], ['remove']],
    [
      ['project', 'list', '--s'],
      ['--search', '--sort', '--state'],
    ],
    [
      ['project', 'list', '--json', '--state', ''],
      ['disabled', 'enabled', 'no\\ key'],
    ],
    [['tail', '42', '--type', 'lo'], ['log']],
    [['tail', '42', '--a'], ['--api']],
    [['doctor', '--da'], ['--data-dir']],
    [
      ['project', 'set', '42', '--no-'],
      ['--no-fill-ip', '--no-overage'],
    ],
    [['project', 'set', '42', '--quota', ''], []],
    [
      ['project', 'apply', '-f', ''],
      ['a-folder', 'bash.script', 'fish.script', 'projects.yaml', 'zsh.script'],
    ],
    [['project', 'list', '--data-dir', ''], ['a-folder']],
    [
      ['completion', ''],
      ['--help', 'bash', 'fish', 'zsh'],
    ],
  ])('%j offers %j', (words, offered) => {
    expect(inBash(...words)).toEqual(offered);
  });
});

describe.skipIf(!isThere('fish'))('fish', () => {
  it('offers every command', () => {
    expect(inFish('')).toEqual(expect.arrayContaining(ALL));
  });

  it.each([
    ['project keys r', ['remove']],
    ['project list --json --state no', ['no key']],
    ['tail 42 --type lo', ['log']],
    ['tail 42 --ap', ['--api']],
    ['project apply -f proj', ['projects.yaml']],
    ['project list --data-dir a', ['a-folder/']],
  ])('%j offers %j', (line, offered) => {
    expect(inFish(line)).toEqual(offered);
  });
});

describe.skipIf(!isThere('zsh'))('zsh', () => {
  it('offers every command', () => {
    expect(inZsh('').filter((word) => !word.startsWith('-'))).toEqual(ALL.sort());
  });

  it.each<[words: string[], offered: string[]]>([
    [
      ['project', 'list', '--state', ''],
      ['disabled', 'enabled', 'no key'],
    ],
    [['project', 'list', '--data-dir', ''], ['files -/']],
    [['project', 'set', '42', '--quota', ''], []],
    [
      ['completion', ''],
      ['--help', '-h', 'bash', 'fish', 'zsh'],
    ],
  ])('%j offers %j', (words, offered) => {
    expect(inZsh(...words)).toEqual(offered);
  });
});
