// Prints the figures of the code's shape (docs/CONTRIBUTING.md): node test/figures.js
import { readdirSync, readFileSync } from 'node:fs';
import { join, normalize } from 'node:path';

const ROOT = new URL('..', import.meta.url).pathname;
const textOf = (path) => readFileSync(join(ROOT, path), 'utf8');
const linesOf = (path) => textOf(path).split('\n').length - 1;
const sum = (paths) => paths.reduce((lines, path) => lines + linesOf(path), 0);
/** Lines without comments and blank lines. */
const codeLinesOf = (path) =>
  textOf(path)
    .replace(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm, '')
    .split('\n')
    .filter((line) => line.trim() !== '').length;
const size = (paths) =>
  `${paths.length} files, ${sum(paths)} lines, ${paths.reduce((lines, path) => lines + codeLinesOf(path), 0)} of them code`;
const filesIn = (folder) =>
  readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => `${folder}/${name}`);

const STATEMENT = /^(?:import|export)\s[^;]*?from\s+'([^']+)'/gm;
const DYNAMIC = /import\('([^']+)'\)/g;

/** Relative imports of a file, types left out. */
function importsOf(path) {
  const text = textOf(path);
  const named = [...text.matchAll(STATEMENT)].filter(([statement]) => {
    if (/^(import|export) type\s/.test(statement)) return false;
    const names = /\{([^}]*)\}/
      .exec(statement)?.[1]
      ?.split(',')
      .filter((name) => name.trim() !== '') ?? [''];
    return !names.every((name) => name.trim().startsWith('type '));
  });
  const specifiers = [...named, ...text.matchAll(DYNAMIC)].map(([, specifier]) => specifier);
  const relative = specifiers.filter((specifier) => specifier.startsWith('.'));
  return relative.map((specifier) => normalize(join(path, '..', specifier)));
}

/** All files that a file needs at run time, itself included. */
function closureOf(path) {
  const found = new Set([path]);
  for (const one of found) for (const next of importsOf(one)) if (next.endsWith('.ts')) found.add(next);
  return [...found];
}

/** The largest number of fields that a class declares, and its name. */
function mostFields(paths) {
  let most = [0, ''];
  for (const path of paths) {
    const text = textOf(path);
    for (const { 1: name, 2: body } of text.matchAll(/^(?:export )?class (\w+)[^{]*\{\n([\s\S]*?)^\}/gm)) {
      const fields =
        body.match(/^ {2}(?:static |readonly )*#?\w+[!?]?(?:: [^(\n]*)?(?: = [^\n]*)?;?$/gm) ?? [];
      if (fields.length > most[0]) most = [fields.length, `${name} in ${path}`];
    }
  }
  return most;
}

const src = filesIn('src');
const tests = filesIn('test');
const architecture = textOf('ARCHITECTURE.md');
const glossary = /^## Glossary\n([\s\S]*?)(?=^## |$(?![\s\S]))/m.exec(architecture)?.[1] ?? '';
const internal = tests.filter((path) => /from '(?:\.\.\/)+src\//.test(textOf(path)));
const [fields, owner] = mostFields(src);
const closures = ['src/ingest/worker.ts', 'src/processor/processor.ts'].map((path) => [
  path,
  closureOf(path),
]);

for (const [path, files] of closures) console.log(`closure of ${path}: ${size(files)}`);
console.log(`src: ${size(src)}`);
console.log(`glossary: ${(glossary.match(/^\| /gm)?.length ?? 1) - 1} rows`);
console.log(`ARCHITECTURE.md: ${architecture.split(/\s+/).filter(Boolean).length} words`);
console.log(`most fields in a class: ${fields}, ${owner}`);
console.log(`tests that import internals: ${sum(internal)} of ${sum(tests)} lines`);
