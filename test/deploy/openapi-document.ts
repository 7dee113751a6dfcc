/** A document of OpenAPI as something that answers can be held against. */
import { readFileSync } from 'node:fs';
import { parse } from 'yaml';
import { z } from 'zod';

export type Schema = Record<string, unknown>;
type Response = {
  headers?: Record<string, { required?: boolean; schema: Schema }>;
  content?: Content;
};
type Content = Record<string, { schema: Schema }>;
export type Parameter = { name: string; in: string; schema: Schema };
export type Operation = {
  responses: Record<string, Response>;
  parameters?: Parameter[];
  requestBody?: { content: Content };
};
type PathItem = Record<string, Operation>;
type Document = { openapi: string; paths: Record<string, PathItem>; components: Record<string, unknown> };

export type Answered = { status: number; headers: ReadonlyMap<string, string>; body: string };

/** Headers of HTTP itself, which no answer needs to document. */
const OF_HTTP = new Set([
  'content-type',
  'content-length',
  'date',
  'connection',
  'keep-alive',
  'transfer-encoding',
  'uwebsockets',
]);
const METHODS = ['get', 'put', 'post', 'patch', 'delete', 'options'];

const readable = (headers: Headers): Map<string, string> => new Map(headers.entries());
const LINES = 'application/x-ndjson';
/** The beginning of a body that has no end. */
async function beginning({ body }: globalThis.Response): Promise<string> {
  const reader = body?.getReader();
  const { value } = (await reader?.read()) ?? {};
  await reader?.cancel();
  return Buffer.from(value ?? []).toString();
}
export const answered = async (res: globalThis.Response): Promise<Answered> => ({
  status: res.status,
  headers: readable(res.headers),
  body: await (res.headers.get('content-type') === LINES ? beginning(res) : res.text()),
});

export class OpenApi {
  readonly document: Document;
  /** `POST /path 200` of every answer that was checked. */
  readonly seen = new Set<string>();

  /** @param name of the file in docs */
  constructor(name = 'openapi.yaml') {
    const file = new URL(`../../docs/${name}`, import.meta.url);
    this.document = this.#resolved(parse(readFileSync(file, 'utf8')) as Document);
  }

  /** Every operation with its path and method. */
  get operations(): { path: string; method: string; operation: Operation }[] {
    return Object.entries(this.document.paths).flatMap(([path, item]) =>
      METHODS.flatMap((method) => {
        const operation = item[method];
        return operation ? [{ path, method: method.toUpperCase(), operation }] : [];
      }),
    );
  }

  /** Every documented `POST /path 200`. */
  get documented(): string[] {
    return this.operations.flatMap(({ path, method, operation }) =>
      Object.keys(operation.responses)
        .filter((status) => status !== 'default')
        .map((status) => `${method} ${path} ${status}`),
    );
  }

  /** What differs between an answer and what is documented for it; nothing when all is as it should be. */
  problems(method: string, path: string, answer: Answered): string[] {
    const where = `${method} ${path} ${answer.status}`;
    this.seen.add(where);
    const { responses } = this.document.paths[path]?.[method.toLowerCase()] ?? { responses: {} };
    const response = responses[`${answer.status}`] ?? (answer.status >= 400 ? responses.default : undefined);
    if (!response) return [`${where} is not documented: ${answer.body}`];
    return [...this.#headers(response, answer), ...this.#body(response, answer)].map(
      (line) => `${where}: ${line}`,
    );
  }

  #headers({ headers = {} }: Response, answer: Answered): string[] {
    const documented = new Set(Object.keys(headers).map((name) => name.toLowerCase()));
    const unknown = [...answer.headers.keys()].filter((name) => !documented.has(name) && !OF_HTTP.has(name));
    const wrong = Object.entries(headers).flatMap(([name, { required, schema }]) => {
      const value = answer.headers.get(name.toLowerCase());
      if (value === undefined) return required ? [`lacks ${name}`] : [];
      return matches(schema, value) ? [] : [`${name} is ${value}`];
    });
    return [...unknown.map((name) => `has ${name}, which is not documented`), ...wrong];
  }

  #body({ content }: Response, { body, headers }: Answered): string[] {
    if (!content) return body === '' ? [] : [`has a body: ${body}`];
    const type = headers.get('content-type') ?? '';
    if (!content[type]) return [`is of type ${type}`];
    const { schema } = content[type];
    const lines = type === LINES ? body.split('\n').filter((line) => line !== '') : [body];
    const said = lines.map((line) => (type.endsWith('json') ? JSON.parse(line) : line));
    return said.every((one) => matches(schema, one)) ? [] : [`says ${body}`];
  }

  /** References replaced by what they name; keys beside a reference in a path item are added to it. */
  #resolved(document: Document): Document {
    const at = (pointer: string): unknown =>
      pointer
        .slice(2)
        .split('/')
        .map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'))
        .reduce<unknown>((node, part) => (node as Record<string, unknown>)[part], document);
    const follow = (node: unknown): unknown => {
      if (Array.isArray(node)) return node.map(follow);
      if (typeof node !== 'object' || node === null) return node;
      const { $ref, ...rest } = node as Record<string, unknown>;
      const own = Object.fromEntries(Object.entries(rest).map(([key, value]) => [key, follow(value)]));
      if (typeof $ref !== 'string') return own;
      const target = at($ref);
      if (target === undefined) throw new Error(`nothing stands at ${$ref}`);
      return { ...(follow(target) as object), ...own };
    };
    return follow(document) as Document;
  }
}

export const matches = (schema: Schema, value: unknown): boolean =>
  z.fromJSONSchema(schema as Parameters<typeof z.fromJSONSchema>[0]).safeParse(value).success;
