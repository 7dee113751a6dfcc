/**
 * One client connection that has at most one request under way.
 *
 * Node's http client takes five times the CPU that the server needs for an answer. So this class
 * writes prepared bytes, and reads only the status of an answer and where it ends. All received
 * bytes go to one buffer per connection (`onread`), so that they leave no garbage. The request is
 * put together in a scratch buffer of the connection, which nothing else changes until the answer
 * has come.
 */
import { connect as connectPlain, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { Drawn } from '../workload.ts';
import { stamp } from './body.ts';

export type Endpoint = { host: string; port: number; tls: boolean };
export type ConnectionEvents = {
  /**
   * Called when the answer is complete and the connection can send another request. The bytes of
   * `answer` are valid only during the call.
   */
  onAnswer(connection: Connection, status: number, answer: Buffer): void;
  /** Called when the connection broke or could not be made, or the answer was too late. */
  onFailure(connection: Connection, reason: string): void;
};

const RECEIVE_BYTES = 16 * 1024;
/**
 * Size of the receive buffer of a rare client. It is small because there may be thousands of such
 * clients. An answer has some hundred bytes.
 */
const RARE_RECEIVE_BYTES = 2 * 1024;
// These are bytes because each search would encode a string anew.
const HEAD_END = Buffer.from('\r\n\r\n');
const LENGTHS = [Buffer.from('Content-Length: '), Buffer.from('content-length: ')] as const;
const CLOSE = Buffer.from('onnection: close');
const CHUNKS_END = Buffer.from('\r\n0\r\n\r\n');
const NOTHING = Buffer.alloc(0);

/** Returns the length of the answer at the start of `bytes`; 0 while the answer is incomplete. */
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
  // The search goes backwards because Content-Length is among the last lines of most answers.
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
  /** First bytes of an answer that is incomplete yet. */
  #begun = NOTHING;
  #underWay = false;
  /**
   * When the request under way was due, on the clock of performance.now(). `sentAt` is when it was
   * sent.
   */
  intendedAt = 0;
  sentAt = 0;
  /**
   * The last digits of the id of the request under way. `isMinted` says whether the server makes
   * this id.
   */
  id = 0;
  isMinted = false;
  eventIdOf: Drawn['eventIdOf'];
  /** Stage and kind under which the request's latency is recorded. */
  stage = 0;
  kind = 0;
  /** Whether this is a rare client, one that sends seldom. Only the generator uses this. */
  readonly isRare: boolean;
  /** Index of the server that this connection goes to, among the servers that share the load. */
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

  /**
   * Sends a request.
   * @param count the last digits of its id, which make the id unique
   * @returns the bytes of the request
   */
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
    // A server may close a connection that is idle. Only a request without an answer is a failure.
    if (this.#underWay) this.#lost(reason);
    else this.#drop();
  }

  #lost(reason: string): void {
    this.#underWay = false;
    // The broken socket may hold the scratch buffer in its queue for a while, so the next request
    // gets a new one.
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
