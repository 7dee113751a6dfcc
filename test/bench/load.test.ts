import { createServer, type Server, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { answerLength } from '../../bench/load/connection.ts';
import { joinSteps, mergeParallel } from '../../bench/load/merge.ts';
import {
  generatorOf,
  type LoadHooks,
  type LoadOptions,
  runLoad,
  workloadOf,
} from '../../bench/load/options.ts';
import { findKnee } from '../../bench/load/pace/knee.ts';
import { segmentsOf } from '../../bench/load/pace/pace.ts';
import { decodeHistogram } from '../../bench/load/recording.ts';
import type { LoadResult } from '../../bench/load/result.ts';
import { loadText } from '../../bench/load/show/text.ts';
import { violations } from '../../bench/load/thresholds.ts';
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

const REFUSED = 'HTTP/1.1 429 No\r\nContent-Length: 0\r\n\r\n';
const runWith = (load: LoadOptions, hooks: LoadHooks) => generatorOf(load, workloadOf(load), hooks).run();

describe('the figures', () => {
  it('are not improved by refusals, however many and quick', async () => {
    const url = await serve((socket, nth) => {
      if (nth % 10 !== 0) socket.write(REFUSED);
      else setTimeout(() => socket.write(OK), 60);
    });
    const result = await runLoad({ ...options(url), rate: 200, connections: 40, expected: [200, 429] });
    expect(result.failed).toBe(0);
    expect(result.latencyMs.count).toBe(result.statuses[200]);
    expect(result.latencyMs.p50).toBeGreaterThanOrEqual(59);
    expect(result.byStatus['429']?.count).toBe(result.statuses[429]);
    expect(result.byStatus['429']?.p50).toBeLessThan(result.latencyMs.p50 ?? 0);
  });

  it('have a request without an answer at the time for which it was waited', async () => {
    const url = await serve((socket, nth) => {
      if (nth !== 1) socket.write(OK);
    });
    const result = await runLoad({ ...options(url), rate: 50, timeoutMs: 300 });
    expect(result.failures).toEqual({ 'no answer within 0.3 s': 1 });
    expect(result.latencyMs.count).toBe(20);
    expect(result.latencyMs.max).toBeGreaterThanOrEqual(300);
    expect(result.byStatus['time-out']?.count).toBe(1);
  });

  it('have what was never sent, because a server that hangs held every connection', async () => {
    const url = await serve(() => undefined);
    const result = await runLoad({ ...options(url), rate: 100, connections: 2, timeoutMs: 400 });
    expect(result.requests).toBe(0);
    expect(result.failed).toBe(40);
    expect(result.latencyMs.count).toBe(40);
    expect(Object.keys(result.failures)).toContain('never sent: every connection was busy until the end');
    expect(violations(result, { maxFailures: 40, maxP99Ms: 100 })).toEqual([
      'no request was answered',
      expect.stringMatching(/^p99 is /),
    ]);
  });

  it('tell a p99 of nothing as missed', async () => {
    const url = await serve((socket) => socket.write(REFUSED));
    const result = await runLoad({ ...options(url), expected: [200, 429] });
    expect(violations(result, { maxP99Ms: 10_000 })).toEqual(['no request was accepted, so it has no p99']);
  });
});

describe('a plan of stages', () => {
  it('leaves out the last request of a warm-up, also where rounding puts it at the very end', async () => {
    const url = await serve((socket) => socket.write(OK));
    // 560/s for 50 ms are 28.000000000000004 requests, so a 29th one is due after 50 ms.
    const result = await runLoad({ ...options(url), rate: 560, warmupMs: 50, durationMs: 200 });
    expect(result.failed).toBe(0);
    expect(result.stages[0]?.requests).toBe(result.requests);
    expect(result.expectedInAll).toBe(result.requests + 29);
  });

  it('is kept to the request, and each stage has its own figures', async () => {
    const url = await serve((socket) => socket.write(OK));
    const stages = [
      { forMs: 200, rate: 200 },
      { forMs: 0, rate: 500 },
      { forMs: 100, rate: 500 },
    ];
    const result = await runLoad({ ...options(url), segments: segmentsOf(stages, 0), warmupMs: 50 });
    expect(result.stages.map(({ name, ok }) => [name, ok])).toEqual([
      ['0 → 200/s', 20],
      ['500/s', 50],
    ]);
    expect(result.requests).toBe(70);
    expect(result.seconds).toBeCloseTo(0.3);
  });

  it.each([{ rate: 200 }, {}])(
    'ends after so many requests, those of the warm-up not counted: %j',
    async (pace) => {
      let asked = 0;
      const url = await serve((socket) => {
        asked++;
        socket.write(OK);
      });
      const result = await runLoad({
        ...options(url),
        ...pace,
        warmupMs: 100,
        durationMs: 60_000,
        requestsMax: 25,
      });
      expect([result.requests, result.expectedInAll]).toEqual([25, asked]);
      expect(result.stopped).toEqual({ reason: '25 requests were sent (--until)', failed: false });
      expect(violations(result, {})).toEqual([]);
    },
  );

  it('ends when a rule says so, and what was due before is still answered', async () => {
    const url = await serve((socket) => socket.write(OK));
    const load = { ...options(url), rate: 100, durationMs: 60_000 };
    const stop = ({ second }: { second: number }) =>
      second === 1 ? { reason: 'enough', failed: true } : undefined;
    const result = await runWith(load, { stop });
    expect(result.stopped).toEqual({ reason: 'enough', failed: true });
    expect(result.seconds).toBeLessThan(5);
    expect(result.requests).toBeGreaterThanOrEqual(100);
    expect(violations(result, {})).toEqual(['enough']);
  });
});

describe('the generator does not blame itself', () => {
  // 20/s are due, and all that is measured finds every connection busy: not one request was sent late by the generator.
  const queued = (url: string) => ({ ...options(url), rate: 20, connections: 1, warmupMs: 50 });

  it('for what waited until broken connections were made again', async () => {
    const url = await serve((socket) => setTimeout(() => socket.resetAndDestroy(), 100));
    const result = await runLoad({ ...queued(url), durationMs: 500 });
    expect(result.failures.ECONNRESET).toBeGreaterThan(1);
    expect(result.generator.lateP99Ms).toBe(0);
  });

  it('for what waited for a rare client', async () => {
    const url = await serve((socket) => setTimeout(() => socket.write(OK), 300));
    const rare = { clients: 1, share: 1 };
    const result = await runLoad({ ...queued(url), rare, warmupMs: 100, durationMs: 500 });
    expect(result.requests).toBe(10);
    expect(result.generator.lateP99Ms).toBe(0);
  });

  it('so a search for the knee ends at what the server does not bear', async () => {
    const url = await serve((socket) => setTimeout(() => socket.resetAndDestroy(), 100));
    const { knee } = await findKnee({
      startRate: 20,
      judge: (result) => violations(result, {}),
      step: (rate) => runLoad({ ...queued(url), rate, durationMs: 300 }),
    });
    expect(knee).toMatchObject({ lastGoodRate: undefined, firstBadRate: 20 });
    expect(knee.steps[0]?.why).toContain('no request was answered');
  });
});

describe('a second', () => {
  it.each([{ rate: 100 }, {}])('has sent what was intended in the measured time: %j', async (pace) => {
    const url = await serve((socket) => socket.write(OK));
    const { perSecond, requests } = await runLoad({ ...options(url), ...pace, warmupMs: 200 });
    expect(perSecond.reduce((count, { sent }) => count + sent, 0)).toBe(requests);
  });

  it.each([
    ['refused', 'status 429', (socket: Socket) => socket.write(REFUSED)],
    ['broken off', 'ECONNRESET', (socket: Socket) => socket.resetAndDestroy()],
  ])('in which every request was %s has no latency, though some were open at its end', async (...fault) => {
    const [, reason, refuse] = fault;
    const url = await serve((socket) => setTimeout(() => refuse(socket), 100));
    const load = { ...options(url), rate: 200, connections: 100, durationMs: 2_100 };
    const { perSecond, failures, latencyMs, stages } = await runLoad(load);
    expect(failures).toEqual({ [reason]: 420 });
    expect(perSecond[0]?.open).toBeGreaterThan(5);
    for (const { p50Ms, p99Ms } of perSecond) expect([p50Ms, p99Ms]).toEqual([null, null]);
    for (const { count, p50, p99 } of [latencyMs, stages[0]?.latencyMs ?? latencyMs])
      expect([count, p50, p99]).toEqual([0, null, null]);
  });

  it('does not look quicker than the server by what was sent at its end', async () => {
    const url = await serve((socket) => setTimeout(() => socket.write(OK), 600));
    const load = { ...options(url), rate: 100, connections: 100, durationMs: 2_000 };
    const { perSecond } = await runLoad(load);
    expect(perSecond[0]?.open).toBeGreaterThan(50);
    for (const { p50Ms } of perSecond) expect(p50Ms).toBeGreaterThan(590);
  });

  it('tells what waits for longer than a second, also of a server that refuses as late', async () => {
    const url = await serve((socket) => setTimeout(() => socket.write(REFUSED), 2_500));
    const load = { ...options(url), rate: 50, connections: 200, durationMs: 4_000, expected: [200, 429] };
    const { perSecond } = await runLoad(load);
    const inTime = perSecond.filter(({ late }) => !late);
    expect(inTime.map(({ statuses }) => (statuses[429] ?? 0) > 0)).toEqual([false, false, true, true]);
    for (const { p99Ms, second } of inTime) expect(p99Ms).toBeGreaterThan(900 * Math.min(second, 2));
  });
});

describe('results', () => {
  const halves = async () => {
    const url = await serve((socket, nth) =>
      nth % 7 === 0 ? socket.write(REFUSED) : setTimeout(() => socket.write(OK), nth % 20),
    );
    const load = { ...options(url), rate: 100, connections: 20 };
    return Promise.all([1, 2].map((seed) => runWith({ ...load, seed }, { keepHistograms: true })));
  };

  it('of generators side by side merge to what one would have found', async () => {
    const parts = await halves();
    const merged = mergeParallel(parts);
    expect(merged.requests).toBe(80);
    expect(merged.failed).toBe(parts.reduce((sum, { failed }) => sum + failed, 0));
    expect(merged.targetRate).toBe(200);
    expect(merged.ratePerSec).toBeCloseTo(parts.reduce((sum, { ratePerSec }) => sum + ratePerSec, 0));
    expect(merged.stages[0]).toMatchObject({ fromRate: 200, toRate: 200, requests: 80 });
    const all = parts.flatMap(({ histograms = [] }) => histograms).filter(({ status }) => status === 200);
    const sum = decodeHistogram((all[0] as { hdr: string }).hdr);
    for (const { hdr } of all.slice(1)) sum.add(decodeHistogram(hdr));
    expect(merged.latencyMs.p99).toBe(sum.getValueAtPercentile(99) / 1000);
    expect(merged.perSecond.reduce((count, { ok, failed }) => count + ok + failed, 0)).toBe(80);
    // What was merged can be merged again.
    expect(mergeParallel([merged]).latencyMs).toEqual(merged.latencyMs);
  });

  it('of parts that a server answers after the end have all that is late', async () => {
    const url = await serve((socket) => setTimeout(() => socket.write(OK), 400));
    const load = { ...options(url), rate: 50, connections: 40, durationMs: 1_000, encoding: 'none' as const };
    const parts = await Promise.all(
      [0, 0.5].map((phase) => runWith({ ...load, phase }, { keepHistograms: true })),
    );
    const merged = mergeParallel(parts);
    for (const { late } of parts) expect(late).toBeGreaterThan(10);
    const of = (count: (part: LoadResult) => number): number =>
      parts.reduce((sum, one) => sum + count(one), 0);
    expect(merged.late).toBe(of(({ late }) => late));
    expect(merged.stages[0]?.late).toBe(merged.late);
    expect([merged.answered, merged.answered + merged.late]).toEqual([of(({ answered }) => answered), 100]);
    expect(merged.ratePerSec).toBe(merged.answered / merged.seconds);
    const lateOnes = merged.perSecond.filter(({ late }) => late);
    expect(lateOnes.reduce((sum, { ok }) => sum + ok, 0)).toBe(merged.late);
    expect(loadText(merged)).toContain(`(${merged.answered}, and ${merged.late} after the end)`);
    expect(loadText(merged)).toContain(`${merged.late} of 100 expected answers came after the end`);
  });

  it('have failed when one of them was aborted, in any order', async () => {
    const [one, other] = (await halves()) as [LoadResult, LoadResult];
    const ended = { ...one, stopped: { reason: 'it is time', failed: false } };
    const aborted = { ...other, stopped: { reason: 'p99 > 500', failed: true } };
    expect(mergeParallel([ended, aborted]).stopped).toEqual(aborted.stopped);
    expect(mergeParallel([aborted, ended]).stopped).toEqual(aborted.stopped);
    expect(mergeParallel([one, ended]).stopped).toEqual(ended.stopped);
    expect(() => mergeParallel([one, { ...other, expectedStatuses: [200, 429] }])).toThrow(/--expect/);
  });

  it('of other plans do not merge', async () => {
    const [one] = await halves();
    const url = await serve((socket) => socket.write(OK));
    const other = await runWith({ ...options(url), rate: 10, durationMs: 200 }, { keepHistograms: true });
    expect(() => mergeParallel([one as NonNullable<typeof one>, other])).toThrow(/different plans/);
  });

  it('of steps stand one behind the other', async () => {
    const parts = await halves();
    const joined = joinSteps(parts);
    expect(joined.stages.map(({ requests }) => requests)).toEqual([40, 40]);
    expect(joined.requests).toBe(80);
  });
});

describe('rare clients', () => {
  it('have a connection each beside the busy ones', async () => {
    const url = await serve((socket) => socket.write(OK));
    const load = { ...options(url), rate: 200, connections: 2, rare: { clients: 10, share: 0.5 } };
    const result = await runLoad(load);
    expect(result.failed).toBe(0);
    expect(result.requests).toBe(80);
    expect(sockets.size).toBeGreaterThan(8);
    expect(result.connections).toBe(12);
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
