/** The speed of light of HTTP: a bare uWebSockets.js handler that reads the body and answers. No check, no queue, one header. */
import uWS from 'uWebSockets.js';

export type UwsOptions = { port: number };

/** Serves until the process ends. */
export function serveUws({ port }: UwsOptions): Promise<{ port: number }> {
  const body = '{"id":"00000000000000000000000000000000"}';
  const app = uWS.App().post('/*', (res) => {
    let bytes = 0;
    res.onAborted(() => undefined);
    res.onData((chunk, isLast) => {
      bytes += chunk.byteLength;
      if (isLast) res.cork(() => res.writeHeader('X-Bytes', `${bytes}`).end(body));
    });
  });
  return new Promise((resolve, reject) => {
    app.listen('127.0.0.1', port, (socket) =>
      socket ? resolve({ port }) : reject(new Error(`cannot listen on ${port}`)),
    );
  });
}
