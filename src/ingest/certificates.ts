import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { gauge, type MetricsSnapshot } from '../lib/metrics/metrics.ts';
import { isSentinelUrl, sentinelUrls } from './limit/sentinel-url.ts';

const LOOK_EVERY_MS = 60_000;
const TLS_ANSWER_MS_MAX = 5_000;
const DEFAULT_PORT: Readonly<Record<string, number>> = { 'nats:': 4222, 'tls:': 4222, 'rediss:': 6379 };

type Address = { host: string; port: number };

/**
 * Waits for an event of the socket. Rejects on an error, when the socket closes, and when nothing
 * happens for TLS_ANSWER_MS_MAX.
 */
function once(socket: Socket, event: 'connect' | 'data' | 'secureConnect'): Promise<unknown> {
  return new Promise((resolve, reject) => {
    socket.once(event, resolve);
    socket.once('error', reject);
    socket.once('close', () => reject(new Error('closed')));
    socket.setTimeout(TLS_ANSWER_MS_MAX, () => socket.destroy(new Error('no answer')));
  });
}

/**
 * Returns whether nats-server requires or offers TLS. The first line that the server sends, before
 * any TLS handshake, says so.
 */
async function isTlsWanted(socket: Socket): Promise<boolean> {
  const line = String(await once(socket, 'data'));
  return /"tls_(required|available)":\s*true/.test(line);
}

/**
 * Does the TLS handshake and returns when the server's certificate ends (Unix seconds). An invalid
 * certificate is accepted here, because its end must be reported as well.
 */
async function validTo(socket: Socket, host: string): Promise<number> {
  const secured: TLSSocket = connectTls({
    socket,
    rejectUnauthorized: false,
    ...(!isIP(host) && { servername: host }),
  });
  await once(secured, 'secureConnect');
  return Date.parse(secured.getPeerCertificate().valid_to) / 1000;
}

/**
 * Returns when a server's certificate ends (Unix seconds); undefined for a server without TLS.
 * Rejects when the server cannot be asked.
 */
async function certificateEnd(protocol: string, { host, port }: Address): Promise<number | undefined> {
  const socket = connectTcp({ host, port });
  try {
    await once(socket, 'connect');
    if (protocol !== 'rediss:' && !(await isTlsWanted(socket))) return undefined;
    return await validTo(socket, host);
  } finally {
    socket.destroy();
  }
}

/**
 * Asks the NATS and Redis servers every LOOK_EVERY_MS for their certificates, and exposes as a
 * metric when these end. While a server does not answer, the metric keeps the end that was read
 * last.
 */
export class Certificates {
  readonly #urls: readonly URL[];
  /** Ends of the certificates (Unix seconds), by `host:port`. */
  readonly #ends = new Map<string, number>();
  readonly #timer: NodeJS.Timeout;

  constructor(urls: readonly string[]) {
    const servers = urls
      .flatMap((url) => (isSentinelUrl(url) ? sentinelUrls(url) : [url]))
      .map((url) => new URL(url));
    this.#urls = servers.filter(({ protocol }) => protocol in DEFAULT_PORT);
    this.#timer = setInterval(() => this.#lookAtAll(), LOOK_EVERY_MS).unref();
    this.#lookAtAll();
  }

  expose(): MetricsSnapshot[number] {
    return gauge(
      'sluice_certificate_expire_timestamp_seconds',
      "When the certificate of a server ends, by the server's address",
      [...this.#ends].map(([server, end]) => [{ server }, end] as const),
    );
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  #lookAtAll(): void {
    for (const url of this.#urls) this.#look(url).catch(() => undefined);
  }

  async #look({ protocol, hostname, port }: URL): Promise<void> {
    const host = hostname.replace(/^\[|\]$/g, '');
    const address = { host, port: Number(port) || (DEFAULT_PORT[protocol] as number) };
    const end = await certificateEnd(protocol, address);
    if (end !== undefined) this.#ends.set(`${hostname}:${address.port}`, end);
  }
}
