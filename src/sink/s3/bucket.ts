import { createHash } from 'node:crypto';
import * as http from 'node:http';
import * as https from 'node:https';
import { buffer } from 'node:stream/consumers';
import { AwsClient } from 'aws4fetch';
import { S3_PART_BYTES, S3_REQUEST_MS_MAX } from '../../limits.ts';
import { UnavailableError } from '../unavailable.ts';
import type { S3Address } from './address.ts';

/** Thrown when the store answers with an error. */
export class S3Error extends Error {
  override name = 'S3Error';
  readonly status: number;
  readonly code: string;

  constructor(status: number, text: string) {
    const code = tag(text, 'Code') ?? `${status}`;
    super(`${code}: ${tag(text, 'Message') ?? 'no reason given'}`);
    this.status = status;
    this.code = code;
  }
}

/**
 * Whether a write failed because its condition does not hold, or because another write of the same
 * key is under way. A store may answer CompleteMultipartUpload with status 200 and one of these
 * error codes in the body.
 */
const isConditionFailed = (error: unknown): boolean =>
  error instanceof S3Error &&
  (error.status === 412 || ['PreconditionFailed', 'ConditionalRequestConflict'].includes(error.code));

const ENTITIES: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" };
const unescaped = (text: string): string =>
  text.replace(/&(?:#(\d+)|(\w+));/g, (whole, number?: string, name = '') =>
    number ? String.fromCodePoint(Number(number)) : (ENTITIES[name] ?? whole),
  );
function tag(xml: string, name: string): string | undefined {
  const [, value] = new RegExp(`<${name}>([^<]*)</${name}>`).exec(xml) ?? [];
  return value === undefined ? undefined : unescaped(value);
}

/**
 * When a store refuses a request because of its time of signing, the request is sent once more if
 * we were wrong about the store's clock by more than this.
 */
const CLOCK_STEP_MS_MIN = 60_000;
/** Returns a time like `20260102T030405Z`. */
const datetime = (ms: number): string => new Date(ms).toISOString().replace(/[:-]|\.\d{3}/g, '');

const encodedKey = (key: string): string => key.split('/').map(encodeURIComponent).join('/');

type Request = {
  query?: Record<string, string>;
  /** The body, in pieces that follow one another. */
  pieces?: readonly Uint8Array[];
  headers?: Record<string, string>;
};
type Answer = { status: number; body: Buffer; headers: http.IncomingHttpHeaders };
export type StoredObject = { key: string; bytes: number };
/** Headers of a conditional write: `if-none-match: *`, or `if-match` with an ETag. */
export type Condition = Readonly<Record<string, string>>;
export const IS_NEW: Condition = { 'if-none-match': '*' };

/**
 * A bucket, with the few requests of S3 that the sink needs. Every body is signed with its hash, so
 * that the store accepts only the bytes that we sent. A request is repeated only when the store
 * refused it because of our clock.
 */
export class Bucket {
  readonly #url: string;
  readonly #client: AwsClient;
  /**
   * How far the store's clock is ahead of ours, ms. A store refuses requests whose time of signing
   * is more than 15 minutes off its own clock.
   */
  #aheadMs = 0;

  constructor({ bucketUrl, region, accessKeyId, secretAccessKey, sessionToken }: S3Address) {
    this.#url = bucketUrl;
    this.#client = new AwsClient({
      accessKeyId,
      secretAccessKey,
      region,
      service: 's3',
      retries: 0,
      ...(sessionToken && { sessionToken }),
    });
  }

  /**
   * Stores the object. A large object is stored in parts, and no reader sees only some of them.
   * @param pieces of the object, which follow one another
   * @returns false when the condition does not hold, or while another write of the key is under
   * way; the other write may still fail
   * @throws UnavailableError
   */
  async put(key: string, pieces: readonly Uint8Array[], condition: Condition): Promise<boolean> {
    const bytes = pieces.reduce((sum, { length }) => sum + length, 0);
    try {
      if (bytes > 2 * S3_PART_BYTES) await this.#putInParts(key, pieces, condition);
      else await this.#ask('PUT', key, { pieces, headers: condition });
      return true;
    } catch (error) {
      if (isConditionFailed((error as Error).cause)) return false;
      throw error;
    }
  }

  /**
   * Reads an object and its ETag.
   * @returns undefined when there is no such object
   * @throws UnavailableError
   */
  async get(key: string): Promise<{ text: string; etag: string } | undefined> {
    try {
      const { body, headers } = await this.#ask('GET', key);
      return { text: `${body}`, etag: headers.etag ?? '' };
    } catch (error) {
      const { cause } = error as Error;
      if (cause instanceof S3Error && cause.status === 404) return undefined;
      throw error;
    }
  }

  /**
   * Whether the object exists.
   * @throws UnavailableError
   */
  async has(key: string): Promise<boolean> {
    return (await this.list(key, 1)).some((object) => object.key === key);
  }

  /**
   * Reads an object that exists.
   * @throws UnavailableError
   */
  async read(key: string): Promise<Buffer> {
    return (await this.#ask('GET', key)).body;
  }

  /**
   * Returns the names of the folders right below the prefix.
   * @throws UnavailableError
   */
  async folders(prefix: string): Promise<string[]> {
    const found: string[] = [];
    let next: string | undefined;
    do {
      const query = {
        'list-type': '2',
        prefix,
        delimiter: '/',
        ...(next && { 'continuation-token': next }),
      };
      const text = `${(await this.#ask('GET', '', { query })).body}`;
      for (const [, inside = ''] of text.matchAll(/<CommonPrefixes>(.*?)<\/CommonPrefixes>/gs))
        found.push((tag(inside, 'Prefix') ?? '').slice(prefix.length, -1));
      next = tag(text, 'IsTruncated') === 'true' ? tag(text, 'NextContinuationToken') : undefined;
    } while (next);
    return found;
  }

  /**
   * Lists the objects below the prefix, and stops when it has `max` of them.
   * @throws UnavailableError
   */
  async list(prefix: string, max = Number.POSITIVE_INFINITY): Promise<StoredObject[]> {
    const found: StoredObject[] = [];
    let next: string | undefined;
    do {
      const query = {
        'list-type': '2',
        prefix,
        ...(max < 1000 && { 'max-keys': `${max}` }),
        ...(next && { 'continuation-token': next }),
      };
      const text = `${(await this.#ask('GET', '', { query })).body}`;
      for (const [, inside = ''] of text.matchAll(/<Contents>(.*?)<\/Contents>/gs))
        found.push({ key: tag(inside, 'Key') ?? '', bytes: Number(tag(inside, 'Size')) });
      next = tag(text, 'IsTruncated') === 'true' ? tag(text, 'NextContinuationToken') : undefined;
    } while (next && found.length < max);
    return found;
  }

  /**
   * Returns the store's time, Unix milliseconds; undefined when the store does not tell it.
   * @throws UnavailableError
   */
  async date(prefix: string): Promise<number | undefined> {
    const query = { 'list-type': '2', prefix, 'max-keys': '1' };
    const { headers } = await this.#ask('GET', '', { query });
    const date = Date.parse(headers.date ?? '');
    return Number.isNaN(date) ? undefined : date;
  }

  async #putInParts(key: string, pieces: readonly Uint8Array[], condition: Condition): Promise<void> {
    const { body: begun } = await this.#ask('POST', key, { query: { uploads: '' } });
    const uploadId = tag(`${begun}`, 'UploadId') ?? '';
    try {
      const etags: string[] = [];
      for (const part of partsOf(pieces)) {
        const query = { partNumber: `${etags.length + 1}`, uploadId };
        const { headers } = await this.#ask('PUT', key, { query, pieces: part });
        etags.push(headers.etag ?? '');
      }
      const parts = etags.map(
        (etag, at) => `<Part><PartNumber>${at + 1}</PartNumber><ETag>${etag}</ETag></Part>`,
      );
      const list = Buffer.from(`<CompleteMultipartUpload>${parts.join('')}</CompleteMultipartUpload>`);
      const request = { query: { uploadId }, pieces: [list], headers: condition };
      const answer = await this.#ask('POST', key, request);
      // An answer with status 200 may hold an error: S3 may begin its answer before it knows
      // whether the upload succeeded.
      if (answer.body.includes('<Error>')) throw outage(new S3Error(200, `${answer.body}`));
    } catch (error) {
      // The parts of an upload cost money until the upload is ended.
      await this.#ask('DELETE', key, { query: { uploadId } }).catch(() => undefined);
      throw error;
    }
  }

  /**
   * Sends one request.
   * @throws UnavailableError, whose cause is an S3Error if the store answered
   */
  async #ask(
    method: string,
    key: string,
    { query = {}, pieces = [], headers = {} }: Request = {},
  ): Promise<Answer> {
    const search = new URLSearchParams(query).toString().replaceAll('+', '%20');
    const url = `${this.#url}${key === '' ? '' : `/${encodedKey(key)}`}${search === '' ? '' : `?${search}`}`;
    const hash = createHash('sha256');
    for (const piece of pieces) hash.update(piece);
    const toSign = {
      method,
      headers: { ...headers, 'x-amz-content-sha256': hash.digest('hex') },
      aws: { datetime: datetime(Date.now() + this.#aheadMs) },
    };
    let answer: Answer;
    try {
      answer = await exchange(await this.#client.sign(url, toSign), pieces);
    } catch (error) {
      const { message, cause } = error as Error;
      const why = cause instanceof Error ? cause.message : message;
      throw new UnavailableError(`s3: ${why}`, { cause: error });
    }
    if (answer.status < 300) return answer;
    const refused = new S3Error(answer.status, `${answer.body}`);
    if (refused.code === 'RequestTimeTooSkewed' && this.#learnsClock(answer.headers.date))
      return this.#ask(method, key, { query, pieces, headers });
    throw outage(refused);
  }

  /**
   * Learns how far the store's clock is ahead of ours.
   * @returns false when we knew the difference to within CLOCK_STEP_MS_MIN, or the store's time
   * cannot be read
   */
  #learnsClock(date = ''): boolean {
    const aheadMs = Date.parse(date) - Date.now();
    const isNew = Math.abs(aheadMs - this.#aheadMs) > CLOCK_STEP_MS_MIN;
    if (isNew) this.#aheadMs = aheadMs;
    return isNew;
  }
}

/** Sends a request. fetch would take only one buffer as the body, and copy it. */
function exchange(
  { method, url, headers }: globalThis.Request,
  pieces: readonly Uint8Array[],
): Promise<Answer> {
  const { request } = url.startsWith('https:') ? https : http;
  const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
  const options = {
    method,
    headers: { ...Object.fromEntries(headers), ...(length > 0 && { 'content-length': length }) },
    signal: AbortSignal.timeout(S3_REQUEST_MS_MAX),
  };
  return new Promise((resolve, reject) => {
    const asked = request(url, options, (answer) => {
      const { statusCode: status = 0, headers } = answer;
      buffer(answer).then((body) => resolve({ status, body, headers }), reject);
    });
    asked.on('error', reject);
    for (const piece of pieces) asked.write(piece);
    asked.end();
  });
}

const outage = (error: S3Error): UnavailableError =>
  new UnavailableError(`s3: ${error.message}`, { cause: error });

/** Yields the bytes of the pieces in parts of S3_PART_BYTES. */
function* partsOf(pieces: readonly Uint8Array[]): Generator<Uint8Array[]> {
  let part: Uint8Array[] = [];
  let bytes = 0;
  for (const piece of pieces)
    for (let at = 0; at < piece.length; ) {
      const some = piece.subarray(at, at + S3_PART_BYTES - bytes);
      part.push(some);
      bytes += some.length;
      at += some.length;
      if (bytes < S3_PART_BYTES) continue;
      yield part;
      part = [];
      bytes = 0;
    }
  if (bytes > 0) yield part;
}
