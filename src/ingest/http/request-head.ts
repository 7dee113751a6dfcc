import { REQUEST_HEADER_BYTES_MAX, REQUEST_HEADERS_MAX, URL_BYTES_MAX } from '../../limits.ts';
import { isRequestId } from './answers/outcome.ts';
import type { CloseMode } from './exchange.ts';

/**
 * The part of a uWebSockets.js request that a head needs. Such a request may only be read in the
 * turn of the event loop in which its head arrived.
 */
export interface RawHead {
  forEach(each: (lowerCaseName: string, value: string) => void): void;
  getHeader(lowerCaseName: string): string;
  /** The path without the query. */
  getUrl(): string;
  /** The query without the question mark; undefined when the URL has none. */
  getQuery(): string | undefined;
  getParameter(index: number): string | undefined;
}

/**
 * Name of an SDK that reuses connections which the server has closed as idle. So answers to this
 * SDK say `Connection: close`.
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
 * Headers that most requests need. A missing header is ''. When a header is sent several times,
 * the first value that is not empty counts.
 */
export type KnownHeaders = ReturnType<typeof noHeaders>;

/**
 * The head of a request. All headers are read in one walk, because each look-up by name would be a
 * call into the native code of uWebSockets.js. The walk also notes what makes a head odd, how the
 * connection ends, and the request's id.
 */
export class RequestHead {
  /** Values of the known headers. They remain valid after the turn in which the head arrived. */
  readonly headers: KnownHeaders = noHeaders();
  oddLength = false;
  oddEncoding = false;
  /**
   * Whether there is more than one Host line. A proxy in front may have routed the request by
   * another line than sluice reads.
   */
  oddHost = false;
  /**
   * Whether Expect has a value that uWebSockets.js does not understand. The client of such a
   * request might wait for ever for a reply.
   */
  oddExpectation = false;
  readonly tooBig: boolean;
  closeMode: CloseMode = 'no';
  /** Whether the Content-Length is 0. */
  isEmpty = false;
  /** The query without its question mark; '' when there is none. */
  readonly query: string;
  requestId = '';
  readonly #raw: RawHead;
  readonly #parameter: string | undefined;
  #lengths = 0;
  #connections = 0;
  #hosts = 0;

  /** @param parameter the parameter in the path, when sluice itself matched the path to a route */
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

  /**
   * Whether the request is refused for its head: the end of the message cannot be trusted or may
   * never come, there is more than one Host, or the head is too large.
   */
  get isOdd(): boolean {
    return this.oddLength || this.oddEncoding || this.oddHost || this.oddExpectation || this.tooBig;
  }

  /** Says in a sentence why the head is odd. */
  get oddness(): string {
    if (this.oddLength) return 'the Content-Length is not one number';
    if (this.oddEncoding) return 'the Transfer-Encoding is not chunked';
    if (this.oddHost) return 'there is more than one Host';
    return this.tooBig ? 'the head is too large' : 'Expect must be written 100-continue';
  }

  /**
   * Returns a header other than the known ones; '' when absent. Call it only in the turn in which
   * the head arrived.
   */
  getHeader(lowerCaseName: string): string {
    return this.#raw.getHeader(lowerCaseName);
  }

  /**
   * Returns all lines of a header, in order, joined with commas. Call it only in the turn in which
   * the head arrived.
   */
  getList(lowerCaseName: string): string {
    const lines: string[] = [];
    this.#raw.forEach((name, value) => {
      if (name === lowerCaseName) lines.push(value);
    });
    return lines.join(',');
  }

  /** Returns a parameter of the route. Call it only in the turn in which the head arrived. */
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
        // uWebSockets.js recognises `close` by the length of the first Connection header. It then
        // ends the connection without telling the client.
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
