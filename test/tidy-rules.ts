/** The rules of the house that a machine can check, as functions from one source file to the sentences that it breaks. */
import { parseSync } from 'vite';

/** Guides for sizes: what lies above is reported; `OVER_GUIDE` times a guide breaks the rule. */
export const FILE_LINES = 400;
export const FUNCTION_LINES = 40;
export const FOLDER_FILES = 12;
export const NESTING = 3;
export const OVER_GUIDE = 2;
export const COMMENT_COLUMNS_MAX = 100;

type Node = { readonly type: string; readonly start: number; readonly [field: string]: unknown };

export type SourceFile = {
  /** From the root of the project, with slashes: `src/ingest/http/request.ts`. */
  readonly path: string;
  readonly lines: number;
  readonly program: Node;
  /** The program and all nodes below it. */
  readonly nodes: readonly Node[];
  readonly comments: readonly { readonly value: string; readonly start: number; readonly end: number }[];
  readonly rows: readonly string[];
  lineOf(offset: number): number;
};

/** @throws when the text is no TypeScript */
export function parseSource(path: string, text: string): SourceFile {
  const { program: parsed, comments, errors } = parseSync(path, text);
  const first = errors[0];
  if (first) throw new Error(`${path}: ${first.message}`);
  const program = parsed as unknown as Node;
  const lineOf = (offset: number): number => text.slice(0, offset).split('\n').length;
  const lines = text.split('\n').length - (text.endsWith('\n') ? 1 : 0);
  const nodes = descendants(program);
  return { path, lines, program, nodes, comments, rows: text.split('\n'), lineOf };
}

const isNode = (value: unknown): value is Node =>
  typeof value === 'object' && value !== null && 'type' in value && typeof value.type === 'string';

function childrenOf(node: Node): Node[] {
  return Object.values(node).flatMap((value) => (Array.isArray(value) ? value : [value]).filter(isNode));
}

/** A node and all below it. */
function descendants(node: Node): Node[] {
  const found = [node];
  for (const one of found) found.push(...childrenOf(one));
  return found;
}

const nodesOf = (file: SourceFile, ...types: readonly string[]): Node[] =>
  file.nodes.filter(({ type }) => types.includes(type));

/** `a.b` as written, for names only. */
function memberName(node: Node): string {
  const { object, property } = node as unknown as { object?: Node; property?: Node };
  return `${object?.name ?? ''}.${property?.name ?? ''}`;
}

const at = (file: SourceFile, node: { start: number }, sentence: string): string =>
  `${file.path}:${file.lineOf(node.start)} ${sentence}`;

export type Import = { readonly specifier: string; readonly typeOnly: boolean; readonly start: number };

/** Static, re-exporting and dynamic imports, and types named by `import('…')`. */
function importsOf(file: SourceFile): Import[] {
  const kinds = [
    'ImportDeclaration',
    'ExportNamedDeclaration',
    'ExportAllDeclaration',
    'ImportExpression',
    'TSImportType',
  ];
  return nodesOf(file, ...kinds).flatMap((node) => {
    const specifier = (node.source as Node | null)?.value;
    if (typeof specifier !== 'string') return [];
    const specifiers = (node.specifiers ?? []) as Node[];
    const everyNamedType =
      specifiers.length > 0 &&
      specifiers.every((one) => one.importKind === 'type' || one.exportKind === 'type');
    const typeOnly =
      node.type === 'TSImportType' ||
      node.importKind === 'type' ||
      node.exportKind === 'type' ||
      everyNamedType;
    return [{ specifier, typeOnly, start: node.start }];
  });
}

/** Which areas of src an area may import; `lib`, `limits.ts`, `version.ts` and the types of `config.ts` serve everybody. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  lib: [],
  stream: [],
  projects: ['stream'],
  sink: ['stream'],
  'ingest/envelope': [],
  'ingest/filter': [],
  'ingest/limit': ['projects'],
  'ingest/otlp': ['ingest/envelope'],
  'ingest/usage': ['projects', 'stream'],
  'ingest/http': ['ingest/envelope', 'ingest/filter', 'ingest/limit', 'ingest/otlp', 'projects', 'stream'],
  processor: ['projects', 'sink', 'stream'],
  management: ['ingest', 'processor', 'projects', 'stream'],
};

/** Files that compose a program: they construct what it needs, and may import all of their program, and management. */
const ROOTS: Readonly<Record<string, readonly string[]>> = {
  'src/ingest/': ['config.ts', 'ingest', 'management', 'projects', 'stream'],
  'src/processor/processor.ts': ['config.ts', 'management', 'processor', 'projects', 'sink', 'stream'],
};

/** `src/ingest/http/request.ts` → `ingest/http`; `src/lib/files/a.ts` → `lib`; files beside the folders are areas of their own. */
function areaOf(path: string): string {
  const [, program = '', stage = ''] = path.split('/');
  return program === 'ingest' && !stage.endsWith('.ts') ? `${program}/${stage}` : program;
}

const resolved = (from: string, specifier: string): string =>
  new URL(specifier, `file:///${from}`).pathname.slice(1);

const isWithin = (area: string, areas: readonly string[]): boolean =>
  areas.some((one) => area === one || area.startsWith(`${one}/`));

/** What a file may import, by its area or because it composes a program; undefined: everything, as a command may. */
function allowedFor(path: string): readonly string[] | undefined {
  const area = areaOf(path);
  if (area === 'limits.ts' || area === 'config.ts') return [];
  if (area === 'ingest') return ROOTS['src/ingest/'];
  return ROOTS[path] ?? MAY_IMPORT[area];
}

/** Who may import whom (ARCHITECTURE.md, "Layout"). */
export function importDirection(file: SourceFile): string[] {
  const area = areaOf(file.path);
  const allowed = allowedFor(file.path);
  if (!allowed) return [];
  return importsOf(file).flatMap((found) => {
    if (!found.specifier.startsWith('.')) return [];
    const path = resolved(file.path, found.specifier);
    const target = areaOf(path);
    const served =
      ['lib', 'limits.ts', 'version.ts'].includes(target) || (target === 'config.ts' && found.typeOnly);
    if (target === area || served || isWithin(target, allowed)) return [];
    return [at(file, found, `${area} may not import ${target}`)];
  });
}

/** Packages that hide behind a few files. */
const PACKAGE_HOMES: readonly { readonly package: RegExp; readonly home: RegExp }[] = [
  { package: /^uWebSockets\.js$/, home: /^src\/ingest\/http\/server\.ts$/ },
  { package: /^ioredis$/, home: /^src\/ingest\/limit\/redis[a-z-]*\.ts$/ },
  { package: /^@nats-io\//, home: /^src\/(stream|projects|processor)\// },
  { package: /^@clickhouse\//, home: /^src\/sink\/clickhouse\// },
  { package: /^aws4fetch$/, home: /^src\/sink\/s3\// },
  { package: /^pg$/, home: /^src\/sink\/postgres\// },
  { package: /^@bufbuild\//, home: /^src\/processor\/decode\/otlp\// },
  { package: /^@opentelemetry\//, home: /^src\/lib\/tracing\/otlp\.ts$/ },
];

/** Types may be named anywhere: they bind nobody at run time. */
export function packageHomes(file: SourceFile): string[] {
  return importsOf(file)
    .filter(({ specifier, typeOnly }) =>
      PACKAGE_HOMES.some((row) => !typeOnly && row.package.test(specifier) && !row.home.test(file.path)),
    )
    .map((found) => at(file, found, `may not import ${found.specifier}`));
}

const FUNCTIONS = ['FunctionDeclaration', 'FunctionExpression', 'ArrowFunctionExpression'];

function sizesAbove(file: SourceFile, times: number): string[] {
  const problems = file.lines > times * FILE_LINES ? [`${file.path} has ${file.lines} lines`] : [];
  for (const node of nodesOf(file, ...FUNCTIONS)) {
    const lines = file.lineOf(node.end as number) - file.lineOf(node.start) + 1;
    if (lines > times * FUNCTION_LINES) problems.push(at(file, node, `a function has ${lines} lines`));
  }
  return problems;
}

export function sizes(file: SourceFile): string[] {
  return sizesAbove(file, OVER_GUIDE);
}

const folderOf = (path: string): string => path.slice(0, path.lastIndexOf('/'));

function foldersAbove(files: readonly SourceFile[], times: number): string[] {
  const counts = new Map<string, number>();
  for (const { path } of files) counts.set(folderOf(path), (counts.get(folderOf(path)) ?? 0) + 1);
  return [...counts]
    .filter(([, count]) => count > times * FOLDER_FILES)
    .map(([folder, count]) => `${folder} has ${count} files`);
}

/** Of all files together: how many are in each folder, those of folders below apart. */
export function folderSizes(files: readonly SourceFile[]): string[] {
  return foldersAbove(files, OVER_GUIDE);
}

/** What lies above a guide and breaks no rule yet. */
export function aboveGuides(files: readonly SourceFile[]): string[] {
  return [
    ...foldersAbove(files, 1),
    ...files.flatMap((file) => [...sizesAbove(file, 1), ...nestingAbove(file, 1)]),
  ];
}

/** Of all files together: a file that imports itself by way of others, types included; one sentence for each circle found. */
export function importCircles(files: readonly SourceFile[]): string[] {
  const targets = new Map(
    files.map((file) => {
      const relative = importsOf(file).filter(({ specifier }) => specifier.startsWith('.'));
      return [file.path, relative.map(({ specifier }) => resolved(file.path, specifier))] as const;
    }),
  );
  const circles: string[] = [];
  const done = new Set<string>();
  const visit = (path: string, way: readonly string[]): void => {
    const at = way.indexOf(path);
    if (at >= 0) circles.push([...way.slice(at), path].join(' → '));
    if (at >= 0 || done.has(path)) return;
    for (const target of targets.get(path) ?? []) visit(target, [...way, path]);
    done.add(path);
  };
  for (const path of targets.keys()) visit(path, []);
  return circles;
}

const DECIDES = [
  'IfStatement',
  'ForStatement',
  'ForOfStatement',
  'ForInStatement',
  'WhileStatement',
  'DoWhileStatement',
  'SwitchStatement',
];

/** Decisions and loops in one another, counted anew in each function; `else if` goes no deeper than its `if`, `try` decides nothing. */
function nestingAbove(file: SourceFile, times: number): string[] {
  const problems: string[] = [];
  const visit = (node: Node, depth: number): void => {
    for (const child of childrenOf(node)) {
      const chained = node.type === 'IfStatement' && child === node.alternate && child.type === 'IfStatement';
      const deeper = DECIDES.includes(child.type) && !chained ? depth + 1 : depth;
      if (deeper > times * NESTING && deeper > depth) problems.push(at(file, child, `nests ${deeper} deep`));
      visit(child, FUNCTIONS.includes(child.type) ? 0 : deeper);
    }
  };
  visit(file.program, 0);
  return problems;
}

export function nesting(file: SourceFile): string[] {
  return nestingAbove(file, OVER_GUIDE);
}

const BANNED_NODES: Readonly<Record<string, string>> = {
  TSAnyKeyword: 'says any',
  TSEnumDeclaration: 'has an enum',
  TSModuleDeclaration: 'has a namespace',
  TSParameterProperty: 'has a parameter property',
  ExportDefaultDeclaration: 'exports a default',
  ExportAllDeclaration: 'exports everything of another file',
};

export function bannedSyntax(file: SourceFile): string[] {
  const problems = nodesOf(file, ...Object.keys(BANNED_NODES)).map((node) =>
    at(file, node, BANNED_NODES[node.type] ?? ''),
  );
  for (const node of file.nodes) {
    // A constructor has no other way to be private.
    if (node.accessibility === 'private' && node.kind !== 'constructor')
      problems.push(at(file, node, 'says private where # does it'));
  }
  return problems;
}

const PRINTS = /^src\/(commands\/|cli\.ts$)/;
const READS_ENVIRONMENT = 'src/config.ts';

/** Only programs print, and only config.ts reads the environment. */
export function globals(file: SourceFile): string[] {
  return nodesOf(file, 'MemberExpression').flatMap((node) => {
    const name = memberName(node);
    if (name.startsWith('console.') && !PRINTS.test(file.path)) return [at(file, node, `calls ${name}`)];
    if (name === 'process.env' && file.path !== READS_ENVIRONMENT) {
      return [at(file, node, 'reads process.env')];
    }
    return [];
  });
}

const SHAPELESS = /^(index|utils?|helpers?|common|types|misc)$/;

export function fileNames(file: SourceFile): string[] {
  const words = file.path.replace(/\.ts$/, '').split('/');
  return words
    .filter((word) => SHAPELESS.test(word))
    .map((word) => `${file.path} is called ${word}, which says nothing`);
}

/** Lines with a comment, or a part of one. Code is held to its own width by the formatter. */
export function commentWidths(file: SourceFile): string[] {
  return file.comments.flatMap(({ start, end }) => {
    const first = file.lineOf(start);
    const rows = file.rows.slice(first - 1, file.lineOf(end));
    const long = rows.findIndex((row) => row.length > COMMENT_COLUMNS_MAX);
    return long < 0
      ? []
      : [`${file.path}:${first + long} a comment ends beyond column ${COMMENT_COLUMNS_MAX}`];
  });
}

const LEFT_UNDONE = /\b(TODO|FIXME|XXX|HACK)\b/;

export function leftUndone(file: SourceFile): string[] {
  return file.comments
    .filter(({ value }) => LEFT_UNDONE.test(value))
    .map((comment) => at(file, comment, 'leaves something undone'));
}

const NOT_RUN = /^(only|skip|todo|fails)$/;
const TEST_FUNCTIONS = /^(it|test|describe|suite|bench)$/;

/** Tests that do not run, or keep others from running. */
export function testsNotRun(file: SourceFile): string[] {
  return nodesOf(file, 'MemberExpression').flatMap((node) => {
    const [object = '', property = ''] = memberName(node).split('.');
    return TEST_FUNCTIONS.test(object) && NOT_RUN.test(property)
      ? [at(file, node, `says ${object}.${property}`)]
      : [];
  });
}

/** Constants among variables, by their spelling. */
const constantsOf = (nodes: readonly Node[]): { name: string; start: number }[] =>
  nodes.flatMap(({ id, start }) => {
    const { name } = id as { name?: string };
    return name && /^[A-Z][A-Z0-9_]*$/.test(name) ? [{ name, start }] : [];
  });

/** Of all files together: a name of limits.ts means one bound. */
export function boundNames(files: readonly SourceFile[]): string[] {
  const limits = files.find(({ path }) => path === 'src/limits.ts');
  const exported = (limits ? nodesOf(limits, 'ExportNamedDeclaration') : []).flatMap(descendants);
  const declared = exported.filter(({ type }) => type === 'VariableDeclarator');
  const bounds = new Set(constantsOf(declared).map(({ name }) => name));
  return files
    .filter((file) => file !== limits)
    .flatMap((file) =>
      constantsOf(nodesOf(file, 'VariableDeclarator'))
        .filter(({ name }) => bounds.has(name))
        .map((constant) => at(file, constant, `limits.ts has another ${constant.name}`)),
    );
}

export type Rule = (file: SourceFile) => string[];
export type TreeRule = (files: readonly SourceFile[]) => string[];
export const SOURCE_RULES: readonly Rule[] = [
  importDirection,
  packageHomes,
  sizes,
  nesting,
  bannedSyntax,
  globals,
  fileNames,
  commentWidths,
  leftUndone,
];
export const TREE_RULES: readonly TreeRule[] = [folderSizes, importCircles, boundNames];
export const TEST_RULES: readonly Rule[] = [testsNotRun, leftUndone];
