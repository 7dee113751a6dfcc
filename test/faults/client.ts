/** One client on one raw keep-alive socket: it sends, hears (or does not hear) the answer, and tells the ledger. */
import { connect, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import type { Told } from './ledger.ts';

/** Far beyond the server's own 2 s: what comes later than this never comes. */
const ANSWER_MS_MAX = 15_000;
const RECONNECT_MS = 50;

export type Shot = {
  told: Omit<Told, 'sentAt' | 'answeredAt' | 'status' | 'admitted' | 'limiterAway' | 'silence'>;
  request: Buffer;
};

export type Answer = { status: number; head: string };

/** There was no answer, and why. */
export type Silence = { silence: string };

export type ClientOptions = {
  port: number;
  next(port: number): Shot;
  record(told: Told): void;
  /** Could not even connect. */
  unreachable(port: number, at: number): void;
  /** Between an answer and the next request. */
  thinkMs(): number;
};

const headerOf = (head: string, name: string): string | undefined =>
  new RegExp(`^${name}: *(.*?)\\r?$`, 'im').exec(head)?.[1];

/**
 * Of the head of a 429: whether the limiter was away, which tells nothing of the usage and a reset a minute from the answer. A window that was full
 * says so only in the second in which it was filled.
 * @param sentSec Unix seconds, rounded up
 */
export function saysAway(head: string, sentSec: number): boolean {
  const reset = Number(headerOf(head, 'X-RateLimit-Reset') ?? 0);
  return reset >= sentSec + 60 && headerOf(head, 'X-Service-Usage') === undefined;
}

export class Client {
  readonly #options: ClientOptions;
  #socket: Socket | undefined;
  #stopped = false;
  #text = '';
  /** Of the request that is under way. */
  #settle: ((heard: Answer | Silence) => void) | undefined;
  #connectedAt = 0;
  /** On this connection. */
  #answers = 0;
  #waitsSince: number | undefined;

  constructor(options: ClientOptions) {
    this.#options = options;
  }

  get port(): number {
    return this.#options.port;
  }

  /** Milliseconds for which the request that is under way has had no answer; 0 when none is. */
  waits(now: number): number {
    return this.#waitsSince === undefined ? 0 : now - this.#waitsSince;
  }

  /** Sends one request after the other until stop(). */
  async run(): Promise<void> {
    while (!this.#stopped) {
      const socket = this.#socket ?? (await this.#connect());
      if (socket) await this.#shoot(socket);
      else await pause(RECONNECT_MS);
      const thinkMs = this.#options.thinkMs();
      if (thinkMs > 0) await pause(thinkMs);
    }
    this.#socket?.destroy();
  }

  /** The request that is under way is waited for. */
  stop(): void {
    this.#stopped = true;
  }

  async #shoot(socket: Socket): Promise<void> {
    const { told, request } = this.#options.next(this.#options.port);
    const sentAt = performance.now();
    const sentSec = Math.ceil(Date.now() / 1000);
    this.#waitsSince = sentAt;
    const heard = await this.#exchange(socket, request);
    this.#waitsSince = undefined;
    const answeredAt = performance.now();
    const { status, head } = 'silence' in heard ? { status: 0, head: '' } : heard;
    const usage = headerOf(head, 'X-Service-Usage');
    this.#options.record({
      ...told,
      sentAt,
      answeredAt,
      status,
      admitted: status !== 0 && status !== 429 && headerOf(head, 'X-RateLimit-Remaining') !== undefined,
      limiterAway: status === 429 && saysAway(head, sentSec),
      position: usage === undefined ? undefined : Number.parseInt(usage, 10),
      ...('silence' in heard && { silence: this.#circumstances(heard, sentAt) }),
    });
    this.#answers++;
    if (status === 0 || /^connection: *close/im.test(head)) this.#drop();
  }

  #circumstances({ silence }: Silence, sentAt: number): string {
    const ms = (from: number, to: number): string => `${(to - from).toFixed(1)} ms`;
    const life = `request ${this.#answers + 1} of its connection, sent ${ms(this.#connectedAt, sentAt)} after it was made`;
    return `${silence} after ${ms(sentAt, performance.now())}, ${life}`;
  }

  #drop(): void {
    this.#socket?.destroy();
    this.#socket = undefined;
  }

  #exchange(socket: Socket, request: Buffer): Promise<Answer | Silence> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => this.#settle?.({ silence: 'nothing came' }), ANSWER_MS_MAX);
      this.#settle = (heard) => {
        clearTimeout(timer);
        this.#settle = undefined;
        this.#text = '';
        resolve(heard);
      };
      socket.write(request);
    });
  }

  #hear(data: Buffer): void {
    this.#text += data.toString('latin1');
    const end = this.#text.indexOf('\r\n\r\n');
    if (end < 0) return;
    const head = this.#text.slice(0, end);
    if (this.#text.length < end + 4 + Number(headerOf(head, 'Content-Length') ?? 0)) return;
    this.#settle?.({ status: Number(head.slice(9, 12)), head });
  }

  #connect(): Promise<Socket | undefined> {
    const { port, unreachable } = this.#options;
    const at = performance.now();
    return new Promise((resolve) => {
      const socket = connect({ port, host: '127.0.0.1', noDelay: true });
      socket.on('data', (data) => this.#hear(data));
      socket.once('connect', () => {
        this.#socket = socket;
        this.#connectedAt = performance.now();
        this.#answers = 0;
        connected = true;
        resolve(socket);
      });
      let connected = false;
      const gone = (how: string): void => {
        if (!connected) unreachable(port, at);
        resolve(undefined);
        if (this.#socket !== socket) return;
        this.#drop();
        this.#settle?.({ silence: how });
      };
      socket.on('error', (error: NodeJS.ErrnoException) => gone(error.code ?? error.message));
      socket.on('end', () => gone('the end of the connection'));
      socket.on('close', () => gone('a closed connection'));
    });
  }
}
