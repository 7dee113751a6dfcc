/** The speed of light of HTTP: a bare uWebSockets.js handler that reads the body and answers. No check, no queue, one header. */
import uWS from 'uWebSockets.js';

/** `cap`: it answers so many requests a second, evenly; the others wait in line. */
export type UwsOptions = { port: number; cap?: number };

const BODY = '{"id":"00000000000000000000000000000000"}';
const TICK_MS = 1;

/** Serves until the process ends. */
export function serveUws({ port, cap }: UwsOptions): Promise<{ port: number }> {
  const line = cap === undefined ? undefined : new Line(cap);
  const app = uWS.App().post('/*', (res) => {
    let bytes = 0;
    let isOpen = true;
    res.onAborted(() => {
      isOpen = false;
    });
    const answer = (): void => {
      if (isOpen) res.cork(() => res.writeHeader('X-Bytes', `${bytes}`).end(BODY));
    };
    res.onData((chunk, isLast) => {
      bytes += chunk.byteLength;
      if (!isLast) return;
      if (line) line.add(answer);
      else answer();
    });
  });
  return new Promise((resolve, reject) => {
    app.listen('127.0.0.1', port, (socket) =>
      socket ? resolve({ port }) : reject(new Error(`cannot listen on ${port}`)),
    );
  });
}

/** Answers that are due one after another. */
class Line {
  readonly #apartMs: number;
  #waiting: (readonly [at: number, answer: () => void])[] = [];
  #lastAt = 0;

  constructor(perSec: number) {
    this.#apartMs = 1000 / perSec;
    setInterval(() => this.#tick(), TICK_MS);
  }

  add(answer: () => void): void {
    // Moments are planned, so that a late tick takes none away.
    this.#lastAt = Math.max(performance.now(), this.#lastAt + this.#apartMs);
    this.#waiting.push([this.#lastAt, answer]);
  }

  #tick(): void {
    const now = performance.now();
    const later = this.#waiting.findIndex(([at]) => at > now);
    const due = later < 0 ? this.#waiting : this.#waiting.slice(0, later);
    this.#waiting = later < 0 ? [] : this.#waiting.slice(later);
    for (const [, answer] of due) answer();
  }
}
