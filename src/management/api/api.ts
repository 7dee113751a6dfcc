/** The management API of the admin port: turns requests into operations, results into answers. */
import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import type { z } from 'zod';
import type { Log } from '../../lib/log.ts';
import { KeptList } from '../../projects/project-store.ts';
import { DirectOperations, type ManagementParts } from '../direct.ts';
import { type FieldProblem, faultOf, InvalidError, sentenceOf } from '../failure.ts';
import { fieldProblems, inOurWords } from '../project-json.ts';
import { type Access, refuseForeignOrigin } from './access.ts';
import { readJson } from './body.ts';
import type { Answer, Operation } from './operation.ts';
import { ProblemError } from './problem.ts';
import { findRoute, type Route } from './routes.ts';

const RETRY_AFTER = { 'Retry-After': '5' };
/** Most tails (`GET /v1/tail`) that may be open. For each, this process reads all frames. */
const STREAMS_MAX = 8;

function operationOf({ path, methods }: Route, method: string): Operation {
  const found = methods[method === 'HEAD' ? 'GET' : method];
  if (found) return found;
  const allow = Object.keys(methods).flatMap((name) => (name === 'GET' ? [name, 'HEAD'] : [name]));
  throw new ProblemError('method', `${path} takes ${allow.join(', ')}.`, {
    headers: { Allow: allow.join(', ') },
  });
}

function parsed(schema: z.ZodType, value: unknown): unknown {
  const result = schema.safeParse(value, { error: inOurWords });
  if (result.success) return result.data;
  throw new InvalidError(fieldProblems(result.error));
}

function namedOnce(query: URLSearchParams): Record<string, string> {
  const names = [...query.keys()];
  const twice = names.find((name, at) => names.indexOf(name) !== at);
  if (twice !== undefined) throw new InvalidError([{ field: twice, detail: 'it is there twice' }]);
  return Object.fromEntries(query);
}

type ApiParts = { access: Access; management: ManagementParts; log: Log };

/** Prepares the management API; the admin port then completes it with its own access rules. */
export const managementApi =
  (management: ManagementParts, log: Log) =>
  (access: Access): ManagementApi =>
    new ManagementApi({ access, management: { ...management, kept: new KeptList() }, log });

export class ManagementApi {
  readonly #parts: ApiParts;
  /** Tails that are open (see STREAMS_MAX). */
  readonly #streams = new Set<Readable>();

  constructor(parts: ApiParts) {
    this.#parts = parts;
  }

  /**
   * Answers a request.
   * @throws ProblemError, and no other error
   */
  async answer(req: IncomingMessage, url: URL): Promise<Answer> {
    try {
      return await this.#answer(req, url);
    } catch (error) {
      throw this.#problemOf(error);
    }
  }

  async #answer(req: IncomingMessage, url: URL): Promise<Answer> {
    const { by, role } = this.#parts.access.ofApi(req);
    const found = findRoute(url.pathname);
    if (!found) throw new ProblemError('unknown', `There is no ${url.pathname}.`);
    const { method = 'GET', headers } = req;
    const operation = operationOf(found.route, method);
    if (method !== 'GET' && method !== 'HEAD') {
      refuseForeignOrigin(req);
      if (role === 'viewer')
        throw new ProblemError('forbidden', 'A token of SLUICE_VIEWER_TOKEN may look, and change nothing.');
    }
    const query = parsed(operation.query, namedOnce(url.searchParams));
    const body = operation.body && parsed(operation.body, await readJson(req));
    const operations = new DirectOperations(this.#parts.management, by);
    const answer = await operation.run({
      operations,
      path: found.names,
      query,
      body,
      ifMatch: headers['if-match'],
      ifNoneMatch: headers['if-none-match'],
    });
    if (answer.lines) this.#admit(answer.lines);
    const ofUrls = operations.isUrlGuessed && { 'X-Sluice-Public-Url': 'guessed' };
    return { ...answer, headers: { ...answer.headers, 'X-Sluice-Role': role, ...ofUrls } };
  }

  /** @throws ProblemError when too many tails are open */
  #admit(lines: Readable): void {
    if (this.#streams.size >= STREAMS_MAX) {
      lines.destroy();
      throw new ProblemError('busy', `${STREAMS_MAX} are open already. End one, or ask another ingest.`);
    }
    this.#streams.add(lines);
    lines.once('close', () => this.#streams.delete(lines));
  }

  #problemOf(error: unknown): ProblemError {
    if (error instanceof ProblemError) return error;
    const fault = faultOf(error);
    if (fault === 'bug') {
      const errorId = randomUUID();
      this.#parts.log.error({ err: error, errorId }, 'admin: an operation failed');
      return new ProblemError('bug', `The log says more of error ${errorId}.`);
    }
    const errors: { errors?: readonly FieldProblem[] } =
      error instanceof InvalidError ? { errors: error.problems } : {};
    const headers = fault === 'unavailable' ? RETRY_AFTER : {};
    return new ProblemError(fault, sentenceOf(error), { ...errors, headers });
  }
}
