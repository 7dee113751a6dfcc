/** A proxy that stands before sluice in the tests of clients: it hands on what comes, notes the answers, and may lose some. */
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** A request that was handed on. `status` 0: sluice could not be reached, and the connection was cut, as a proxy of TCP would. */
export type Passed = { at: number; path: string; encoding?: string; body: Buffer; status: number };

export class Forwarder {
  readonly #server: Server;
  readonly #onPassed: (passed: Passed) => void;
  /** How many of the next answers are lost: the client's connection is cut in place of each. */
  answersToLose = 0;

  private constructor(target: number, onPassed: (passed: Passed) => void) {
    this.#onPassed = onPassed;
    this.#server = createServer((req, res) => {
      const parts: Buffer[] = [];
      req.on('data', (part: Buffer) => parts.push(part));
      req.on('end', () => this.#handOn(target, req, { body: Buffer.concat(parts), res }));
    });
  }

  #handOn(target: number, req: IncomingMessage, { body, res }: { body: Buffer; res: ServerResponse }): void {
    const { url: path = '', method } = req;
    const at = performance.now();
    const note = (status = 0): void =>
      this.#onPassed({ at, path, encoding: req.headers['content-encoding'], body, status });
    const { 'transfer-encoding': _, connection: __, ...sent } = req.headers;
    const headers = { ...sent, 'content-length': body.length };
    request({ host: '127.0.0.1', port: target, method, path, headers, agent: false }, (answer) => {
      const { connection: ___, 'keep-alive': ____, ...told } = answer.headers;
      note(answer.statusCode);
      if (this.answersToLose > 0) {
        this.answersToLose--;
        answer.resume();
        res.socket?.destroy();
        return;
      }
      res.writeHead(answer.statusCode ?? 0, told);
      answer.pipe(res);
    })
      .on('error', () => {
        note();
        res.socket?.destroy();
      })
      .end(body);
  }

  /** Starts a forwarder on a free port of loopback. */
  static async before(port: number, onPassed: (passed: Passed) => void): Promise<Forwarder> {
    const forwarder = new Forwarder(port, onPassed);
    await new Promise<void>((resolve) => forwarder.#server.listen(0, '127.0.0.1', resolve));
    return forwarder;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}
