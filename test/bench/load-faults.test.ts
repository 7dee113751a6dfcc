/**
 * What `sluice load` says of a server with a fault, held against what the server counted itself: each fault, and each figure that it
 * touches. Counts are exact, rates within 2 %. With LOAD_TABLE=FILE the rows are written there, expected beside printed.
 */
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RunDocument } from '../../bench/load/document.ts';
import { unstoredReason } from '../../bench/load/verify/ledger.ts';
import { type Faults, FaultyServer } from '../support/faulty-server.ts';
import { LoadCommand, type Ran } from '../support/load-command.ts';

type Found = Ran & { document: RunDocument; server: FaultyServer };
type Figure = { figure: string; expected: number; printed: number; within: number };

let command: LoadCommand;
const table = new Map<string, readonly Figure[]>();
const servers: FaultyServer[] = [];
beforeAll(() => {
  command = new LoadCommand();
});
afterAll(async () => {
  await Promise.all(servers.map((server) => server.stop()));
  command.close();
  const { LOAD_TABLE: path } = process.env;
  if (path !== undefined) writeFileSync(path, tableText());
});

async function serve(faults: Faults): Promise<FaultyServer> {
  const server = await FaultyServer.start(faults);
  servers.push(server);
  return server;
}

async function load(name: string, faults: Faults, ...args: string[]): Promise<Found> {
  const server = await serve(faults);
  const ran = await command.run(
    ...['--dsn', server.dsn, '--mix', 'event=1', '--encoding', 'none', '--json', `${name}.json`, ...args],
  );
  return { ...ran, document: command.document(`${name}.json`), server };
}

/** The measured time on the wall clock. */
function windowOf({ startedAt, seconds }: RunDocument): [from: number, to: number] {
  const from = Date.parse(startedAt);
  return [from, from + seconds * 1000];
}

const exact = (figure: string, expected: number, printed: number): Figure => ({
  ...{ figure, expected, printed, within: 0 },
});
const close = (figure: string, expected: number, printed: number, within = 0.02): Figure => ({
  ...{ figure, expected, printed, within },
});

/** Every row of a fault is told when one does not hold. */
function holds(fault: string, figures: readonly Figure[], { out, err }: Ran): void {
  table.set(fault, figures);
  const wrong = figures.filter(
    ({ expected, printed, within }) => !(Math.abs(printed - expected) <= within * expected),
  );
  expect(wrong, out + err).toEqual([]);
}

function tableText(): string {
  const shown = (value: number): string => `${Number(value.toFixed(1))}`;
  const rows = [...table].flatMap(([fault, figures]) =>
    figures.map(
      ({ figure, expected, printed, within }) =>
        `| ${fault} | ${figure} | ${shown(expected)} | ${shown(printed)} | ${within === 0 ? 'exact' : `${within * 100} %`} |`,
    ),
  );
  return `| The server | Figure | Its own count | Printed | Bound |\n|---|---|---|---|---|\n${rows.join('\n')}\n`;
}

const SECONDS_4 = ['--duration', '4s', '--warmup', '0'] as const;
type Second = RunDocument['perSecond'][number];
const sum = (seconds: readonly Second[], of: (second: Second) => number): number =>
  seconds.reduce((all, second) => all + of(second), 0);

describe.concurrent('a server that', () => {
  it('takes 300 a second of 600 is told to take 300, and the late answers are told apart', async () => {
    const found = await load(
      ...(['cap', { cap: 300 }, '--rate', '600', '--duration', '4s', '--warmup', '500ms'] as const),
      ...['--min-rate', '590', '--junit', 'cap.xml'],
    );
    const { document, server, status, err, out } = found;
    const [from, to] = windowOf(document);
    const after = server.answered(to, Number.POSITIVE_INFINITY);
    const rate = server.answered(from, to) / document.seconds;
    const inTime = document.perSecond.filter(({ late }) => !late);
    const inSeconds = (1000 * sum(inTime, ({ ok }) => ok)) / sum(inTime, ({ ms }) => ms);
    holds(
      'takes 300 of 600 a second',
      [
        close('answered/s', rate, document.ratePerSec),
        close('answered/s of the stage', rate, document.stages[0]?.ratePerSec ?? 0),
        close('answered/s of its seconds', rate, inSeconds),
        exact('answered in all', 2400, document.expected),
        close('after the end', after, document.late),
        exact('failed', 0, document.failed),
        close(
          'wait + service, mean ms',
          document.latencyMs.mean,
          document.waitMs.mean + document.serviceMs.mean,
        ),
      ],
      found,
    );
    expect(document.ratePerSec).toBeLessThan(306);
    expect(document.waitMs.p50).toBeGreaterThan(5 * document.serviceMs.p50);
    expect(status).toBe(1);
    expect(err).toMatch(/\nFAILED: \d+\.\d requests\/s, wanted are at least 590\n$/);
    expect(out).toMatch(/CAUTION: \d+ of 2400 expected answers came after the end/);
    expect(out).toMatch(/CAUTION: \d+ % of the requests found all 64 connections busy/);
  });

  it('answers after 100 ms has these as its service time, and nobody waited', async () => {
    const found = await load('delay', { delayMs: 100 }, '--rate', '200', ...SECONDS_4);
    const { document, status } = found;
    holds(
      'answers after 100 ms',
      [exact('answered', 800, document.expected), exact('failed', 0, document.failed)],
      found,
    );
    const { latencyMs, serviceMs, waitMs } = document;
    expect(Math.min(latencyMs.p50, serviceMs.p50)).toBeGreaterThanOrEqual(100);
    expect(waitMs.p50).toBeLessThan(serviceMs.p50);
    expect(status).toBe(0);
  });

  it('stands still for a second shows that in each second that it touches', async () => {
    const found = await load('stall', { stallMs: [1000, 3500] }, '--rate', '100', ...SECONDS_4);
    const { document } = found;
    let [elapsedMs, answered] = [0, 0];
    const open = document.perSecond.flatMap(({ late, ms, ok, open }) => {
      elapsedMs += ms;
      answered += ok;
      return late ? [] : [{ due: elapsedMs / 10 - answered, open }];
    });
    holds(
      'stands still from 1.0 to 3.5 s',
      [
        exact('answered', 400, document.expected),
        close('open at the end of second 3', open[2]?.due ?? 0, open[2]?.open ?? 0),
      ],
      found,
    );
    expect(document.latencyMs.max).toBeGreaterThan(2400);
    // In the second that is all silence the open requests have their age.
    expect(document.perSecond[2]).toMatchObject({ ok: 0 });
    expect(document.perSecond[2]?.p99Ms).toBeGreaterThan(1500);
  });

  it('says nothing is not quick: a rule ends the run after three seconds', async () => {
    const found = await load(
      ...(['silent', { silence: 1 }, '--rate', '100', '--duration', '20s', '--warmup', '0'] as const),
      ...['--timeout', '5s', '--abort-on', 'p99>100'],
    );
    const { document, status } = found;
    const measured = document.perSecond.filter(({ late }) => !late);
    holds(
      'never answers, --abort-on p99>100',
      [
        close('ends after s', 3, document.seconds, 0.1),
        close('open in the last second', 100 * document.seconds, measured.at(-1)?.open ?? 0),
        exact('answered', 0, document.requests),
      ],
      found,
    );
    for (const { p99Ms, second } of measured) expect(p99Ms).toBeGreaterThan(second * 900);
    expect(status).toBe(1);
  });

  it('leaves one in twenty without an answer', async () => {
    const found = await load('silence', { silence: 0.05 }, '--rate', '100', ...SECONDS_4, '--timeout', '3s');
    const { document, server } = found;
    const { silence } = server.counts;
    holds(
      'never answers 5 %',
      [
        exact('failed', silence, document.failed),
        exact('time-outs', silence, document.byStatus['time-out']?.count ?? 0),
        exact('answered', server.answeredAt.length, document.expected),
      ],
      found,
    );
    expect(silence).toBeGreaterThan(5);
  });

  it('refuses one in ten', async () => {
    const found = await load('refusal', { refusal: 0.1 }, '--rate', '100', ...SECONDS_4);
    const { document, server, status } = found;
    holds(
      'refuses 10 % (503)',
      [
        exact('failed', server.counts.refusal, document.failed),
        exact('statuses 503', server.counts.refusal, document.statuses['503'] ?? 0),
        exact('answered', server.answeredAt.length, document.expected),
        close('answered/s', server.answeredAt.length / 4, document.ratePerSec),
      ],
      found,
    );
    expect(status).toBe(1);
  });

  it('loses some, doubles some and leaves out the usage headers of some', async () => {
    const server = await serve({ loss: 0.02, double: 0.03, bare: 0.04 });
    const ran = await command.run(
      ...['--dsn', server.dsn, '--mix', 'event=1', '--encoding', 'none', '--json', 'stored.json'],
      ...[
        '--rate',
        '200',
        ...SECONDS_4,
        '--verify',
        '--verify-wait',
        '2s',
        '--sink',
        `ndjson:${server.sinkDir}`,
      ],
    );
    const document = command.document('stored.json');
    const { verification: found } = document;
    const { loss, double, bare, stored } = server.counts;
    holds(
      'loses 2 %, doubles 3 %, leaves out the usage headers of 4 %',
      [
        exact('lost', loss, found?.lost ?? -1),
        exact('double items', double, found?.double ?? -1),
        exact('told 200, not stored', bare, document.unstored['no usage headers'] ?? 0),
        exact('accepted', 800 - bare, found?.accepted ?? 0),
        exact('stored', stored + double, found?.stored ?? 0),
        exact('tally', stored + double, found?.tallied ?? 0),
      ],
      ran,
    );
    expect(document.missed).toEqual([
      expect.stringMatching(`^${bare} requests were told 200 and nothing of them is stored`),
      expect.stringMatching(`^${loss} of ${800 - bare} envelopes`),
      expect.stringMatching(`^${double} items`),
      expect.stringMatching(/^the sink's tally grew by/),
    ]);
    expect(ran.status).toBe(1);
  });

  it('stores nothing of what it answers 200 does not pass with --verify', async () => {
    const server = await serve({ bare: 1 });
    const ran = await command.run(
      ...['--dsn', server.dsn, '--mix', 'session=1', '--encoding', 'none', '--verify', '--json', 'bare.json'],
      ...['--rate', '100', '--duration', '1s', '--warmup', '0', '--sink', `ndjson:${server.sinkDir}`],
    );
    const { unstored } = command.document('bare.json');
    holds('stores nothing', [exact('told 200, not stored', 100, unstored['no usage headers'] ?? 0)], ran);
    expect(ran.out).toContain('told 200 and not stored: 100 of 100 (no usage headers: 100)');
    expect(ran.err).toMatch(/FAILED: 100 requests were told 200 and nothing of them is stored/);
    expect(ran.status).toBe(1);
  });
});

describe('what a server says', () => {
  it('does not steer the terminal', async () => {
    const api = createServer((_request, response) => {
      response.writeHead(500).end('\u001b]0;taken\u0007\u202eback');
    });
    await new Promise<void>((listening) => api.listen(0, '127.0.0.1', listening));
    try {
      const { port } = api.address() as AddressInfo;
      const ran = await command.run(
        '--projects',
        '1',
        '--api',
        `http://127.0.0.1:${port}`,
        '--duration',
        '1s',
      );
      expect(ran.status).toBe(1);
      expect(ran.err).toContain('answered 500: \\u001b]0;taken\\u0007\\u202eback');
    } finally {
      api.close();
    }
  });

  it.each([
    ['no-items', 'no-items'],
    ['unstored-types', 'unstored-types'],
    ['\u001b[2J', 'a reason that is not known'],
  ])('of a 200 that stores nothing: %j is told as %s', (said, told) => {
    const answer = Buffer.from(`HTTP/1.1 200 OK\r\nX-Service-Empty: ${said}\r\n\r\n{}`);
    expect(unstoredReason(answer)).toBe(told);
  });
});

describe('the knee', () => {
  it.each([
    ['with no bound', []],
    ['with a bound of the latency', ['--max-p99', '400']],
  ])('of a server that takes 300 a second is found within 5 %%, %s', async (bound, args) => {
    const server = await serve({ cap: 300 });
    const ran = await command.run(
      ...['--dsn', server.dsn, '--mix', 'event=1', '--encoding', 'none', '--json', 'knee.json', '--quiet'],
      ...['--find-knee', '--rate', '190', '--step', '2s', '--warmup', '500ms', ...args],
    );
    const { knee } = command.document('knee.json');
    holds(
      `takes 300 a second, --find-knee ${bound}`,
      [close('knee', 300, knee?.lastGoodRate ?? 0, 0.05)],
      ran,
    );
    expect(ran.err).not.toContain('MaxListenersExceededWarning');
  });
});

it('two processes against a server that is too slow are told what it takes', async () => {
  const found = await load(
    ...(['both', { cap: 300 }, '--rate', '600', '--duration', '4s', '--warmup', '500ms'] as const),
    ...['--processes', '2', '--report', 'both.html'],
  );
  const { document, server } = found;
  const [from, to] = windowOf(document);
  holds(
    'takes 300 of 600 a second, --processes 2',
    [
      // The two begin a few milliseconds apart.
      close('answered/s', server.answered(from, to) / document.seconds, document.ratePerSec, 0.04),
      exact('answered in all', 2400, document.expected),
      exact('asked for', 600, document.targetRate ?? 0),
      exact('connections', 64, document.connections),
    ],
    found,
  );
  expect(document.runs).toHaveLength(2);
});
