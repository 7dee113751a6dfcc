/** Commands, flags and settings that the documents name exist in the programs, and so do the tests that they name. */
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { SETTING_NAMES } from '../../src/config.ts';
import { streamNamesOf } from '../../src/stream/topology.ts';
import { DIST } from '../support/system.ts';

const ROOT = new URL('../../', import.meta.url);
const read = (path: string): string => readFileSync(new URL(path, ROOT), 'utf8');
const namesIn = (folder: string): string[] =>
  readdirSync(new URL(folder, ROOT), { recursive: true, encoding: 'utf8' }).map((name) => `${folder}${name}`);
const documents = ['README.md', ...namesIn('docs/')]
  .filter((path) => path.endsWith('.md'))
  .map((path) => ({ path, text: read(path) }));

/** The flags of each command, e.g. of `sluice project list`, as the script of completion has them. */
const flags = new Map<string, Set<string>>([['sluice', new Set()]]);
const sluice = (...args: string[]): string =>
  execFileSync(process.execPath, [`${DIST}cli.js`, ...args], { encoding: 'utf8' });
for (const [, path = '', rest = ''] of sluice('completion', 'fish').matchAll(
  /__sluice_at '([^']+)'" (.*)$/gm,
)) {
  const known = flags.get(path) ?? new Set();
  const flag = / ?-l ([\w-]+)/.exec(rest.replace(/ -d '.*/, ''))?.[1];
  if (flag) known.add(`--${flag}`);
  flags.set(path, known);
}
// `sluice load` parses its flags itself: the completion does not know them.
flags.set('sluice load', new Set(['--help', ...(sluice('load', '--help').match(/--[a-z][\w-]*/g) ?? [])]));

/** Commands and flags of a command line that do not exist. */
function unknownIn(line: string): string[] {
  let place = 'sluice';
  const problems: string[] = [];
  const words = line
    .replaceAll(/"[^"]*"|'[^']*'/g, 'TEXT')
    .split(/\s+/)
    .slice(1);
  for (const word of words) {
    if (/^[|;&#)>]/.test(word)) break;
    if (flags.has(`${place} ${word}`)) place += ` ${word}`;
    else if (place === 'sluice' && /^[a-z]/.test(word)) return [`${place} ${word}`];
    const flag = /^--[a-z][\w-]*/.exec(word)?.[0];
    if (flag && !flags.get(place)?.has(flag)) problems.push(`${place} ${flag}`);
    if (/[;)]$/.test(word)) break;
  }
  return problems;
}

/** Lines that start sluice: in blocks of shell, and within a sentence between backticks. */
const linesIn = (text: string): string[] => {
  const blocks = [...text.matchAll(/^```(?:sh|bash|console)\n([\s\S]*?)^```/gm)].map(
    ([, block = '']) => block,
  );
  const inBlocks = blocks.flatMap(
    (block) => block.replaceAll('\\\n', ' ').match(/(?<=^|npx |\$ ?)\bsluice [a-z-]+ .*$/gm) ?? [],
  );
  return [...inBlocks, ...(text.match(/(?<=`(?:npx )?)sluice [a-z][^`\n]*(?=`)/g) ?? [])];
};

it('name commands and flags that exist', () => {
  expect(unknownIn('sluice project create --plan Pro')).toEqual([]);
  expect(unknownIn('sluice project create --plam Pro')).toEqual(['sluice project create --plam']);
  expect(unknownIn('sluice projects list')).toEqual(['sluice projects']);
  const lines = documents.flatMap(({ path, text }) => linesIn(text).map((line) => ({ path, line })));
  expect(lines.length).toBeGreaterThan(100);
  const problems = lines.flatMap(({ path, line }) => unknownIn(line).map((what) => `${path}: ${what}`));
  expect([...new Set(problems)]).toEqual([]);
});

it('name settings and streams that exist', () => {
  const known = new Set<string>([...SETTING_NAMES, ...streamNamesOf(1)]);
  const named = documents.flatMap(({ path, text }) =>
    [...text.matchAll(/\bSLUICE_[A-Z0-9_]+\b(?!…)/g)].map(([name]) => ({ path, name })),
  );
  expect(named.length).toBeGreaterThan(100);
  const problems = named.filter(({ name }) => !known.has(name)).map(({ path, name }) => `${path}: ${name}`);
  expect([...new Set(problems)]).toEqual([]);
});

it('name tests that exist', () => {
  const named = documents.flatMap(({ path, text }) =>
    [...text.matchAll(/`(test\/[\w./-]+)`((?:,? (?:and )?"[^"]+")*)/g)].map(([, file = '', titles = '']) => ({
      path,
      file,
      titles: [...titles.matchAll(/"([^"]+)"/g)].map(([, title = '']) => title),
    })),
  );
  expect(named.flatMap(({ titles }) => titles).length).toBeGreaterThan(100);
  const problems = named.flatMap(({ path, file, titles }) => {
    if (!existsSync(new URL(file, ROOT))) return [`${path}: ${file}`];
    if (titles.length === 0) return [];
    const source = read(file)
      .replaceAll(/\\(['"])/g, '$1')
      .replaceAll(/\s+/g, ' ');
    // A title that ends in `…` is the beginning of one.
    return titles
      .filter((title) => !source.includes(title.replace(/…$/, '')))
      .map((title) => `${path}: ${file} "${title}"`);
  });
  expect([...new Set(problems)]).toEqual([]);
});
