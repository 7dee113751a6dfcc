/**
 * The file of `project apply` and `project export`, in YAML, or in JSON, which is YAML, too. It has
 * a list of records below `projects`, with the fields of the record's schema.
 */
import { isAlias, isMap, isScalar, isSeq, LineCounter, parseDocument, stringify, visit } from 'yaml';
import { z } from 'zod';
import { inOurWords, newProjectSchema, recordProblems } from '../../management/project-json.ts';
import type { StoredProject } from '../../projects/names.ts';
import { harmless } from '../print.ts';

const projectInFile = newProjectSchema.required({ id: true });
/**
 * A project as the file declares it. If the file leaves out alias or keys, an existing project
 * keeps its own, and a new project gets minted ones. All other fields have a default.
 */
export type FileProject = z.output<typeof projectInFile>;
const isPlainObject = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype;
/** `z.record` would drop a field with the name `__proto__`, and nobody would be told. */
const anyFields = z.custom<Record<string, unknown>>(isPlainObject, 'it must be an object');
const fileSchema = z.strictObject({ projects: z.array(anyFields) });

/** Fields that are texts. YAML may take them for numbers, and lose leading zeros or digits. */
const TEXT_FIELDS: ReadonlySet<unknown> = new Set(['id', 'alias', 'name', 'tags', 'key', 'label']);
/** Field that `project show` prints. It follows from key and alias, so it is ignored in a file. */
const DERIVED = 'dsn';

/** Error of a file that cannot be applied. Its message has a line for each fault. */
export class ProjectFileError extends Error {
  override name = 'ProjectFileError';
}

type Path = readonly (string | number)[];
type Fault = { path: Path; text: string };

class SourceText {
  readonly #name: string;
  readonly #lines = new LineCounter();
  readonly #document;
  /** Offset of the first alias of YAML. */
  #firstAlias: number | undefined;

  /**
   * Parses the text, and restores the text fields that YAML took for numbers.
   * @throws ProjectFileError when the text is no YAML, or an alias of YAML has no anchor before it
   */
  constructor(text: string, name: string) {
    this.#name = name;
    this.#document = parseDocument(text, {
      lineCounter: this.#lines,
      prettyErrors: false,
      logLevel: 'error', // it would warn of keys that are lists
    });
    const { errors } = this.#document;
    if (errors.length > 0)
      throw new ProjectFileError(errors.map(({ message, pos }) => this.#at(pos[0], message)).join('\n'));
    const anchors = new Set<string | undefined>();
    visit(this.#document, {
      Node: (_, node) => {
        if (!isAlias(node)) return void anchors.add(node.anchor);
        const at = node.range?.[0] ?? 0;
        if (!anchors.has(node.source))
          throw new ProjectFileError(this.#at(at, `no anchor before the alias *${node.source}`));
        this.#firstAlias ??= at;
      },
      Pair: (_, { key, value }) => {
        if (!isScalar(key) || !TEXT_FIELDS.has(key.value)) return;
        for (const node of isSeq(value) ? value.items : [value])
          if (isScalar(node) && node.value !== null && node.source !== undefined) node.value = node.source;
      },
    });
  }

  /**
   * Returns the document as plain values.
   * @throws ProjectFileError when aliases of YAML in the document expand too often
   */
  value(): unknown {
    try {
      return this.#document.toJS();
    } catch (error) {
      const { message } = error as Error;
      const at = this.#firstAlias;
      throw new ProjectFileError(at === undefined ? `${this.#name}: ${message}` : this.#at(at, message));
    }
  }

  /** Makes the sentence of a fault, with its line. A missing field gets the line of its project. */
  fault({ path, text }: Fault): string {
    for (let length = path.length; length > 0; length--) {
      const parent = this.#document.getIn(path.slice(0, length - 1), true);
      const last = path[length - 1];
      const pair = isMap(parent) && parent.items.find(({ key }) => isScalar(key) && key.value === last);
      const node = pair ? pair.key : this.#document.getIn(path.slice(0, length), true);
      const range = (node as { range?: readonly number[] } | undefined)?.range;
      if (range) return this.#at(range[0] ?? 0, text);
    }
    return `${this.#name}: ${text}`;
  }

  #at(offset: number, text: string): string {
    return `${this.#name}:${this.#lines.linePos(offset).line}: ${text}`;
  }
}

const faultsOf = (error: z.ZodError, path: Path): Fault[] =>
  error.issues.flatMap((issue) => {
    const at = [...path, ...issue.path.map((step) => (typeof step === 'number' ? step : String(step)))];
    return issue.code === 'unrecognized_keys'
      ? issue.keys.map((key) => ({ path: [...at, key], text: 'there is no such field' }))
      : [{ path: at, text: issue.message }];
  });

const recordFaults = (project: FileProject): Fault[] =>
  recordProblems(project).map(({ field, detail }) => ({ path: [field], text: detail }));

/**
 * Begins a fault's text with its project and field, as in `project 7, plan: …`. A project without
 * an id is named by its place in the list.
 */
function named({ path, text }: Fault, projects: readonly Record<string, unknown>[]): Fault {
  const [list, place, ...field] = path;
  if (path.length === 0) return { path, text };
  if (list !== 'projects' || typeof place !== 'number') return { path, text: `${path.join('.')}: ${text}` };
  const id = projects[place]?.id;
  const who = typeof id === 'string' ? `project ${id}` : `project number ${place + 1}`;
  const where = field.length > 0 ? `${who}, ${field.join('.')}` : who;
  return { path, text: `${where}: ${text}` };
}

/** Finds ids and aliases that occur twice. Ids and aliases share one space of names. */
function repeatedNames(projects: readonly Record<string, unknown>[]): Fault[] {
  const owners = new Map<unknown, number>();
  const faults: Fault[] = [];
  for (const [place, project] of projects.entries())
    for (const field of ['id', 'alias'] as const) {
      const name = project[field];
      if (typeof name !== 'string') continue;
      const owner = owners.get(name);
      if (owner === undefined) owners.set(name, place);
      else if (owner !== place)
        faults.push({
          path: ['projects', place, field],
          text: `${name} is also the id or alias of project number ${owner + 1} in this file`,
        });
    }
  return faults;
}

/**
 * Parses the projects of a file.
 * @param name of the file, for messages
 * @throws ProjectFileError naming each fault by line, project and field
 */
export function parseProjectFile(text: string, name: string): FileProject[] {
  const source = new SourceText(text, name);
  const refuse = (faults: readonly Fault[]): never => {
    throw new ProjectFileError(faults.map((fault) => source.fault(fault)).join('\n'));
  };
  const file = fileSchema.safeParse(source.value(), { error: inOurWords });
  if (!file.success) return refuse(faultsOf(file.error, []).map((fault) => named(fault, [])));
  const { projects } = file.data;
  const faults: Fault[] = repeatedNames(projects);
  const declared: FileProject[] = [];
  for (const [place, { [DERIVED]: _, ...fields }] of projects.entries()) {
    const parsed = projectInFile.safeParse(fields, { error: inOurWords });
    if (parsed.success) declared.push(parsed.data);
    const wrong = parsed.success ? recordFaults(parsed.data) : faultsOf(parsed.error, []);
    faults.push(...wrong.map(({ path, text }) => ({ path: ['projects', place, ...path], text })));
  }
  return faults.length === 0 ? declared : refuse(faults.map((fault) => named(fault, projects)));
}

const HEAD = `# Projects of sluice, for: sluice project apply -f FILE
# The keys are in it: applications have them compiled in, and a project that is made anew needs the same.
# A revision names the state that was exported: apply undoes no later change without --force.
# A file that is kept by hand leaves revisions out, and has the last word.
`;

/** Makes a project as the file shows it: with `keys` if its record has a list, else `key`. */
export const fileProject = ({ project: { key, keys, ...fields }, revision }: StoredProject): object => ({
  ...fields,
  ...(keys ? { keys } : { key }),
  revision,
});

/**
 * Makes the text of the project file. If characters in it would steer a terminal, these characters
 * are escaped, and all strings are in double quotes.
 */
export function projectFileText(projects: readonly StoredProject[]): string {
  const file = { projects: projects.map(fileProject) };
  const text = stringify(file, { lineWidth: 0 });
  if (harmless(text) === text) return HEAD + text;
  return (
    HEAD +
    harmless(stringify(file, { lineWidth: 0, defaultStringType: 'QUOTE_DOUBLE', defaultKeyType: 'PLAIN' }))
  );
}
