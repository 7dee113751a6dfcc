import type { ExchangeHead, ResponseSocket } from '../../../src/ingest/http/exchange.ts';
import { RequestHead } from '../../../src/ingest/http/request-head.ts';

/** A head as uWebSockets.js hands it on; its headers in order, of which a name may come again. */
export const headOf = (
  headers: Record<string, string> | [name: string, value: string][],
  query = '',
  url = '/api/1/envelope',
): RequestHead => {
  const lines = Array.isArray(headers) ? headers : Object.entries(headers);
  return new RequestHead({
    forEach: (each) => lines.forEach(([name, value]) => each(name, value)),
    getHeader: (asked) => lines.find(([name]) => name === asked)?.[1] ?? '',
    getUrl: () => url,
    getQuery: () => query,
    getParameter: () => '1',
  });
};

export const PLAIN_HEAD: ExchangeHead = { closeMode: 'no', isEmpty: false, requestId: '' };

/** A socket in the hands of the test: what comes in is what the test says, what goes out is written down. */
export class Line implements ResponseSocket {
  readonly said: string[] = [];
  /** Of the answer: lines of headers, and the body. */
  headers: string[] = [];
  body = '';
  #hasStatus = false;
  data: (chunk: ArrayBuffer, isLast: boolean) => void = () => undefined;
  abort: () => void = () => undefined;
  onAborted(handler: () => void): void {
    this.abort = handler;
  }
  onData(handler: (chunk: ArrayBuffer, isLast: boolean) => void): void {
    this.data = handler;
  }
  cork(callback: () => void): void {
    callback();
  }
  writeStatus(status: string): void {
    this.#hasStatus = true;
    this.said.push(status.slice(0, 3));
  }
  writeHeader(name: string, value: string): void {
    if (!this.#hasStatus) this.writeStatus('200 OK'); // as the library does
    this.headers.push(...`${name}: ${value}`.split('\r\n'));
  }
  end(body: string, close?: boolean): void {
    this.body = body;
    this.said.push(close ? 'end and close' : 'end');
  }
  endWithoutBody(length?: number, close?: boolean): void {
    if (length !== undefined) this.headers.push(`Content-Length: ${length}`);
    this.said.push(close ? 'end and close' : 'end');
  }
  getRemoteAddressAsText(): ArrayBuffer {
    return new TextEncoder().encode('127.0.0.1').buffer;
  }
  pause(): void {
    this.said.push('pause');
  }
  resume(): void {
    this.said.push('resume');
  }
  close(): void {
    this.said.push('close');
    this.abort();
  }
}
