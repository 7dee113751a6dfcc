/** Attacks with connections and with the shape of messages rather than with bodies. */
import { randomBytes } from 'node:crypto';
import { connect, type Socket } from 'node:net';
import { Tally } from './asking.ts';
import type { Siege } from './beside.ts';

const FLOOD_PER_SECOND = 2_000;
const SHAPES_PER_SECOND = 50;
const PIPELINED = 200;
const NOISE_BYTES = 64 * 1024;
/** A connection that is neither answered nor closed is given up after this: longer than any time-out of the worker for a head. */
const SILENT_MS = 15_000;
const TICK_MS = 10;

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Calls `act` so many times a second, in ticks, until `ms` have passed. */
async function paced(perSecond: number, ms: number, act: () => void): Promise<void> {
  const startedAt = performance.now();
  let done = 0;
  for (let now = startedAt; now < startedAt + ms; now = performance.now()) {
    for (const due = ((now - startedAt) * perSecond) / 1000; done < due; done++) act();
    await sleep(TICK_MS);
  }
}

/** The statuses that `bytes` are answered with, until the connection is closed or falls silent. */
function converse(port: number, bytes: Uint8Array): Promise<{ statuses: number[]; closed: boolean }> {
  return new Promise((resolve) => {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true });
    let text = '';
    let closed = true;
    const timer = setTimeout(() => {
      closed = false;
      socket.destroy();
    }, SILENT_MS);
    socket.on('data', (data) => {
      text += data.toString('latin1');
    });
    socket.on('error', () => undefined);
    socket.on('close', () => {
      clearTimeout(timer);
      resolve({
        statuses: [...text.matchAll(/HTTP\/1\.1 (\d{3})/g)].map(([, code]) => Number(code)),
        closed,
      });
    });
    socket.write(bytes);
  });
}

/** Thousands of connections that say nothing; those that the worker ends are made again. */
function idle(port: number, count: number): Siege {
  return {
    name: `${count} idle connections`,
    run: async (ms) => {
      const open = new Set<Socket>();
      let ended = 0;
      let stopped = false;
      const add = (): void => {
        const socket = connect({ port, host: '127.0.0.1' });
        open.add(socket);
        socket.on('error', () => undefined);
        socket.on('close', () => {
          open.delete(socket);
          if (stopped) return;
          ended++;
          add();
        });
        socket.resume();
      };
      for (let n = 0; n < count; n++) {
        add();
        if (n % 50 === 49) await sleep(5);
      }
      await sleep(ms);
      stopped = true;
      const left = open.size;
      for (const socket of open) socket.destroy();
      return { said: `${left} held, ${ended} ended by the worker`, refused: true };
    },
  };
}

/** Connections that are closed as soon as they are made: every other one with a reset, every third after half a request line. */
function connectAndClose(port: number): Siege {
  return {
    name: `connect and close, ${FLOOD_PER_SECOND}/s`,
    run: async (ms) => {
      let made = 0;
      await paced(FLOOD_PER_SECOND, ms, () => {
        const n = made++;
        const socket = connect({ port, host: '127.0.0.1' });
        socket.on('error', () => undefined);
        socket.once('connect', () => {
          if (n % 3 === 0) socket.write('POST /api/1/env');
          if (n % 2 === 0) socket.resetAndDestroy();
          else socket.destroy();
        });
      });
      return { said: `${made} connections`, refused: true };
    },
  };
}

type Shape = {
  name: string;
  perSecond: number;
  /** @param n counts up */
  make(n: number): Uint8Array;
  /** Statuses that are right; a connection that is closed without one is right too. */
  expected: readonly number[];
};

function shaped(port: number, { name, perSecond, make, expected }: Shape): Siege {
  return {
    name: `${name}, ${perSecond}/s`,
    run: async (ms) => {
      const tally = new Tally();
      const under: Promise<void>[] = [];
      let refused = true;
      await paced(perSecond, ms, () => {
        under.push(
          converse(port, make(under.length)).then(({ statuses, closed }) => {
            refused &&= closed && statuses.every((status) => expected.includes(status));
            for (const status of new Set(statuses)) tally.add(`${status}`);
            if (statuses.length === 0) tally.add(closed ? 'closed' : 'silent');
          }),
        );
      });
      await Promise.all(under);
      return { said: `${tally}`, refused };
    },
  };
}

const BODY = '{}\n{"type":"event"}\n{"a":1}'.slice(0, 25);
const SMUGGLED = 'GET /healthz HTTP/1.1\r\nHost: sluice\r\n\r\n';
const SMUGGLING = [
  ['Content-Length: 25', 'Content-Length: 25'],
  ['Content-Length: 25', 'Content-Length: 0'],
  ['Content-Length: 25, 25'],
  ['Content-Length: +25'],
  ['Content-Length: 25', 'Transfer-Encoding: chunked'],
  ['Transfer-Encoding: chunked', 'Transfer-Encoding: identity'],
  ['Transfer-Encoding: chunked, chunked'],
  ['Transfer-Encoding: chunkedx'],
] as const;
const fields = (count: number, chars: number): string[] =>
  Array.from({ length: count }, (_, n) => `X-${n}: ${'x'.repeat(chars)}`);
const GIANTS = [
  fields(64, 1),
  fields(101, 1),
  fields(17, 1024),
  fields(1, 17 * 1024),
  fields(1, 1024 * 1024),
];

const KEYLESS = [
  `${'A'.repeat(15_000)} y=1`,
  `${','.repeat(15_000)}=`,
  'sentry_key=,'.repeat(1_250),
  '='.repeat(15_000),
];

export type FloodOptions = {
  port: number;
  /** Of the project that is attacked. */
  path: string;
  idleCount: number;
};

export function floods({ port, path, idleCount }: FloodOptions): Siege[] {
  const message = (headers: readonly string[]): Buffer =>
    Buffer.from(`POST ${path} HTTP/1.1\r\nHost: sluice\r\n${headers.join('\r\n')}\r\n\r\n${BODY}${SMUGGLED}`);
  const unkeyed = `POST ${path.split('?')[0]} HTTP/1.1\r\nHost: sluice\r\nContent-Length: 25\r\n\r\n${BODY}`;
  // The last is refused in a way that ends the connection, so that nobody waits for a time-out.
  const pipeline = Buffer.concat([Buffer.from(unkeyed.repeat(PIPELINED)), message(SMUGGLING[0])]);
  const preflight = `OPTIONS ${path} HTTP/1.1\r\nHost: sluice\r\nOrigin: http://a\r\n\r\n`;
  const behindClosing = ['Connection: x, close', 'Connection: close'].flatMap((closing) =>
    [unkeyed, preflight].map((request) => {
      const closes = request.replace('Host: sluice', `Host: sluice\r\n${closing}`);
      return Buffer.concat([Buffer.from(closes + request.repeat(PIPELINED)), message(SMUGGLING[0])]);
    }),
  );
  const keyless = KEYLESS.map((auth) =>
    Buffer.concat([
      Buffer.from(unkeyed.replace('Content-Length', `X-Sentry-Auth: ${auth}\r\nContent-Length`)),
      message(SMUGGLING[0]),
    ]),
  );
  const noise = Array.from({ length: 16 }, () => randomBytes(NOISE_BYTES));
  const shapes: Shape[] = [
    {
      name: `${PIPELINED} requests at once`,
      perSecond: SHAPES_PER_SECOND / 5,
      make: () => pipeline,
      expected: [400, 401],
    },
    {
      name: `${PIPELINED} requests at once behind one that closes`,
      perSecond: SHAPES_PER_SECOND,
      make: (n) => behindClosing[n % behindClosing.length] as Buffer,
      expected: [204, 401],
    },
    {
      name: 'two messages that look like one',
      perSecond: SHAPES_PER_SECOND,
      make: (n) => message(SMUGGLING[n % SMUGGLING.length] as readonly string[]),
      expected: [400],
    },
    {
      name: 'giant heads',
      perSecond: SHAPES_PER_SECOND,
      make: (n) => message(['Content-Length: 25', ...(GIANTS[n % GIANTS.length] as string[])]),
      expected: [400, 431],
    },
    {
      name: 'auth headers of 15 KB without a key',
      perSecond: SHAPES_PER_SECOND,
      make: (n) => keyless[n % keyless.length] as Buffer,
      expected: [400, 401],
    },
    {
      name: 'random bytes',
      perSecond: SHAPES_PER_SECOND,
      make: (n) => noise[n % noise.length] as Buffer,
      expected: [400, 404, 405, 431, 505],
    },
  ];
  return [idle(port, idleCount), connectAndClose(port), ...shapes.map((shape) => shaped(port, shape))];
}
