/** The rules of the house hold, and each of them can fail. */
import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import * as documents from './tidy-documents.ts';
import * as rules from './tidy-rules.ts';

const ROOT = new URL('..', import.meta.url).pathname;

function sourcesIn(folder: string): rules.SourceFile[] {
  return readdirSync(`${ROOT}${folder}`, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .sort()
    .map((name) => rules.parseSource(`${folder}/${name}`, readFileSync(`${ROOT}${folder}/${name}`, 'utf8')));
}

const sources = sourcesIn('src');
const tests = sourcesIn('test');

const nested = (depth: number): string => `${'if (a) { '.repeat(depth)}b();${' }'.repeat(depth)}`;
const long = (lines: number): string => `function f() {\n${'a();\n'.repeat(lines - 2)}}`;

const filesOf = (prefix: string, count: number): Record<string, string> =>
  Object.fromEntries(Array.from({ length: count }, (_, i) => [`${prefix}f${i}.ts`, '']));
const parsed = (texts: Readonly<Record<string, string>>): rules.SourceFile[] =>
  Object.entries(texts).map(([path, text]) => rules.parseSource(path, text));

const from = (path: string, what = 'import { b }'): string => `${what} from '${path}';`;
const type = (path: string): string => from(path, 'import type { b }');
const also = (path: string): string => from(path, 'export { b }');

/** Path, an import that it may not have, one that it may. */
const DIRECTIONS: readonly (readonly [path: string, broken: string, fixed: string])[] = [
  ['src/ingest/limit/a.ts', from('../http/b.ts'), from('./b.ts')],
  ['src/ingest/filter/a.ts', `import('../envelope/b.ts');`, `import('../../lib/b.ts');`],
  ['src/stream/a.ts', also('../projects/b.ts'), also('zod')],
  ['src/sink/postgres/a.ts', type('../../processor/b.ts'), type('../../stream/b.ts')],
  ['src/processor/a.ts', from('../management/b.ts'), from('../sink/b.ts')],
  ['src/processor/processor.ts', from('../ingest/limit/b.ts'), from('../management/api/b.ts')],
  ['src/ingest/primary.ts', type('../processor/b.ts'), from('./http/b.ts')],
  ['src/management/a.ts', from('../commands/b.ts'), from('../ingest/limit/b.ts')],
  ['src/ingest/limit/a.ts', type('../http/a.ts'), type('../../projects/project-state.ts')],
  ['src/ingest/filter/a.ts', type('../../projects/project-state.ts'), type('./project-state.ts')],
  ['src/projects/project-state.ts', type('../ingest/limit/scope-cache.ts'), type('../lib/slots.ts')],
  ['src/projects/replica.ts', from('../ingest/filter/inbound.ts'), from('./project-state.ts')],
  ['src/ingest/http/a.ts', from('../../config.ts'), from('../../config.ts', 'import { type C }')],
  ['src/lib/a.ts', from('../stream/b.ts'), from('../limits.ts')],
  ['src/limits.ts', from('./ingest/b.ts'), from('./lib/b.ts')],
  [
    'src/ingest/http/a.ts',
    `type B = import('../../commands/b.ts').B;`,
    `type B = import('../limit/b.ts').B;`,
  ],
];
/** The same of packages. */
const HOMES: typeof DIRECTIONS = [
  ['src/ingest/http/request.ts', from('uWebSockets.js', 'import uWS'), from('zod')],
  ['src/ingest/limit/quota.ts', from('ioredis'), type('ioredis')],
  ['src/sink/a.ts', from('@clickhouse/client'), type('@clickhouse/client')],
  ['src/sink/clickhouse/a.ts', from('aws4fetch'), from('@clickhouse/client')],
  ['src/http/a.ts', from('@nats-io/kv'), type('@nats-io/kv')],
  ['src/http/a.ts', from('@opentelemetry/api'), type('@opentelemetry/api')],
];

/** Rule, path, a text that breaks it, the same fixed. */
const PROOFS: readonly (readonly [rule: rules.Rule, path: string, broken: string, fixed: string])[] = [
  ...DIRECTIONS.map((row) => [rules.importDirection, ...row] as const),
  ...HOMES.map((row) => [rules.packageHomes, ...row] as const),
  [rules.sizes, 'src/a.ts', 'a();\n'.repeat(801), 'a();\n'.repeat(800)],
  [rules.sizes, 'src/a.ts', long(81), long(80)],
  [
    rules.sizes,
    'src/a.ts',
    `class A {\n  b() {\n${'a();\n'.repeat(80)}}}`,
    `class A {\n  b() {\n${'a();\n'.repeat(60)}}}`,
  ],
  [rules.nesting, 'src/a.ts', nested(7), nested(6)],
  [
    rules.nesting,
    'src/a.ts',
    `${'for (;;) { '.repeat(3)}try { while (a) switch (b) { case 1: if (c) if (d) e(); } } finally { } ${'}'.repeat(3)}`,
    'if (a) b(); else if (c) d(); else if (e) f(); else if (g) h(); else i(() => { if (j) k(); });',
  ],
  [rules.bannedSyntax, 'src/a.ts', 'const a = b as any;', "const a = 'any';"],
  [rules.bannedSyntax, 'src/a.ts', 'enum A { B }', 'const A = { B: 1 } as const;'],
  [rules.bannedSyntax, 'src/a.ts', 'namespace A { export const b = 1; }', 'const namespace = 1;'],
  [rules.bannedSyntax, 'src/a.ts', 'export default 1;', 'export const a = 1;'],
  [rules.bannedSyntax, 'src/a.ts', `export * from './b.ts';`, `export { b } from './b.ts';`],
  [
    rules.bannedSyntax,
    'src/a.ts',
    'class A { private b = 1; }',
    'class A { #b = 1; private constructor() {} }',
  ],
  [
    rules.bannedSyntax,
    'src/a.ts',
    'class A { constructor(readonly b: C) {} }',
    'class A { constructor(b: C) {} }',
  ],
  [rules.globals, 'src/http/a.ts', 'console.log(a);', 'log.info(a);'],
  [rules.globals, 'src/http/a.ts', 'const a = process.env.B;', "const a = 'process.env';"],
  [rules.globals, 'src/commands/a.ts', 'f(process.env);', 'console.log(a);'],
  [rules.commentWidths, 'src/a.ts', `// ${'a'.repeat(98)}`, `// ${'a'.repeat(97)}`],
  [rules.commentWidths, 'src/a.ts', `/**\n * ${'a'.repeat(98)}\n */`, `/**\n * ${'a'.repeat(97)}\n */`],
  [rules.commentWidths, 'src/a.ts', `a('${'b'.repeat(80)}'); // so it is said`, `a('${'b'.repeat(120)}');`],
  [rules.leftUndone, 'src/a.ts', '// TODO: more', "const a = 'TODO';"],
  [rules.leftUndone, 'test/a.test.ts', '/* one\n FIXME */', '/* fixed */'],
  [rules.testsNotRun, 'test/a.test.ts', 'it.only(a, b);', 'it(a, b);'],
  [rules.testsNotRun, 'test/a.test.ts', 'describe.skip(a, b);', 'describe.each(a)(b, c);'],
  [rules.testsNotRun, 'test/a.test.ts', "test.todo('a');", 'list.skip(1);'],
];

/** Rule, files by path that break it, the same fixed. */
const TREE_PROOFS: readonly (readonly [
  rule: rules.TreeRule,
  broken: Readonly<Record<string, string>>,
  fixed: Readonly<Record<string, string>>,
])[] = [
  [rules.folderSizes, filesOf('src/a/', 25), { ...filesOf('src/a/', 24), ...filesOf('src/a/b/', 24) }],
  [
    rules.importCircles,
    { 'src/a.ts': `import './b/c.ts';`, 'src/b/c.ts': `import '../a.ts';` },
    { 'src/a.ts': `import './b/c.ts';`, 'src/b/c.ts': `import '../d.ts';`, 'src/d.ts': '' },
  ],
  [
    rules.importCircles,
    {
      'src/a.ts': `import './b.ts';`,
      'src/b.ts': `import './c.ts';`,
      'src/c.ts': `import type { B } from './b.ts';`,
    },
    {
      'src/a.ts': `import './b.ts'; import './c.ts';`,
      'src/b.ts': `import './c.ts';`,
      'src/c.ts': `import './d.js';`,
    },
  ],
  [
    rules.boundNames,
    { 'src/limits.ts': 'export const A_MAX = 1;', 'src/b.ts': 'const A_MAX = 2;' },
    { 'src/limits.ts': 'export const A_MAX = 1;', 'src/b.ts': 'const B_MAX = 2;' },
  ],
];

describe('every source file', () => {
  it('is found', () => {
    expect(sources.map(({ path }) => path)).toContain('src/ingest/http/request.ts');
    expect(tests.map(({ path }) => path)).toContain('test/tidy.test.ts');
  });

  it('that lies above a guide for sizes is named', () => {
    const named = rules.aboveGuides(sources);
    if (named.length > 0) console.info(['Above a guide:', ...named].join('\n  '));
    expect(rules.aboveGuides(parsed({ 'src/a.ts': long(401) }))).toHaveLength(2);
  });

  it.each(rules.SOURCE_RULES.map((rule) => [rule.name, rule] as const))(
    'keeps the rule of %s',
    (_name, rule) => {
      expect(sources.flatMap(rule)).toEqual([]);
    },
  );

  it.each(rules.TREE_RULES.map((rule) => [rule.name, rule] as const))(
    'keeps with the others the rule of %s',
    (_name, rule) => {
      expect(rule(sources)).toEqual([]);
    },
  );

  it.each(rules.TEST_RULES.map((rule) => [rule.name, rule] as const))(
    'and every test keeps the rule of %s',
    (_name, rule) => {
      expect(tests.flatMap(rule)).toEqual([]);
    },
  );
});

describe('a rule of the house', () => {
  it.each(PROOFS.map(([rule, path, broken, fixed]) => ({ name: rule.name, rule, path, broken, fixed })))(
    'of $name is broken by row $#',
    ({ rule, path, broken, fixed }) => {
      expect(rule(rules.parseSource(path, broken)), broken).toHaveLength(1);
      expect(rule(rules.parseSource(path, fixed)), fixed).toEqual([]);
    },
  );

  it.each(['src/index.ts', 'src/http/utils.ts', 'src/helpers/a.ts', 'src/types.ts', 'src/common/a.ts'])(
    'fileNames is broken by the mere name %s',
    (path) => {
      expect(rules.fileNames(rules.parseSource(path, ''))).toHaveLength(1);
      expect(rules.fileNames(rules.parseSource('src/http/index-file.ts', ''))).toEqual([]);
    },
  );

  it.each(TREE_PROOFS.map(([rule, broken, fixed]) => ({ name: rule.name, rule, broken, fixed })))(
    'for all files, $name, is broken by row $#',
    ({ rule, broken, fixed }) => {
      expect(rule(parsed(broken))).toHaveLength(1);
      expect(rule(parsed(fixed))).toEqual([]);
    },
  );

  it('is proven for every rule', () => {
    const proven = new Set([...PROOFS, ...TREE_PROOFS].map(([rule]) => rule.name));
    proven.add(rules.fileNames.name);
    const all = [...rules.SOURCE_RULES, ...rules.TREE_RULES, ...rules.TEST_RULES];
    expect(all.map((rule) => rule.name).filter((name) => !proven.has(name))).toEqual([]);
  });
});

describe('the changelog', () => {
  const { changelogSections, CHANGELOG_LINES_MAX } = documents;
  const section = (lines: number): string => `### Upgrading from 1\n${'- a\n'.repeat(lines - 1)}\n`;

  it('has sections of a screen, the way to a version first', () => {
    const changelog = readFileSync(`${ROOT}CHANGELOG.md`, 'utf8');
    expect(changelog).toContain('\n## 0.1.0\n');
    expect(changelogSections(changelog)).toEqual([]);
  });

  it.each([
    [
      'a long section',
      `## 2\n\n${section(CHANGELOG_LINES_MAX + 1)}`,
      `## 2\n\n${section(CHANGELOG_LINES_MAX)}`,
    ],
    ['a long line', `## 2\n\n- ${'a'.repeat(120 * CHANGELOG_LINES_MAX)}`, `## 2\n\n- ${'a'.repeat(5_000)}`],
    ['the way to it at the end', `## 2\n\n### New\n\n${section(9)}`, `## 2\n\n${section(9)}### New\n\n- a\n`],
  ])('may not have %s', (_what, broken, fixed) => {
    expect(changelogSections(broken)).toHaveLength(1);
    expect(changelogSections(fixed)).toEqual([]);
  });
});

describe('the decisions', () => {
  const decisions = readFileSync(`${ROOT}DECISIONS.md`, 'utf8');
  const texts = ['src', 'test', 'bench', 'docs', 'deploy', '']
    .flatMap((folder) => {
      const names = readdirSync(`${ROOT}${folder}`, { recursive: folder !== '', encoding: 'utf8' });
      return names.map((name) => (folder === '' ? name : `${folder}/${name}`));
    })
    .filter((path) => /\.(ts|js|mjs|lua|md|ya?ml|conf|c)$/.test(path) && !/\bnode_modules\//.test(path))
    .map((path) => ({ path, text: readFileSync(`${ROOT}${path}`, 'utf8') }));

  const parts = 'Context. A.\nDecision. B.\nConsequence. C.\n';
  const entry = (number: number, lines = 3): string =>
    `## ${number}. A (2026-01-02, in force)\n${parts}${'b\n'.repeat(lines - 3)}\n`;
  const entries = (count: number): string => Array.from({ length: count }, (_, i) => entry(i + 1)).join('');

  it('are short', () => {
    expect(decisions).toContain('\n## 1. ');
    expect(documents.decisionSizes(decisions)).toEqual([]);
  });

  it('exist where a file names one', () => {
    expect(texts.map(({ path }) => path)).toEqual(expect.arrayContaining(['src/limits.ts', 'README.md']));
    expect(texts.flatMap((file) => documents.decisionReferences(file, decisions))).toEqual([]);
  });

  it.each([
    ['too long', entry(1, 21), entry(1, 20)],
    ['too wide', `${entry(1)}${'b'.repeat(111)}`, `${entry(1)}${'b'.repeat(110)}`],
    ['without a status', entry(1).replace(', in force', ''), entry(1).replace('in force', 'on trial')],
    ['without a reason', entry(1).replace('Context. ', ''), entry(1).replace('A.', 'B.')],
    ['numbered wrongly', entry(1) + entry(3), `${entry(1)}# Topic\n\n${entry(2)}`],
  ])('may not be %s', (_what, broken, fixed) => {
    expect(documents.decisionSizes(broken)).toHaveLength(1);
    expect(documents.decisionSizes(fixed)).toEqual([]);
  });

  it.each([
    [`as DECISIONS.md ${3} says`, `as DECISIONS.md ${2} says`],
    [`(DECISIONS ${1} and ${4})`, `(DECISIONS ${1} and ${2})`],
    [` * DECISIONS.md\n * ${5} says`, ` * DECISIONS.md\n * says ${5}`],
  ])('may not be named when they do not exist: row %#', (broken, fixed) => {
    const references = (text: string): string[] =>
      documents.decisionReferences({ path: 'src/a.ts', text }, entries(2));
    expect(references(broken)).toHaveLength(1);
    expect(references(fixed)).toEqual([]);
  });
});
