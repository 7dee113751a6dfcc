/**
 * What `sluice load` says of a server with a fault, held against what the server noted itself: each fault, and each value that is
 * printed. With LOAD_TABLE=FILE the table is written there.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RunDocument } from '../../bench/load/document.ts';
import { unstoredReason } from '../../bench/load/verify/ledger.ts';
import {
  CONNECTIONS,
  DELAY_MS,
  type Figure,
  figuresOf,
  isOff,
  PLAN,
  TIMEOUT_MS,
  tableText,
} from '../support/fault-figures.ts';
import { type Faults, FaultyServer } from '../support/faulty-server.ts';
import { LoadCommand, type Ran } from '../support/load-command.ts';
import { until } from '../support/system.ts';

const { LOAD_TABLE: TABLE } = process.env;
const isTable = TABLE !== undefined;

let command: LoadCommand;
const table = new Map<string, readonly Figure[]>();
const servers: FaultyServer[] = [];
beforeAll(() => {
  command = new LoadCommand();
});
afterAll(async () => {
  await Promise.all(servers.map((server) => server.stop()));
  command.close();
  if (TABLE !== undefined) writeFileSync(TABLE, `${HEAD}\n${tableText(table)}`);
});

const HEAD = `# What the load tester says of a server with a fault

This page shows whether \`sluice load\` tells the truth about a server that has a fault. A test ran the command against
nine test servers. Each column of the table is a server, each row a value that \`sluice load\` prints.

In each cell, the value before the slash is the true one. It follows from the notes of the server, which wrote down when
each request came and when it was answered. The value after the slash is what \`sluice load\` printed. Times are in ms.

- *The column "bound"* says how far apart the two values may be. Where it says 2 %, a difference of up to 20 ms, or of
  up to 4 requests (as many as are sent in 20 ms), is allowed even if it is more than 2 %.
- *The load* is 200 requests a second for 2 s (stage 1), then 100 a second for 2 s (stage 2), with 300 connections.
  Before, there is a warm-up of 0.5 s with 100 requests. These requests count only in the rows "answered", "verify", "a
  second" and "the server's".
- *The servers.* Every server waits 1.0 to 1.4 s before it answers, and has the fault that its column names. The seed of
  the test decides which requests meet the fault. The last server has all faults at once but "takes 100/s".
- *The rows "a second"*: \`sluice load\` prints a line each second. A cell has the values of the second in which the two
  are furthest apart.

This command makes the page:
\`LOAD_TABLE=docs/load-faults.md npx vitest run --config test/vitest.config.ts --project load test/bench/load-faults.test.ts\`
`;

async function serve(faults: Faults): Promise<FaultyServer> {
  const server = await FaultyServer.start(faults);
  servers.push(server);
  return server;
}

const SENT = ['--mix', 'event=1', '--encoding', 'none'] as const;

const FAULTS: readonly (readonly [name: string, faults: Faults, missed: readonly RegExp[]])[] = [
  ['no fault', {}, []],
  ['takes 100/s', { cap: 100 }, []],
  ['stands still from 1.1 to 2.5 s', { stallMs: [1600, 3000] }, []],
  ['never answers 5 %', { silence: 0.05 }, [/requests failed \(\d+ no answer within 4 s\)/]],
  ['refuses 10 %', { refusal: 0.1 }, [/requests failed \(\d+ status 503\)/]],
  ['loses 3 %', { loss: 0.03 }, [/^\d+ of \d+ envelopes that were told 200 are not in/, /^the sink's tally/]],
  ['stores 3 % twice', { double: 0.03 }, [/^\d+ items are in the sink more than once$/]],
  [
    '4 % without usage headers',
    { bare: 0.04 },
    [/^\d+ requests were told 200 and nothing of them is stored/],
  ],
  [
    'all but the first two',
    { silence: 0.02, refusal: 0.05, loss: 0.02, double: 0.02, bare: 0.02, stallMs: [1500, 2300] },
    [
      /requests failed/,
      /nothing of them is stored/,
      /not in the sink/,
      /more than once/,
      /^the sink's tally/,
    ],
  ],
];

describe('a server that', () => {
  // For the table each of them waits for a quiet moment of the machine.
  it.each(FAULTS)(
    '%s has every value as it noted it',
    { retry: isTable ? 8 : 0 },
    async (name, faults, missed) => {
      const server = await serve({ delayMs: DELAY_MS, ...faults });
      const ran = await command.run(
        ...[
          '--dsn',
          server.dsn,
          ...SENT,
          ...PLAN,
          '--connections',
          `${CONNECTIONS}`,
          '--timeout',
          `${TIMEOUT_MS}ms`,
        ],
        ...['--admin', server.admin, '--sink', `ndjson:${server.sinkDir}`, '--verify', '--verify-wait', '2s'],
        ...['--json', 'fault.json'],
      );
      const document = command.document('fault.json');
      const figures = figuresOf(server, ran, document, isTable);
      table.set(name, figures);
      expect(figures.filter(isOff), ran.out + ran.err).toEqual([]);
      expect(document.missed).toEqual(missed.map((said) => expect.stringMatching(said)));
      expect(ran.status).toBe(missed.length > 0 ? 1 : 0);
    },
  );
});

const bodyOf = (path: string): string => readFileSync(join(command.dir, path), 'utf8');

it('every output says how much a server took that was too slow, and what waited', async () => {
  const server = await serve({ cap: 150 });
  const ran = await command.run(
    ...['--dsn', server.dsn, ...SENT, '--rate', '300', '--duration', '3s', '--warmup', '500ms'],
    ...['--min-rate', '290', '--json', 'cap.json', '--junit', 'cap.xml', '--summary', 'cap.md'],
    ...['--stream', 'cap.ndjson', '--report', 'cap.html'],
  );
  const { ratePerSec, late, waitMs, serviceMs, startedAt, seconds, perSecond } = command.document('cap.json');
  const from = Date.parse(startedAt);
  expect(Math.abs(ratePerSec - server.answered(from, from + seconds * 1000) / seconds)).toBeLessThan(3);
  const shown = {
    rate: Math.round(ratePerSec),
    wait: Math.round(waitMs.p99 ?? 0),
    service: Math.round(serviceMs.p99 ?? 0),
  };
  for (const text of [ran.out, bodyOf('cap.xml'), bodyOf('cap.md')]) {
    expect(text).toContain(`${shown.rate}`);
    expect(text).toContain(`${late}`);
    expect(text).toContain(shown.wait.toLocaleString('en-US'));
    expect(text).toContain(shown.service.toLocaleString('en-US'));
    expect(text).toMatch(/\d+ of 900 expected answers came after the end: the server did not keep up/);
    expect(text).toMatch(/\d+ % of the requests found all 64 connections busy/);
  }
  expect(bodyOf('cap.html')).toContain(`"late":${late}`);
  expect(ran.err).toMatch(/\nFAILED: \d+\.\d requests\/s, wanted are at least 290\n$/);
  expect(ran.status).toBe(1);
  const streamed = bodyOf('cap.ndjson')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as { ok: number });
  expect(streamed.map(({ ok }) => ok)).toEqual(perSecond.map(({ ok }) => ok));
  for (const line of streamed)
    expect(line).toMatchObject({ at: expect.stringMatching(/Z$/), failed: 0, p99Ms: expect.any(Number) });
});

it('a server that says nothing is not quick: a rule ends the run after three seconds', async () => {
  const server = await serve({ silence: 1 });
  const ran = await command.run(
    ...['--dsn', server.dsn, ...SENT, '--rate', '100', '--duration', '20s', '--warmup', '0'],
    ...['--timeout', '5s', '--abort-on', 'p99>100', '--json', 'silent.json'],
  );
  const { seconds, requests, perSecond } = command.document('silent.json');
  expect(seconds).toBeGreaterThanOrEqual(3);
  expect(seconds).toBeLessThan(4);
  expect(requests).toBe(0);
  for (const { p99Ms, second } of perSecond.filter(({ late }) => !late))
    expect(p99Ms).toBeGreaterThan(second * 900);
  expect(ran.status).toBe(1);
});

it('a server that stores nothing of what it answers 200 does not pass with --verify', async () => {
  const server = await serve({ bare: 1 });
  const ran = await command.run(
    ...['--dsn', server.dsn, '--mix', 'session=1', '--encoding', 'none', '--verify', '--json', 'bare.json'],
    ...['--rate', '100', '--duration', '1s', '--warmup', '0', '--sink', `ndjson:${server.sinkDir}`],
  );
  expect(ran.out).toContain(
    'the server does not say what it stores: none of its 100 answers 200 has usage headers',
  );
  expect(ran.err).toMatch(/FAILED: 100 requests were told 200 and nothing of them is stored/);
  expect(ran.status).toBe(1);
});

it('a Ctrl-C ends the run: what was found is told, and the exit status is 1', async () => {
  const server = await serve({});
  const running = command.start([
    ...['--dsn', server.dsn, ...SENT, '--rate', '100', '--duration', '60s', '--warmup', '0'],
    ...['--json', 'interrupted.json'],
  ]);
  await until(() => / {3}1 s /.test(running.err()));
  running.interrupt();
  const { status, out, err } = await running.ended;
  expect(out).toContain('ended early: interrupted');
  expect(err).toMatch(/\nFAILED: interrupted\n$/);
  expect(status).toBe(1);
  const { requests, failed } = command.document('interrupted.json');
  expect([requests, failed]).toEqual([server.log.length, 0]);
});

it('a status of success other than 200 is a failure, unless it is expected; its time counts', async () => {
  const server = createServer((request, response) => {
    request.resume().on('end', () => response.writeHead(204).end());
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  const { port } = server.address() as AddressInfo;
  const run = (...args: string[]): Promise<Ran> =>
    command.run(
      ...['--dsn', `http://key@127.0.0.1:${port}/1`, ...SENT, '--rate', '50', '--duration', '1s'],
      ...['--warmup', '0', '--json', 'success.json', '--quiet', ...args],
    );
  try {
    const refused = await run();
    expect(refused.err).toContain('FAILED: 50 requests failed (50 status 204), allowed are 0');
    expect(refused.status).toBe(1);
    expect(command.document('success.json').latencyMs.count).toBe(50);
    expect((await run('--expect', '204')).status).toBe(0);
  } finally {
    server.close();
  }
});

describe('a server that is not sluice', () => {
  // Before the first request there is no file.
  const ids = (dir: string): string =>
    `cat ${dir}/SLUICE_EVENTS/*.ndjson 2>/dev/null | sed -n 's/.*"event_id":"\\([0-9a-f]*\\)".*/\\1/p'`;
  const run = (server: FaultyServer, ...args: string[]): Promise<Ran> =>
    command.run(
      ...['--dsn', server.dsn, '--encoding', 'none', '--rate', '200', '--duration', '1s', '--warmup', '0'],
      ...['--quiet', '--json', 'other.json', '--junit', 'other.xml', '--summary', 'other.md', ...args],
    );

  it('needs no flag, and the output says that it does not tell what it stores', async () => {
    const ran = await run(await serve({ other: { ignores: [] } }));
    expect(ran.out).toContain(
      'the server does not say what it stores: none of its 200 answers 200 has usage headers',
    );
    expect(ran.out).not.toContain('told 200 and not stored');
    expect(bodyOf('other.md')).toContain('the server does not say');
    expect(ran.status).toBe(0);
  });

  it('is asked by a command what it stored; a kind that it ignores is told as such', async () => {
    const server = await serve({ other: { ignores: ['transaction', 'session'] } });
    const mix = ['--mix', 'event=2,transaction=1,session=1', '--verify-wait', '2s'];
    const ran = await run(server, ...mix, '--verify-with', ids(server.sinkDir));
    const of = (type: string): number => server.log.filter((one) => one.type === type).length;
    const [events, transactions, sessions] = ['event', 'transaction', 'session'].map(of);
    const { verification, unstored } = command.document('other.json');
    expect(verification).toMatchObject({ accepted: 200, stored: events, lost: 0, double: 0 });
    expect(verification?.ignored).toEqual({ transaction: transactions, session: sessions });
    expect(unstored).toEqual({
      'transaction is ignored there': transactions,
      'session is ignored there': sessions,
    });
    expect(ran.out).toMatch(/ignored by this server: \d+ of \w+, \d+ of \w+/);
    expect(ran.err).toMatch(
      /^FAILED: \d+ requests were told 200 and nothing of them is stored \(.* is ignored there/m,
    );
    expect(ran.status).toBe(1);
    const allowed = await run(
      await serve({ other: { ignores: ['session'] } }),
      ...[...mix, '--max-unstored', '200', '--verify-with', 'cat'],
    );
    expect([allowed.status, allowed.out]).toEqual([
      0,
      expect.stringContaining('stored 200, lost 0, double 0'),
    ]);
  });

  it('is told to have lost and doubled what it has', async () => {
    const server = await serve({ other: { ignores: [] }, loss: 0.05, double: 0.05 });
    const ran = await run(
      ...([server, '--mix', 'event=1', '--verify-wait', '1s', '--verify-with', ids(server.sinkDir)] as const),
    );
    const { loss, double } = server.counts;
    expect(Math.min(loss, double)).toBeGreaterThan(0);
    expect(command.document('other.json').verification).toMatchObject({ lost: loss, double, ignored: {} });
    expect(ran.status).toBe(1);
  });

  it('that has nothing has lost everything, and a command that fails is told', async () => {
    const server = await serve({ other: { ignores: ['event'] } });
    const nothing = await run(server, '--mix', 'event=1', '--verify-wait', '1s', '--verify-with', 'true');
    expect(command.document('other.json').verification).toMatchObject({ lost: 200, ignored: {} });
    expect(nothing.status).toBe(1);
    const failing = await run(server, '--mix', 'event=1', '--verify-wait', '1s', '--verify-with', 'exit 7');
    expect(failing.err).toContain('--verify-with: the command ended with 7');
    expect(failing.status).toBe(1);
  });
});

it('the sluice dev of another folder is found by --data-dir, and without it the error names what is missing', async () => {
  const server = await serve({});
  const args = ['--mix', 'event=1', '--rate', '50', '--duration', '1s', '--warmup', '0', '--quiet'] as const;
  const none = await command.run(...args, '--data-dir', 'elsewhere');
  expect([none.status, none.err]).toEqual([2, expect.stringMatching(/no sluice dev runs on elsewhere/)]);
  expect((await command.run(...args)).err).toMatch(/no sluice dev runs on \.sluice \(--data-dir names/);
  const urls = { url: server.admin, adminUrl: server.admin, redisUrl: 'redis://h', natsUrl: 'nats://h' };
  const dev = { ...urls, project: { id: '1', key: 'key', dsn: server.dsn }, pid: process.pid };
  mkdirSync(join(command.dir, 'elsewhere'));
  writeFileSync(join(command.dir, 'elsewhere', 'dev.json'), JSON.stringify(dev));
  expect((await command.run(...args, '--data-dir', 'elsewhere')).status).toBe(0);
  expect((await command.run(...args, '--data-dir=elsewhere')).status).toBe(0);
  expect(server.log.length).toBe(100);
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
  ])('of a server that takes 300 a second is found within 5 %%, %s', async (_bound, args) => {
    const server = await serve({ cap: 300 });
    const ran = await command.run(
      ...['--dsn', server.dsn, ...SENT, '--json', 'knee.json', '--quiet'],
      ...['--find-knee', '--rate', '190', '--step', '2s', '--warmup', '500ms', ...args],
    );
    const { knee } = command.document('knee.json');
    expect(Math.abs((knee?.lastGoodRate ?? 0) - 300), ran.out).toBeLessThanOrEqual(15);
    expect(ran.err).not.toContain('MaxListenersExceededWarning');
  });
});

it('parts that a slow server answers after the end merge with what is late, in every output', async () => {
  const server = await serve({ cap: 150 });
  const startAt = new Date(Date.now() + 5_000).toISOString();
  const part = (at: number): Promise<Ran> =>
    command.run(
      ...['--dsn', server.dsn, ...SENT, '--rate', '300', '--duration', '3s', '--warmup', '0', '--quiet'],
      ...['--part', `${at}/2`, '--start-at', startAt, '--json', `part${at}.json`],
    );
  const ran = await Promise.all([part(0), part(1)]);
  expect(
    ran.map(({ status }) => status),
    ran.map(({ err }) => err).join(''),
  ).toEqual([0, 0]);
  const merged = await command.run(
    ...['merge', 'part0.json', 'part1.json', '--json', 'parts.json', '--junit', 'parts.xml'],
    ...['--summary', 'parts.md', '--report', 'parts.html', '--min-rate', '290'],
  );
  const { late, answered, stages, perSecond, ratePerSec } = command.document('parts.json');
  const parts = [0, 1].map((at) => command.document(`part${at}.json`));
  expect(late).toBe(parts.reduce((sum, one) => sum + one.late, 0));
  expect([answered + late, stages[0]?.late]).toEqual([server.answeredAt.length, late]);
  expect(answered + late).toBe(900);
  // The server's own notes say how many came after the end of the part that ended last, or first.
  const ends = parts.map(({ startedAt, seconds }) => Date.parse(startedAt) + 1000 * seconds);
  const after = (ms: number): number => server.answeredAt.filter((at) => at >= ms).length;
  const border = 10 + 0.15 * server.lagMs;
  expect(late).toBeGreaterThanOrEqual(after(Math.max(...ends)) - border);
  expect(late).toBeLessThanOrEqual(after(Math.min(...ends)) + border);
  expect(perSecond.reduce((sum, { ok }) => sum + ok, 0)).toBe(900);
  for (const text of [merged.out, bodyOf('parts.xml'), bodyOf('parts.md')])
    expect(text).toContain(`${late} of 900 expected answers came after the end: the server did not keep up`);
  expect(bodyOf('parts.html')).toContain(`"late":${late}`);
  expect(merged.err).toBe(`FAILED: ${ratePerSec.toFixed(1)} requests/s, wanted are at least 290\n`);
  expect(merged.status).toBe(1);
});

it('two processes say the same as one that sends at the rate of both', async () => {
  const [least, most] = [200, 900];
  const run = async (...args: string[]): Promise<RunDocument> => {
    // Its delays are the same in both runs, from the first request to the last.
    const server = await serve({ delayMs: [least, most] });
    const ran = await command.run(
      ...['--dsn', server.dsn, ...SENT, '--rate', '300', '--duration', '4s', '--warmup', '1s'],
      ...['--connections', '320', '--json', 'run.json', '--quiet', ...args],
    );
    expect(ran.status, ran.out + ran.err).toBe(0);
    return command.document('run.json');
  };
  const one = await run();
  const two = await run('--processes', '2', '--report', 'two.html');
  expect(two.runs).toHaveLength(2);
  for (const { requests, targetRate, connections, latencyMs, serviceMs } of [one, two]) {
    expect([requests, targetRate, connections]).toEqual([1_200, 300, 320]);
    // They are at least those of the delays. How much longer is the machine's doing; load.test.ts shows that they are merged exactly.
    const shares = { p50: 0.5, p90: 0.9, p95: 0.95, p99: 0.99 };
    for (const [name, share] of Object.entries(shares) as [keyof typeof shares, number][]) {
      const delay = 0.98 * (least + share * (most - least));
      expect(latencyMs[name], name).toBeGreaterThan(delay);
      expect(serviceMs[name], name).toBeGreaterThan(delay);
    }
  }
});
