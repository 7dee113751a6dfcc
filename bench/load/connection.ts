/**
 * One client connection that has at most one request under way.
 *
 * Node's http client costs five times what the answer to be measured costs, so this writes prepared bytes and reads just enough of
 * an answer to know its status and its end. Received bytes stay in one buffer per connection (`onread`): no stream, no garbage.
 * The request is put together in a scratch buffer of the connection, which nobody else touches until the answer is there.
 */
import { connect as connectPlain, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { Drawn } from '../workload.ts';
import { stamp } from './body.ts';

export type Endpoint = { host: string; port: number; tls: boolean };
export type ConnectionEvents = {
  /** The answer is complete; the connection takes another request. The bytes of `answer` are only valid during the call. */
  onAnswer(connection: Connection, status: number, answer: Buffer): void;
  /** No answer: the connection broke, could not be made, or was too late. */
  onFailure(connection: Connection, reason: string): void;
};

const RECEIVE_BYTES = 16 * 1024;
/** There are thousands of rare clients; an answer has some hundred bytes. */
const RARE_RECEIVE_BYTES = 2 * 1024;
// As bytes: a text would be encoded anew by every search.
const HEAD_END = Buffer.from('\r\n\r\n');
const LENGTHS = [Buffer.from('Content-Length: '), Buffer.from('content-length: ')] as const;
const CLOSE = Buffer.from('onnection: close');
const CHUNKS_END = Buffer.from('\r\n0\r\n\r\n');
const NOTHING = Buffer.alloc(0);

/** Bytes of the answer at the start of `bytes`, or 0 while it is not all there. */
export function answerLength(bytes: Buffer): number {
  const headEnd = bytes.indexOf(HEAD_END);
  if (headEnd < 0) return 0;
  const bodyAt = headEnd + 4;
  const length = contentLength(bytes, headEnd);
  if (length >= 0) return bytes.length >= bodyAt + length ? bodyAt + length : 0;
  if (!/\r\ntransfer-encoding: *chunked/i.test(bytes.toString('latin1', 0, headEnd))) return bodyAt;
  if (bytes.indexOf('0\r\n\r\n', bodyAt) === bodyAt) return bodyAt + 5;
  const end = bytes.indexOf(CHUNKS_END, bodyAt);
  return end < 0 ? 0 : end + CHUNKS_END.length;
}

function contentLength(bytes: Buffer, headEnd: number): number {
  // Backwards: it is among the last lines of most answers.
  let at = bytes.lastIndexOf(LENGTHS[0], headEnd);
  if (at < 0) at = bytes.lastIndexOf(LENGTHS[1], headEnd);
  if (at < 0) {
    const found = /\r\ncontent-length:[ \t]*(\d+)/i.exec(bytes.toString('latin1', 0, headEnd));
    return found ? Number(found[1]) : -1;
  }
  let length = 0;
  for (let i = at + 16; i < headEnd; i++) {
    const digit = (bytes[i] as number) - 0x30;
    if (digit < 0 || digit > 9) break;
    length = length * 10 + digit;
  }
  return length;
}

const statusOf = (bytes: Buffer): number =>
  ((bytes[9] as number) - 48) * 100 + ((bytes[10] as number) - 48) * 10 + (bytes[11] as number) - 48;

export class Connection {
  readonly #endpoint: Endpoint;
  readonly #keepAlive: boolean;
  readonly #events: ConnectionEvents;
  readonly #receive: Buffer;
  #scratch: Buffer;
  #socket: Socket | undefined;
  /** The start of an answer whose end has not come. */
  #begun = NOTHING;
  #underWay = false;
  /** Of the request under way, on the clock of performance.now(). */
  intendedAt = 0;
  sentAt = 0;
  /** Of the request under way: its id's last digits, and whether the server makes its id. */
  id = 0;
  isMinted = false;
  eventIdOf: Drawn['eventIdOf'];
  /** Where its latency belongs. */
  stage = 0;
  kind = 0;
  /** A client that sends seldom; the generator's mark. */
  readonly isRare: boolean;
  /** Place of its server among those that share the load. */
  readonly host: number;

  constructor(options: {
    endpoint: Endpoint;
    keepAlive: boolean;
    events: ConnectionEvents;
    requestBytes: number;
    isRare?: boolean;
    host?: number;
  }) {
    this.#endpoint = options.endpoint;
    this.#keepAlive = options.keepAlive;
    this.#events = options.events;
    this.#scratch = Buffer.allocUnsafeSlow(options.requestBytes);
    this.isRare = options.isRare ?? false;
    this.host = options.host ?? 0;
    this.#receive = Buffer.allocUnsafeSlow(this.isRare ? RARE_RECEIVE_BYTES : RECEIVE_BYTES);
  }

  get underWay(): boolean {
    return this.#underWay;
  }

  /** @param count makes the event id of this request unique */
  send({ lines, body, kind, eventIdOf }: Drawn, count: number): number {
    this.#underWay = true;
    this.id = count;
    this.kind = kind;
    this.isMinted = body.digitsAt.length === 0 || eventIdOf !== undefined;
    this.eventIdOf = eventIdOf;
    const length = lines.length + body.bytes.length;
    if (length > this.#scratch.length) this.#scratch = Buffer.allocUnsafeSlow(length);
    const scratch = this.#scratch;
    lines.copy(scratch, 0);
    body.bytes.copy(scratch, lines.length);
    stamp(scratch, lines.length, { body, count });
    this.#socket ??= this.#open();
    this.#socket.write(scratch.subarray(0, length));
    return length;
  }

  /** Gives up on the request under way. */
  abandon(reason: string): void {
    this.#lost(reason);
  }

  close(): void {
    this.#underWay = false;
    this.#drop();
  }

  #open(): Socket {
    const { host, port, tls } = this.#endpoint;
    const onread = { buffer: this.#receive, callback: (length: number) => this.#onBytes(length, socket) };
    const socket: Socket = tls
      ? connectTls({ host, port, servername: host, ...({ onread } as object) })
      : connectPlain({ host, port, noDelay: true, onread });
    socket.on('error', (error) =>
      this.#onLost(socket, (error as NodeJS.ErrnoException).code ?? error.message),
    );
    socket.on('close', () => this.#onLost(socket, 'closed'));
    return socket;
  }

  #onLost(socket: Socket, reason: string): void {
    if (socket !== this.#socket) return;
    // A server may close a connection that rests; only a request without an answer is a failure.
    if (this.#underWay) this.#lost(reason);
    else this.#drop();
  }

  #lost(reason: string): void {
    this.#underWay = false;
    // A broken connection may still hold the old scratch in its queue.
    this.#scratch = Buffer.allocUnsafeSlow(this.#scratch.length);
    this.#drop();
    this.#events.onFailure(this, reason);
  }

  #drop(): void {
    const socket = this.#socket;
    this.#socket = undefined;
    this.#begun = NOTHING;
    socket?.destroy();
  }

  #onBytes(length: number, socket: Socket): boolean {
    if (socket !== this.#socket || !this.#underWay) return true;
    let bytes = this.#receive.subarray(0, length);
    if (this.#begun.length > 0) bytes = Buffer.concat([this.#begun, bytes]);
    if (answerLength(bytes) === 0) this.#begun = Buffer.from(bytes);
    else this.#answered(bytes);
    return true;
  }

  #answered(bytes: Buffer): void {
    this.#begun = NOTHING;
    this.#underWay = false;
    const status = statusOf(bytes);
    if (!this.#keepAlive || bytes.indexOf(CLOSE) >= 0) this.#drop();
    this.#events.onAnswer(this, status, bytes);
  }
}
