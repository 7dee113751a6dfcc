/** A client that asks one thing at a time over a connection that it keeps, and tells an answer from a reset. */
import { connect, type Socket } from 'node:net';
import { answerLength } from '../load/connection.ts';

/** `status` 0: no answer came, and `body` says what did. */
export type Reply = { status: number; body: string };
const HEAD_END = Buffer.from('\r\n\r\n');

export class Asking {
  readonly #port: number;
  #socket: Socket | undefined;
  #begun: Buffer = Buffer.alloc(0);
  #resolve: ((reply: Reply) => void) | undefined;
  /** Connections that were made so far. */
  connections = 0;

  constructor(port: number) {
    this.#port = port;
  }

  /** @param bytes a whole request */
  ask(bytes: Uint8Array): Promise<Reply> {
    this.#begun = Buffer.alloc(0);
    return new Promise((resolve) => {
      this.#resolve = resolve;
      this.#socket ??= this.#open();
      this.#socket.write(bytes);
    });
  }

  /** What comes in pieces: the head is sent by `ask`, the rest by this. @returns false when the connection is gone or asks for a pause */
  more(bytes: Uint8Array): boolean {
    return this.#socket?.write(bytes) ?? false;
  }

  /** Resolves when the kernel has taken everything that was written, or the connection is gone. */
  flushed(): Promise<void> {
    return new Promise((resolve) => {
      if (this.#socket) this.#socket.write('', () => resolve());
      else resolve();
    });
  }

  /** Leaves without waiting for an answer. */
  leave(): void {
    this.#resolve = undefined;
    this.#drop();
  }

  #open(): Socket {
    this.connections++;
    const socket = connect({ port: this.#port, host: '127.0.0.1', noDelay: true });
    socket.on('data', (data) => this.#hear(data));
    socket.on('error', (error) => this.#lost(socket, (error as NodeJS.ErrnoException).code ?? error.message));
    socket.on('close', () => this.#lost(socket, 'closed'));
    return socket;
  }

  #hear(data: Buffer): void {
    this.#begun = this.#begun.length === 0 ? data : Buffer.concat([this.#begun, data]);
    const length = answerLength(this.#begun);
    if (length === 0) return;
    const answer = this.#begun.subarray(0, length);
    const head = answer.toString('latin1', 0, answer.indexOf(HEAD_END));
    if (/\r\nconnection: close/i.test(head)) this.#drop();
    this.#settle({ status: Number(head.slice(9, 12)), body: answer.toString('utf8', head.length + 4) });
  }

  #lost(socket: Socket, reason: string): void {
    if (socket !== this.#socket) return;
    this.#drop();
    this.#settle({ status: 0, body: reason });
  }

  #settle(reply: Reply): void {
    const resolve = this.#resolve;
    this.#resolve = undefined;
    resolve?.(reply);
  }

  #drop(): void {
    const socket = this.#socket;
    this.#socket = undefined;
    socket?.destroy();
  }
}

/** A count for each kind of reply. */
export class Tally {
  readonly counts = new Map<string, number>();

  add(kind: string, count = 1): void {
    this.counts.set(kind, (this.counts.get(kind) ?? 0) + count);
  }
  of(kind: string): number {
    return this.counts.get(kind) ?? 0;
  }
  toString(): string {
    return [...this.counts]
      .sort(([, a], [, b]) => b - a)
      .map(([kind, count]) => `${count} ${kind}`)
      .join(' · ');
  }
}
