/** Does the management operations by requests to the management API of ingest. */
import type { RecordedChange } from '../projects/audit-change.ts';
import type { FiledDeadLetter, LetterPage, SequencePage } from './dead-letters/box.ts';
import type { Replayed } from './dead-letters/replay.ts';
import type { Finding } from './doctor/check.ts';
import { type FieldProblem, InvalidError } from './failure.ts';
import { type FailureKind, OperationError, reasonOf } from './operation-error.ts';
import type {
  DeadLetterDetail,
  DeletedProject,
  HeartbeatJson,
  NamePage,
  Operations,
  Presence,
  ProjectPage,
  Revision,
  StoredKeyJson,
  StoredProjectJson,
  Tail,
} from './operations.ts';
import type {
  KeyChanges,
  KeyJson,
  ProjectChanges,
  ProjectJson,
  WantedKey,
  WantedProject,
} from './project-json.ts';
import type { Seen, Sighting, TailWanted } from './tail-item.ts';
import type { Usage, UsageByHour } from './usage.ts';

/** Size of the pages in which a whole list is fetched. */
const PAGE = 1_000;
/** Media type of an answer of lines, each with a JSON value. */
const LINES_TYPE = 'application/x-ndjson';
/** Number of projects whose usage is requested at the same time. */
const USAGES_TOGETHER = 10;

type Problem = { status?: number; title?: string; detail?: string; errors?: FieldProblem[] };
type Sent = {
  body?: object;
  revision?: number | undefined;
  headers?: Readonly<Record<string, string>>;
  signal?: AbortSignal;
};
/** Page of a list: at most `limit` entries that follow `after`. Further fields filter the list. */
type Page = { after?: string | number | undefined; limit?: number | undefined } & Readonly<
  Record<string, string | number | boolean | undefined>
>;
type Answer = { status: number; json: unknown; etag: string | null };

const KINDS: Readonly<Record<number, FailureKind>> = {
  404: 'unknown',
  409: 'conflict',
  412: 'conflict',
  503: 'unavailable',
};

function queryOf(values: Readonly<Record<string, string | number | boolean | undefined>>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value !== undefined) query.set(name, `${value}`);
  return query.size === 0 ? '' : `?${query}`;
}

const segment = (text: string): string => encodeURIComponent(text);
const keyPath = (id: string, keyId: string): string => `/projects/${segment(id)}/keys/${segment(keyId)}`;

const PRESENCE: Readonly<Record<Presence, Readonly<Record<string, string>>>> = {
  new: { 'If-None-Match': '*' },
  there: { 'If-Match': '*' },
};

export class ApiOperations implements Operations {
  readonly #url: string;
  readonly #token: string | undefined;
  #isUrlGuessed = false;

  /** `url` is the URL of the admin port, without a final slash. */
  constructor(url: string, token: string | undefined) {
    this.#url = url;
    this.#token = token;
  }

  get isUrlGuessed(): boolean {
    return this.#isUrlGuessed;
  }

  // ---- Projects ----

  async createProject(wanted: WantedProject): Promise<StoredProjectJson> {
    return stored(await this.#ask('POST', '/projects', { body: wanted }));
  }

  async getProject(id: string): Promise<StoredProjectJson> {
    return stored(await this.#ask('GET', `/projects/${segment(id)}`));
  }

  listProjects(page?: ProjectPage): Promise<ProjectJson[]> {
    return this.#list('/projects', page, ({ id }: ProjectJson) => id);
  }

  async setProject(
    id: string,
    changes: ProjectChanges,
    { revision }: Revision = {},
  ): Promise<StoredProjectJson> {
    return stored(await this.#ask('PATCH', `/projects/${segment(id)}`, { body: changes, revision }));
  }

  async putProject(
    wanted: WantedProject & { id: string },
    { revision, presence }: Revision & { presence?: Presence | undefined } = {},
  ): Promise<StoredProjectJson & { isNew: boolean }> {
    const headers = presence && revision === undefined ? PRESENCE[presence] : {};
    const sent = { body: wanted, revision, headers };
    const answer = await this.#ask('PUT', `/projects/${segment(wanted.id)}`, sent);
    return { ...stored(answer), isNew: answer.status === 201 };
  }

  async rotateKey(id: string, overlapMs?: number, { revision }: Revision = {}): Promise<StoredProjectJson> {
    const body = overlapMs === undefined ? {} : { overlap: Math.ceil(overlapMs / 1_000) };
    return stored(await this.#ask('POST', `/projects/${segment(id)}/rotate-key`, { body, revision }));
  }

  async deleteProject(
    id: string,
    { revision, keepUsage }: Revision & { keepUsage: boolean },
  ): Promise<DeletedProject> {
    const path = `/projects/${segment(id)}${queryOf({ keepUsage })}`;
    return (await this.#ask('DELETE', path, { revision })).json as DeletedProject;
  }

  async listKeys(id: string): Promise<KeyJson[]> {
    return (await this.#ask('GET', `/projects/${segment(id)}/keys`)).json as KeyJson[];
  }

  async addKey(id: string, wanted: WantedKey, { revision }: Revision = {}): Promise<StoredKeyJson> {
    const sent = { body: wanted, revision };
    return storedKey(await this.#ask('POST', `/projects/${segment(id)}/keys`, sent));
  }

  async setKey(
    id: string,
    keyId: string,
    { changes: body, revision }: Revision & { changes: KeyChanges },
  ): Promise<StoredKeyJson> {
    return storedKey(await this.#ask('PATCH', keyPath(id, keyId), { body, revision }));
  }

  async removeKey(id: string, keyId: string, { revision }: Revision = {}): Promise<KeyJson> {
    return (await this.#ask('DELETE', keyPath(id, keyId), { revision })).json as KeyJson;
  }

  history(id: string, page?: SequencePage): Promise<RecordedChange[]> {
    return this.#list(`/projects/${segment(id)}/history`, page, ({ sequence }: RecordedChange) => sequence);
  }

  // ---- Usage ----

  async usageOf(id: string, hours: number): Promise<UsageByHour> {
    const { json } = await this.#ask('GET', `/projects/${segment(id)}/usage${queryOf({ hours })}`);
    return json as UsageByHour;
  }

  async usageOfAll(): Promise<Usage[]> {
    const projects = await this.listProjects();
    const all: Usage[] = [];
    for (let at = 0; at < projects.length; at += USAGES_TOGETHER) {
      const some = projects.slice(at, at + USAGES_TOGETHER);
      const usages = await Promise.all(some.map(({ id }) => this.usageOf(id, 0)));
      all.push(...usages.map(({ hours: _none, ...usage }) => usage));
    }
    return all;
  }

  // ---- Heartbeat tokens ----

  async createHeartbeat(): Promise<HeartbeatJson> {
    return (await this.#ask('POST', '/heartbeats', { body: {} })).json as HeartbeatJson;
  }

  async listHeartbeats(page?: NamePage): Promise<HeartbeatJson[]> {
    const tokens = await this.#list('/heartbeats', page, ({ token }: HeartbeatJson) => token);
    return page ? tokens : tokens.sort((one, other) => (one.createdAt < other.createdAt ? -1 : 1));
  }

  async deleteHeartbeat(token: string): Promise<void> {
    await this.#ask('DELETE', `/heartbeats/${segment(token)}`);
  }

  // ---- Dead letters ----

  listDeadLetters(page?: LetterPage): Promise<FiledDeadLetter[]> {
    return this.#list('/dead-letters', page, ({ sequence }: FiledDeadLetter) => sequence);
  }

  async findDeadLetter(id: string): Promise<FiledDeadLetter> {
    return (await this.getDeadLetter(id)).letter;
  }

  async getDeadLetter(id: string): Promise<DeadLetterDetail> {
    type Detail = FiledDeadLetter & { items?: unknown; bytes_base64?: string; bytes_gone?: string };
    const { json } = await this.#ask('GET', `/dead-letters/${segment(id)}`);
    const { items: _items, bytes_base64: base64 = '', bytes_gone: gone, ...letter } = json as Detail;
    return { letter, bytes: gone ?? Buffer.from(base64, 'base64') };
  }

  async replayDeadLetter({ id, sequence: revision }: FiledDeadLetter, waitMs = 0): Promise<Replayed> {
    const path = `/dead-letters/${segment(id)}/replay${queryOf({ wait: Math.ceil(waitMs / 1_000) })}`;
    const { id: _, ...replayed } = (await this.#ask('POST', path, { body: {}, revision }))
      .json as Replayed & {
      id: string;
    };
    return replayed;
  }

  async purgeDeadLetter({ id, sequence: revision }: FiledDeadLetter): Promise<void> {
    // A dead letter needs no purge if it was removed or filed anew since the caller read it.
    await this.#ask('DELETE', `/dead-letters/${segment(id)}`, { revision }).catch((error: unknown) => {
      const isGone = error instanceof OperationError && ['unknown', 'conflict'].includes(error.kind);
      if (!isGone) throw error;
    });
  }

  // ---- Tail and doctor ----

  async examine(): Promise<Finding[]> {
    return ((await this.#ask('GET', '/doctor')).json as { checks: Finding[] }).checks;
  }

  async tail(wanted: TailWanted, show: (sighting: Sighting) => void): Promise<Tail> {
    const stopping = new AbortController();
    const answer = await this.#send('GET', `/tail${queryOf(wanted)}`, { signal: stopping.signal });
    if (answer.headers.get('content-type') !== LINES_TYPE || !answer.body)
      throw new OperationError('failed', this.#noApi(answer.status));
    const lines = this.#readLines(answer.body, (line) => show(() => [JSON.parse(line) as Seen]));
    const ended = lines.catch((error: unknown) => {
      if (stopping.signal.aborted) return new Promise<never>(() => undefined);
      throw error;
    });
    return { ended, stop: () => stopping.abort() };
  }

  /**
   * Reads lines until the answer ends, which is a failure. Empty lines say that the API is alive.
   * @throws OperationError
   */
  async #readLines(body: ReadableStream<Uint8Array>, onLine: (line: string) => void): Promise<never> {
    let rest = '';
    let reason = '';
    try {
      for await (const text of body.pipeThrough(new TextDecoderStream())) {
        const lines = `${rest}${text}`.split('\n');
        rest = lines.pop() ?? '';
        for (const line of lines) if (line !== '') onLine(line);
      }
    } catch (error) {
      reason = `: ${reasonOf(error)}`;
    }
    throw new OperationError('unavailable', `${this.#url} ended its answer${reason}.`);
  }

  // ---- Requests ----

  /** Fetches one page, or without `page` all pages one after the other. */
  async #list<T>(path: string, page: Page | undefined, nameOf: (one: T) => string | number): Promise<T[]> {
    const all: T[] = [];
    const { limit = page ? undefined : PAGE, ...rest } = page ?? {};
    for (let after = page?.after; ; ) {
      const found = (await this.#ask('GET', `${path}${queryOf({ ...rest, limit, after })}`)).json as T[];
      all.push(...found);
      const last = found.at(-1);
      if (page || found.length < PAGE || last === undefined) return all;
      after = nameOf(last);
    }
  }

  /**
   * Asks the API, whose answer is JSON.
   * @throws OperationError or InvalidError with the message of the API
   */
  async #ask(method: string, path: string, sent: Sent = {}): Promise<Answer> {
    const answer = await this.#send(method, path, sent);
    return {
      status: answer.status,
      json: this.#parse(answer.status, await answer.text()),
      etag: answer.headers.get('etag'),
    };
  }

  /**
   * Sends a request to the API.
   * @throws OperationError or InvalidError with the message of the API
   */
  async #send(method: string, path: string, sent: Sent): Promise<Response> {
    const { body, revision, headers: own, ...rest } = sent;
    const headers = {
      ...own,
      ...(this.#token !== undefined && { Authorization: `Bearer ${this.#token}` }),
      ...(body && { 'Content-Type': 'application/json' }),
      ...(revision !== undefined && { 'If-Match': `"${revision}"` }),
    };
    const content = body && { body: JSON.stringify(body) };
    const init = { ...rest, method, headers, redirect: 'error', ...content } as const;
    const answer = await fetch(`${this.#url}/v1${path}`, init).catch((error: unknown) => {
      throw new OperationError('unavailable', `${this.#url} cannot be reached: ${reasonOf(error)}.`);
    });
    if (!answer.ok) throw this.#failure(answer.status, await answer.text());
    this.#isUrlGuessed = answer.headers.get('X-Sluice-Public-Url') === 'guessed';
    return answer;
  }

  /** @throws OperationError when the answer is no JSON, such as the login page of a proxy */
  #parse(status: number, text: string): unknown {
    try {
      return text === '' ? undefined : JSON.parse(text);
    } catch {
      throw new OperationError('failed', this.#noApi(status));
    }
  }

  #noApi(status: number): string {
    return `${this.#url} is no management API of sluice: it answered ${status}.`;
  }

  #failure(status: number, text: string): Error {
    const { detail, errors }: Problem = problemOf(text);
    if (status === 400 && errors) return new InvalidError(errors);
    const what = detail ?? this.#noApi(status);
    const remedy = status === 401 ? ' Set SLUICE_ADMIN_TOKEN to a token that the API knows.' : '';
    return new OperationError(KINDS[status] ?? 'failed', `${what}${remedy}`);
  }
}

function problemOf(text: string): Problem {
  try {
    return JSON.parse(text) as Problem;
  } catch {
    return {};
  }
}

const revisionOf = ({ etag }: Answer): number => Number(etag?.replaceAll('"', ''));
const stored = (answer: Answer): StoredProjectJson => ({
  project: answer.json as ProjectJson,
  revision: revisionOf(answer),
});
const storedKey = (answer: Answer): StoredKeyJson => ({
  key: answer.json as KeyJson,
  revision: revisionOf(answer),
});
