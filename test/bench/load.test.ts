import { createServer, type Server, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { answerLength } from '../../bench/load/connection.ts';
import { runLoad } from '../../bench/load/options.ts';
import { violations } from '../../bench/load/result.ts';
import { parseLoadCommand, UsageError } from '../../bench/load-command.ts';
import { CANONICAL_MIX, parseMix, Workload } from '../../bench/workload.ts';

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';
const servers: Server[] = [];
const sockets = new Set<Socket>();

/** Answers every request of a body with Content-Length as `answer` says. */
function serve(answer: (socket: Socket, nth: number) => void): Promise<string> {
  let nth = 0;
  const server = createServer((socket) => {
    sockets.add(socket);
    let text = '';
    socket.on('error', () => undefined);
    socket.on('data', (data) => {
      text += data.toString('latin1');
      const headEnd = text.indexOf('\r\n\r\n');
      const length = Number(/content-length: (\d+)/i.exec(text)?.[1]);
      if (headEnd < 0 || text.length < headEnd + 4 + length) return;
      text = '';
      answer(socket, nth++);
    });
  });
  servers.push(server);
  return new Promise((resolve) =>
    server.listen(0, '127.0.0.1', () =>
      resolve(`http://127.0.0.1:${(server.address() as { port: number }).port}`),
    ),
  );
}

afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  sockets.clear();
  await Promise.all(servers.splice(0).map((server) => new Promise((resolve) => server.close(resolve))));
});

const options = (url: string) => ({
  url,
  targets: [{ id: '1', key: 'k' }],
  mix: { log: 1 },
  encoding: 'gzip' as const,
  connections: 4,
  warmupMs: 0,
  durationMs: 400,
  seed: 1,
});

describe('the load generator', () => {
  it('counts every answer and, in a closed loop, never waits', async () => {
    let answered = 0;
    const url = await serve((socket) => {
      answered++;
      socket.write(OK);
    });
    const result = await runLoad(options(url));
    expect(result.expectedInAll).toBe(answered);
    expect(result.failed).toBe(0);
    expect(result.statuses).toEqual({ 200: result.requests });
    expect(violations(result, {})).toEqual([]);
    expect(violations(result, { minRate: 1e9 })).toHaveLength(1);
  });

  it('charges a stall of the server to every request that it delayed', async () => {
    // Nothing is answered for 200 ms from the first request on; 100/s are due, so about 20 of 40 wait, 100 ms on average.
    let held: Socket[] | undefined = [];
    const url = await serve((socket, nth) => {
      if (nth === 0)
        setTimeout(() => {
          for (const one of held ?? []) one.write(OK);
          held = undefined;
        }, 200);
      if (held) held.push(socket);
      else socket.write(OK);
    });
    const result = await runLoad({ ...options(url), rate: 100, connections: 1 });
    expect(result.requests).toBe(40);
    expect(result.latencyMs.max).toBeGreaterThan(190);
    // A generator that waits with its clock stopped would see one slow request in forty.
    expect(result.latencyMs.points.find(([percentile]) => percentile === 75)?.[1]).toBeGreaterThan(50);
  });

  it('reports statuses that were not expected, and resets', async () => {
    const url = await serve((socket, nth) => {
      if (nth % 2 === 0) socket.write('HTTP/1.1 503 No\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n');
      else socket.resetAndDestroy();
    });
    const result = await runLoad(options(url));
    expect(Object.keys(result.failures).sort()).toEqual(['ECONNRESET', 'status 503']);
    expect(violations(result, {})[0]).toMatch(/requests failed/);
  });

  it('opens a connection for each request when told to', async () => {
    const url = await serve((socket) => socket.end(OK));
    const result = await runLoad({ ...options(url), keepAlive: false, rate: 50 });
    expect(result.failed).toBe(0);
    expect(sockets.size).toBe(result.expectedInAll);
  });
});

describe('an answer', () => {
  it.each([
    ['with a length', OK],
    ['with another spelling of it', 'HTTP/1.1 200 OK\r\nX: 1\r\ncOntent-length:2\r\n\r\nok'],
    ['in chunks', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n'],
    ['without a body', 'HTTP/1.1 204 No Content\r\nX: 1\r\n\r\n'],
  ])('%s ends where it ends and not before', (_name, text) => {
    const headEnd = text.indexOf('\r\n\r\n') + 4;
    for (let cut = 0; cut < text.length; cut++)
      if (text.startsWith('HTTP/1.1 200') || cut < headEnd)
        expect(answerLength(Buffer.from(text.slice(0, cut)))).toBe(0);
    expect(answerLength(Buffer.from(text))).toBe(text.length);
  });
});

describe('a workload', () => {
  const base = {
    seed: 3,
    mix: CANONICAL_MIX,
    encoding: 'sdk',
    targets: [{ id: '1', key: 'k' }],
    host: 'h',
    keepAlive: true,
  } as const;

  it('is the same for the same seed and another for another', () => {
    const [a, b, c] = [3, 3, 4].map((seed) => new Workload({ ...base, seed }));
    expect(a?.checksum).toBe(b?.checksum);
    expect(a?.checksum).not.toBe(c?.checksum);
    const drawn = (workload: Workload | undefined) =>
      Array.from({ length: 50 }, () => workload?.draw().body.bytes.length);
    expect(drawn(a)).toEqual(drawn(b));
  });

  it('gives the first project the most and every project some', () => {
    const targets = Array.from({ length: 10 }, (_, at) => ({ id: `${at + 1}`, key: 'k' }));
    const workload = new Workload({ ...base, targets });
    const counts = new Map<string, number>();
    for (let i = 0; i < 5_000; i++) {
      const id = /api\/(\d+)\//.exec(workload.draw().lines.toString())?.[1] ?? '';
      counts.set(id, (counts.get(id) ?? 0) + 1);
    }
    expect(counts.size).toBe(10);
    expect(counts.get('1')).toBeGreaterThan(3 * (counts.get('10') ?? 0));
  });

  it('is mixed as the command line says', () => {
    expect(parseMix('event=80,replay=20')).toEqual({ event: 80, replay: 20 });
    expect(() => parseMix('nonsense')).toThrow(/--mix/);
  });
});

describe('the load command', () => {
  it('reads a DSN', () => {
    const { load, thresholds } = parseLoadCommand([
      '--dsn',
      'http://abc@h:81/42',
      '--rate',
      '5',
      '--max-p99',
      '20',
      '--no-keep-alive',
    ]);
    expect(load).toMatchObject({
      url: 'http://h:81',
      targets: [{ id: '42', key: 'abc' }],
      rate: 5,
      keepAlive: false,
    });
    expect(thresholds.maxP99Ms).toBe(20);
  });

  it.each([
    [[]],
    [['--dsn', 'http://h/1']],
    [['--dsn', 'http://k@h/1', '--rate', 'fast']],
    [['--dsn', 'http://k@h/1', '--encoding', 'rot13']],
    [['--unknown']],
  ])('refuses %j', (args) => {
    expect(() => parseLoadCommand(args)).toThrow(UsageError);
  });
});
