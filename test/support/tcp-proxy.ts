/** A TCP proxy on the loopback interface that spoils the way between two programs: late, slow, in slivers, swallowed, or cut. */
import { connect, createServer, type Server, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';

/** What the bytes suffer, in both directions. Without any field they pass as they came. */
export type Weather = {
  /** Each piece arrives so much later. */
  latencyMs?: number;
  /** Per connection and direction. */
  bytesPerSec?: number;
  /** Bytes of the largest piece that is written at once. */
  sliceBytes?: number;
  /** Nothing passes, not even the end of a connection; what came meanwhile passes later. */
  blackhole?: boolean;
};

/** Bytes of one direction that wait here before the sender is paused. */
const WAITING_BYTES_MAX = 1024 * 1024;
const LOOK_MS = 10;

type Piece = { bytes: Buffer; at: number };

/** One direction of one connection. */
class Lane {
  readonly #from: Socket;
  readonly #to: Socket;
  readonly #weather: () => Weather;
  #waiting: Piece[] = [];
  #bytes = 0;
  #running = false;
  #ended = false;

  constructor(from: Socket, to: Socket, weather: () => Weather) {
    this.#from = from;
    this.#to = to;
    this.#weather = weather;
    from.on('data', (bytes: Buffer) => {
      this.#waiting.push({ bytes, at: performance.now() });
      this.#bytes += bytes.length;
      if (this.#bytes > WAITING_BYTES_MAX) from.pause();
      this.#run();
    });
    from.once('end', () => {
      this.#ended = true;
      this.#run();
    });
  }

  #run(): void {
    if (this.#running) return;
    this.#running = true;
    void this.#carry().finally(() => {
      this.#running = false;
    });
  }

  async #carry(): Promise<void> {
    while (this.#waiting.length > 0 || this.#ended) {
      while (this.#weather().blackhole && !this.#to.destroyed) await pause(LOOK_MS);
      if (this.#to.destroyed) return;
      const piece = this.#waiting.shift();
      if (!piece) {
        this.#to.end();
        return;
      }
      const late = piece.at + (this.#weather().latencyMs ?? 0) - performance.now();
      if (late > 0) await pause(late);
      await this.#write(piece.bytes);
      this.#bytes -= piece.bytes.length;
      if (this.#bytes <= WAITING_BYTES_MAX) this.#from.resume();
    }
  }

  async #write(bytes: Buffer): Promise<void> {
    for (let at = 0; at < bytes.length && !this.#to.destroyed; ) {
      const { sliceBytes, bytesPerSec, blackhole } = this.#weather();
      if (blackhole) {
        await pause(LOOK_MS);
        continue;
      }
      const most = bytesPerSec ? Math.max(1, Math.ceil(bytesPerSec / 100)) : bytes.length;
      const piece = bytes.subarray(at, at + Math.min(sliceBytes ?? bytes.length, most));
      this.#to.write(piece);
      at += piece.length;
      if (bytesPerSec) await pause((piece.length / bytesPerSec) * 1000);
      else if (at < bytes.length) await new Promise((resolve) => setImmediate(resolve));
    }
  }
}

export class TcpProxy {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #weather: Weather = {};
  /** Number of connections that clients have made so far. */
  joined = 0;
  readonly port: number;

  private constructor(server: Server, port: number) {
    this.#server = server;
    this.port = port;
  }

  static async start(targetPort: number): Promise<TcpProxy> {
    let proxy: TcpProxy | undefined;
    const server = createServer({ noDelay: true, allowHalfOpen: true }, (client) =>
      proxy?.join(client, targetPort),
    );
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const address = server.address();
    if (!address || typeof address !== 'object') throw new Error('the proxy has no port');
    proxy = new TcpProxy(server, address.port);
    return proxy;
  }

  set weather(weather: Weather) {
    this.#weather = weather;
  }

  /** Both ends of every connection get a reset. */
  reset(): void {
    for (const socket of this.#sockets) socket.resetAndDestroy();
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  /** For the server's callback. */
  join(client: Socket, targetPort: number): void {
    this.joined++;
    const target = connect({ port: targetPort, host: '127.0.0.1', noDelay: true, allowHalfOpen: true });
    const ends = [client, target] as const;
    for (const socket of ends) {
      this.#sockets.add(socket);
      socket.on('error', () => undefined);
      // A reset passes in any weather: nobody may be left holding half a connection when the other end is gone.
      socket.once('close', () => {
        this.#sockets.delete(socket);
        for (const end of ends) if (!end.destroyed && socket.errored) end.resetAndDestroy();
      });
    }
    new Lane(client, target, () => this.#weather);
    new Lane(target, client, () => this.#weather);
  }
}
