/** HTTP by hand: what is sent is exactly what the test says, and a reset is told from an answer. */
import { connect, type Socket } from 'node:net';

export type RawAnswer = { status: number; headers: Map<string, string>; body: string };

/** Parses every complete answer that has a Content-Length or no body. */
function parse(text: string): RawAnswer[] {
  const answers: RawAnswer[] = [];
  for (let rest = text; rest.length > 0; ) {
    const end = rest.indexOf('\r\n\r\n');
    if (end < 0) break;
    const [statusLine = '', ...lines] = rest.slice(0, end).split('\r\n');
    const headers = new Map(
      lines.map((line) => {
        const colon = line.indexOf(':');
        return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
      }),
    );
    const length = Number(headers.get('content-length') ?? 0);
    if (rest.length < end + 4 + length) break;
    const status = Number(statusLine.split(' ')[1]);
    if (status !== 100) answers.push({ status, headers, body: rest.slice(end + 4, end + 4 + length) });
    rest = rest.slice(end + 4 + length);
  }
  return answers;
}

export class RawConnection {
  readonly socket: Socket;
  #text = '';
  /** Set when the peer reset instead of closing. */
  error: Error | undefined;
  closed = false;

  private constructor(socket: Socket) {
    this.socket = socket;
    socket.on('data', (data) => {
      this.#text += data.toString('latin1');
    });
    socket.on('error', (error) => {
      this.error = error;
    });
    socket.on('close', () => {
      this.closed = true;
    });
  }

  static open(port: number): Promise<RawConnection> {
    return new Promise((resolve, reject) => {
      const socket = connect(port, '127.0.0.1');
      socket.once('error', reject);
      socket.once('connect', () => {
        socket.off('error', reject);
        resolve(new RawConnection(socket));
      });
    });
  }

  send(bytes: string | Uint8Array): void {
    this.socket.write(bytes);
  }

  /** Everything that came, as latin1. */
  get text(): string {
    return this.#text;
  }

  get answers(): RawAnswer[] {
    return parse(this.#text);
  }

  /** The first `count` answers; fails with what came instead. */
  async receive(count = 1, ms = 15_000): Promise<RawAnswer[]> {
    for (
      const end = Date.now() + ms;
      Date.now() < end;
      await new Promise((resolve) => setTimeout(resolve, 10))
    ) {
      const answers = this.answers;
      if (answers.length >= count) return answers;
      if (this.closed) break;
    }
    throw new Error(
      `no ${count} answers: ${this.error?.message ?? ''} ${JSON.stringify(this.#text.slice(0, 500))}`,
    );
  }

  close(): void {
    this.socket.destroy();
  }
}

/** One request on a connection of its own. */
export async function rawRequest(port: number, bytes: string | Uint8Array): Promise<RawAnswer> {
  const connection = await RawConnection.open(port);
  try {
    connection.send(bytes);
    return (await connection.receive())[0] as RawAnswer;
  } finally {
    connection.close();
  }
}
