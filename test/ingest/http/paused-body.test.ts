/** What a client sees on a real connection while its upload is paused. Only the clock is in the hands of the test. */

import uWS from 'uWebSockets.js';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { REFUSALS } from '../../../src/ingest/http/answers/outcome.ts';
import { type BodyReader, Exchange } from '../../../src/ingest/http/exchange.ts';
import { OpenExchanges } from '../../../src/ingest/http/open-exchanges.ts';
import { BODY_MS_MAX, BODY_PAUSED_MS_MAX, BODY_RATE_BYTES_PER_SEC } from '../../../src/limits.ts';
import { RawConnection } from '../../support/raw-http.ts';
import { lastingPort } from '../../support/servers.ts';

const BODY_BYTES = 5_000_000;
const HEAD = `POST / HTTP/1.1\r\nHost: sluice\r\nContent-Length: ${BODY_BYTES}\r\n\r\n`;
const STORED = { status: '200 OK', headers: '', body: '{"id":"1"}' };

let now = 0;
let exchanges: OpenExchanges;
let app: uWS.TemplatedApp;
let port = 0;
/** The one request that is under way. */
let exchange: Exchange;
let bytes = 0;
let gone: string | undefined;

const reader: BodyReader = {
  feed: (chunk) => {
    bytes += chunk.length;
  },
  end: () => exchange.answer(STORED),
  overdue: () => exchange.answer(REFUSALS.overloaded),
  inTinyPieces: () => exchange.answer(REFUSALS.invalid),
  gone: (why) => {
    gone = why;
  },
};

beforeEach(async () => {
  [now, bytes, gone] = [0, 0, undefined];
  exchanges = new OpenExchanges({ monotonic: () => now });
  app = uWS.App().post('/*', (res) => {
    exchange = new Exchange(res, exchanges, { closeMode: 'no', isEmpty: false, requestId: '' });
    exchange.read(reader);
    exchange.setPaused(true);
  });
  port = await lastingPort();
  await new Promise<void>((resolve, reject) => {
    app.listen('127.0.0.1', port, (socket) => (socket ? resolve() : reject(new Error('cannot listen'))));
  });
});
afterEach(() => app.close());

/** A client that sends all it has as fast as it can, to a server that has paused its socket. */
async function pausedUpload(): Promise<RawConnection> {
  const client = await RawConnection.open(port);
  client.send(HEAD);
  await expect.poll(() => exchanges.reading.length).toBe(1);
  client.send(Buffer.alloc(BODY_BYTES));
  return client;
}

/** Once a second, as the server does. */
function pass(ms: number): void {
  for (const end = now + ms; now < end; ) {
    now += 1_000;
    exchanges.sweep();
  }
}

describe('an upload that is paused', () => {
  it('is stored once it is let go, although it took far longer than a body may', async () => {
    const client = await pausedUpload();
    pass(BODY_PAUSED_MS_MAX);
    expect([bytes, client.closed, client.answers]).toEqual([0, false, []]);
    exchange.setPaused(false);
    expect((await client.receive())[0]).toMatchObject({ status: 200 });
    expect([bytes, gone]).toEqual([BODY_BYTES, undefined]);
    client.close();
  });

  it('is answered 503 after too long, whole and with its Retry-After, and the connection goes on', async () => {
    const client = await pausedUpload();
    pass(BODY_PAUSED_MS_MAX + 1_000);
    const [answer] = await client.receive();
    expect([answer?.status, answer?.headers.get('retry-after'), client.closed]).toEqual([503, '5', false]);
    client.send(HEAD);
    await expect.poll(() => exchanges.reading.length).toBe(1);
    expect(gone).toBeUndefined();
    client.close();
  });

  it('is cut when, once let go, it uses up its own time', async () => {
    const client = await RawConnection.open(port);
    client.send(HEAD);
    await expect.poll(() => exchanges.reading.length).toBe(1);
    pass(BODY_PAUSED_MS_MAX);
    exchange.setPaused(false);
    for (let sent = 0; sent < (BODY_MS_MAX / 1000) * BODY_RATE_BYTES_PER_SEC; ) {
      sent += BODY_RATE_BYTES_PER_SEC;
      client.send(Buffer.alloc(BODY_RATE_BYTES_PER_SEC));
      await expect.poll(() => bytes).toBe(sent);
      pass(1_000);
    }
    expect(gone).toBeUndefined();
    pass(1_000);
    expect(gone).toBe('too_slow');
    await expect.poll(() => client.closed).toBe(true);
  });
});
