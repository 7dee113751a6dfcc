import { REQUEST_HEADER_BYTES_MAX, REQUEST_HEADERS_MAX, URL_BYTES_MAX } from '../../limits.ts';
import { isRequestId } from './answers/outcome.ts';
import type { CloseMode } from './exchange.ts';

/**
 * The part of a uWebSockets.js request that a head needs. The request is dead after the turn of the
 * head.
 */
export interface RawHead {
  forEach(each: (lowerCaseName: string, value: string) => void): void;
  getHeader(lowerCaseName: string): string;
  /** The path alone. */
  getUrl(): string;
  /** Without the question mark; undefined when the URL has none. */
  getQuery(): string | undefined;
  getParameter(index: number): string | undefined;
}

/**
 * This SDK reuses connections that the server has closed as idle, so its answers say `Connection:
 * close`.
 */
const REUSES_CLOSED = 'sentry.rust';
const CLOSE_OPTION = /(?:^|,)\s*close\s*(?:,|$)/i;

const noHeaders = () => ({
  'content-length': '',
  'content-encoding': '',
  'user-agent': '',
  origin: '',
  referer: '',
  'x-service-auth': '',
  'x-compat-auth': '',
  'x-sentry-auth': '',
  authorization: '',
});
/**
 * The headers that most requests are asked for; '' when absent, of several the first with a value.
 */
export type KnownHeaders = ReturnType<typeof noHeaders>;

/**
 * The head of a request, read in one walk over its headers: to look one up by its name costs a
 * crossing into uWebSockets.js. The walk also finds what can hide a second message or exhaust
 * memory, whether the connection ends with the answer, and the name that the request has already.
 */
export class RequestHead {
  /** Lives on after the turn of the head. */
  readonly headers: KnownHeaders = noHeaders();
  oddLength = false;
  oddEncoding = false;
  /** More than one Host: whoever is in front may have gone by the other. */
  oddHost = false;
  /** An expectation that the library does not know: the client may wait for ever. */
  oddExpectation = false;
  readonly tooBig: boolean;
  closeMode: CloseMode = 'no';
  /** Its Content-Length is 0. */
  isEmpty = false;
  /** Without its question mark, '' when there is none. */
  readonly query: string;
  requestId = '';
  readonly #raw: RawHead;
  readonly #parameter: string | undefined;
  #lengths = 0;
  #connections = 0;
  #hosts = 0;

  /** @param parameter that of a path which the library does not know as one of ours */
  constructor(raw: RawHead, parameter?: string) {
    this.#raw = raw;
    this.#parameter = parameter;
    let bytes = 0;
    let count = 0;
    raw.forEach((name, value) => {
      bytes += name.length + value.length + 4;
      count++;
      this.#note(name, value);
    });
    this.query = raw.getQuery() ?? '';
    if (this.query.includes(REUSES_CLOSED)) this.#closeByUs();
    const { length } = this.query;
    this.tooBig =
      Math.max(bytes, length) > REQUEST_HEADER_BYTES_MAX ||
      count > REQUEST_HEADERS_MAX ||
      raw.getUrl().length > URL_BYTES_MAX;
  }

  /** The end of its message cannot be trusted or never comes, or the head is too big. */
  get isOdd(): boolean {
    return this.oddLength || this.oddEncoding || this.oddHost || this.oddExpectation || this.tooBig;
  }

  /** The head's oddness, in a sentence. */
  get oddness(): string {
    if (this.oddLength) return 'the Content-Length is not one number';
    if (this.oddEncoding) return 'the Transfer-Encoding is not chunked';
    if (this.oddHost) return 'there is more than one Host';
    return this.tooBig ? 'the head is too large' : 'Expect must be written 100-continue';
  }

  /** Any other header than the known ones, '' when absent. In the turn of the head. */
  getHeader(lowerCaseName: string): string {
    return this.#raw.getHeader(lowerCaseName);
  }

  /** All lines of a header as one list, in their order. In the turn of the head. */
  getList(lowerCaseName: string): string {
    const lines: string[] = [];
    this.#raw.forEach((name, value) => {
      if (name === lowerCaseName) lines.push(value);
    });
    return lines.join(',');
  }

  /** In the turn of the head. */
  getParameter(index: number): string {
    return this.#parameter ?? this.#raw.getParameter(index) ?? '';
  }

  #note(name: string, value: string): void {
    const { headers } = this;
    switch (name) {
      case 'content-length':
        headers[name] ||= value;
        this.isEmpty = Number(value) === 0;
        this.oddLength ||= ++this.#lengths > 1 || !/^(0|[1-9]\d*)$/.test(value);
        break;
      case 'transfer-encoding':
        this.oddEncoding ||= value.toLowerCase() !== 'chunked';
        break;
      case 'host':
        this.oddHost = ++this.#hosts > 1;
        break;
      case 'expect':
        this.oddExpectation ||= value !== '' && value !== '100-continue';
        break;
      case 'connection':
        // uWebSockets.js knows `close` by the length of the first such header, and ends the
        // connection then without saying so.
        if (this.#connections++ === 0 && value.length === 5) this.closeMode = 'by the library';
        else if (CLOSE_OPTION.test(value)) this.#closeByUs();
        break;
      case 'user-agent':
      case 'x-service-auth':
      case 'x-compat-auth':
      case 'x-sentry-auth':
      case 'authorization':
        headers[name] ||= value;
        if (value.includes(REUSES_CLOSED)) this.#closeByUs();
        break;
      case 'x-request-id':
        if (isRequestId(value)) this.requestId = value;
        break;
      case 'content-encoding':
      case 'origin':
      case 'referer':
        headers[name] ||= value;
    }
  }

  #closeByUs(): void {
    if (this.closeMode === 'no') this.closeMode = 'by us';
  }
}
