/**
 * The figures that `sluice load` prints of a server with a fault, and beside each the value that follows from the plan and from what
 * the server noted of every request itself. The plan is fixed: 200 a second in a warm-up of 0.5 s and for 2 s, then 100 a second for 2 s.
 */
import type { RunDocument } from '../../bench/load/document.ts';
import type { FaultyServer } from './faulty-server.ts';
import type { Ran } from './load-command.ts';

export const PLAN = ['--rate', '200', '--stages', '2s:200,0s:100,2s:100', '--warmup', '500ms'] as const;
const [WARMUP, FIRST, MEASURED] = [100, 400, 600];
const [STAGE_MS, END_MS, SECONDS] = [2000, 4000, 4];
export const CONNECTIONS = 300;
export const TIMEOUT_MS = 4_000;
/** Every answer takes a second, so that 2 % of it are more than a busy machine adds. */
export const DELAY_MS = [1_000, 1_400] as const;
/** Share that a value may be off; a shorter time 20 ms, and a count at the border of a second what comes in 20 ms. */
const [SHARE, MS, REQUESTS] = [0.02, 20, 4];
/** Requests that the plan sends in a millisecond. */
const PER_MS = 0.2;

export type Figure = {
  name: string;
  expected: number;
  printed: number;
  within: number;
  /** How much it changes in a millisecond. */
  perMs: number;
};
/** Milliseconds from the beginning of the measured time. `doneMs` is undefined where the run ended before the answer. */
type Request = { intendedMs: number; sentMs: number; doneMs: number; status: string; isMeasured: boolean };

const intendedMsOf = (number: number): number => {
  const nth = number - WARMUP;
  return nth < FIRST ? nth * 5 : STAGE_MS + (nth - FIRST) * 10;
};

function requestsOf({ log }: FaultyServer, { startedAt }: RunDocument): Request[] {
  const from = Date.parse(startedAt);
  return log.map(({ number, receivedAt, answeredAt, drawn }) => ({
    intendedMs: intendedMsOf(number),
    sentMs: receivedAt - from,
    doneMs: (answeredAt ?? receivedAt + TIMEOUT_MS) - from,
    status: answeredAt === undefined ? 'time-out' : drawn === 'refusal' ? '503' : '200',
    isMeasured: number >= WARMUP,
  }));
}

/** As HDR histograms have it. */
function percentile(values: readonly number[], at: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.max(1, Math.ceil((at * sorted.length) / 100 - 1e-9)) - 1] ?? 0;
}
const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);

/** Answered with usage headers. */
const COUNTED: readonly string[] = ['stored', 'double', 'loss'];
const PERCENTILES = [
  ['p50', 50],
  ['p90', 90],
  ['p95', 95],
  ['p99', 99],
  ['p99.9', 99.9],
  ['max', 100],
] as const;
type Shown = (typeof PERCENTILES)[number][0];

/** Everything that the terminal shows: its lines, and the names of the numbers in each. */
const LINES: readonly (readonly [line: RegExp, names: readonly string[]])[] = [
  [
    /^answered as expected (\S+)\/s \((\d+)(?:, and (\d+) after the end)?\), failed (\d+) /m,
    ['answered/s', 'answered in time', 'answered after the end', 'failed'],
  ],
  [/, statuses .*?200: (\d+)/, ['statuses 200']],
  [/, statuses .*?503: (\d+)/, ['statuses 503']],
  [/failed \d+ \(.*?no answer within 4 s: (\d+)/, ['no answer within 4 s']],
  [/^told 200 and not stored: (\d+) /m, ['told 200 and not stored']],
  [
    /^latency ms: mean (\S+) {2}p50 (\S+) {2}p90 (\S+) {2}p95 (\S+) {2}p99 (\S+) {2}p99\.9 (\S+) {2}max ([\d.,]+)/m,
    ['latency mean', ...PERCENTILES.map(([name]) => `latency ${name}`)],
  ],
  [
    /^of these waited for a connection p50 (\S+) p99 (\S+), from sending to answer p50 (\S+) p99 (\S+) ms/m,
    [
      'waited for a connection p50',
      'waited for a connection p99',
      'sending to answer p50',
      'sending to answer p99',
    ],
  ],
  ...[1, 2].map(
    (stage) =>
      [
        new RegExp(
          `^ {2}${stage === 1 ? 200 : 100}/s +(\\S+)/s {2}p50 (\\S+) {2}p99 (\\S+) {2}max (\\S+) ms(?: {2}(\\d+) after its end)?(?: {2}failed (\\d+))?`,
          'm',
        ),
        ['answered/s', 'latency p50', 'latency p99', 'latency max', 'answered after its end', 'failed'].map(
          (name) => `stage ${stage}: ${name}`,
        ),
      ] as const,
  ),
  [/^CAUTION: (\d+) % of the requests found all/m, ['found all connections busy, %']],
  [
    /^verify: told 200: (\d+)(?:, and (\d+) of which nothing is stored)?, refused (\d+), unknown (\d+)/m,
    ['verify: told 200', 'verify: nothing is stored', 'verify: refused', 'verify: unknown'],
  ],
  [
    /^ +stored (\d+), lost (\d+), double (\d+), late (\d+); tally \+(\d+), usage \+(\d+)/m,
    ['stored', 'lost', 'double', 'late', 'tally', 'usage'].map((name) => `verify: ${name}`),
  ],
];
const LIVE = / (\d+) s +(\S+)\/s {2}p50 (\S+) ms {2}p99 (\S+) ms {2}open (\d+)/g;

const value = (text: string | undefined): number => Number((text ?? '0').replaceAll(',', ''));

function printedIn(out: string): Map<string, number> {
  return new Map(
    LINES.flatMap(([line, names]) => {
      const [, ...found] = line.exec(out) ?? [];
      return names.map((name, at) => [name, value(found[at])] as const);
    }),
  );
}

const openAt = (all: readonly Request[], ms: number): number =>
  all.filter(({ sentMs, doneMs }) => sentMs <= ms && doneMs > ms).length;

type Expected = Map<string, readonly [expected: number, least: number]>;
const exactly = (count: number): readonly [number, number] => [count, 0];
const EXACT = 0;

function latencies(prefix: string, of: readonly Request[], shown: readonly Shown[], into: Expected): void {
  const values = of
    .filter(({ status }) => status !== '503')
    .map(({ doneMs, intendedMs }) => doneMs - intendedMs);
  for (const [name, at] of PERCENTILES)
    if (shown.includes(name)) into.set(`${prefix}latency ${name}`, [percentile(values, at), MS]);
  if (prefix === '') into.set('latency mean', [mean(values), MS]);
}

function expectedOf(all: readonly Request[], { log }: FaultyServer): Expected {
  const measured = all.filter(({ isMeasured }) => isMeasured);
  const is = (of: readonly Request[], status: string) => of.filter((one) => one.status === status);
  const within = (of: readonly Request[], from: number, to: number): number =>
    is(of, '200').filter(({ doneMs }) => doneMs >= from && doneMs < to).length;
  const drawn = (...kinds: string[]): number => log.filter((one) => kinds.includes(one.drawn)).length;
  const failed = (of: readonly Request[]): number => of.length - is(of, '200').length;
  const headline = measured.filter(({ status }) => status !== '503');
  const waits = headline.map(({ sentMs, intendedMs }) => sentMs - intendedMs);
  const services = headline.map(({ doneMs, sentMs }) => doneMs - sentMs);
  const busy =
    measured.filter(({ intendedMs }) => openAt(all, intendedMs) >= CONNECTIONS - REQUESTS).length / MEASURED;
  const into: Expected = new Map();
  into.set('answered/s', [within(all, 0, END_MS) / SECONDS, REQUESTS / SECONDS]);
  into.set('answered in time', [within(all, 0, END_MS), REQUESTS]);
  into.set('answered after the end', [within(measured, END_MS, Number.POSITIVE_INFINITY), REQUESTS]);
  into.set('failed', exactly(failed(measured)));
  into.set('statuses 200', exactly(is(measured, '200').length));
  into.set('statuses 503', exactly(is(measured, '503').length));
  into.set('no answer within 4 s', exactly(is(measured, 'time-out').length));
  const bare = log.filter((one) => one.drawn === 'bare' && one.number >= WARMUP).length;
  into.set('told 200 and not stored', exactly(bare));
  latencies(
    '',
    measured,
    PERCENTILES.map(([name]) => name),
    into,
  );
  into.set('waited for a connection p50', [percentile(waits, 50), MS]);
  into.set('waited for a connection p99', [percentile(waits, 99), MS]);
  into.set('sending to answer p50', [percentile(services, 50), MS]);
  into.set('sending to answer p99', [percentile(services, 99), MS]);
  for (const stage of [1, 2]) {
    const [from, to] = [(stage - 1) * STAGE_MS, stage * STAGE_MS];
    const of = measured.filter(({ intendedMs }) => intendedMs >= from && intendedMs < to);
    const prefix = `stage ${stage}: `;
    into.set(`${prefix}answered/s`, [within(all, from, to) / 2, REQUESTS / 2]);
    latencies(prefix, of, ['p50', 'p99', 'max'], into);
    into.set(`${prefix}answered after its end`, [within(of, to, Number.POSITIVE_INFINITY), REQUESTS]);
    into.set(`${prefix}failed`, exactly(failed(of)));
  }
  // Said of more than a twentieth.
  into.set('found all connections busy, %', [busy > 0.05 ? Math.round(100 * busy) : 0, 2]);
  into.set('verify: told 200', exactly(drawn(...COUNTED)));
  into.set('verify: nothing is stored', exactly(drawn('bare')));
  into.set('verify: refused', exactly(drawn('refusal')));
  into.set('verify: unknown', exactly(drawn('silence')));
  into.set('verify: stored', exactly(drawn('stored', 'double')));
  into.set('verify: lost', exactly(drawn('loss')));
  into.set('verify: double', exactly(drawn('double')));
  into.set('verify: late', exactly(0));
  into.set('verify: tally', exactly(drawn('stored', 'double')));
  into.set('verify: usage', exactly(drawn(...COUNTED)));
  return into;
}

/** Of the four seconds the one that is furthest off, for each value of the line a second. */
function secondsOf(all: readonly Request[], { err }: Ran): Figure[] {
  const printed = [...err.matchAll(LIVE)].slice(0, SECONDS).map(([, ...found]) => found.map(value));
  const figures = [1, 2, 3, 4].map((second) => {
    const [from, to] = [1000 * (second - 1), 1000 * second];
    const done = all.filter(({ doneMs }) => doneMs >= from && doneMs < to);
    const open = all.filter(({ intendedMs, doneMs }) => intendedMs < to && doneMs >= to);
    const took = ({ doneMs, intendedMs }: Request): number => doneMs - intendedMs;
    // What is younger than an answer of the second is not slow yet.
    const least = Math.min(1000, Math.max(0, ...done.map(took)));
    const values = [
      ...done.filter(({ status }) => status !== '503').map(took),
      ...open.map(({ intendedMs }) => to - intendedMs).filter((age) => age >= least),
    ];
    const [, rate = 0, p50 = 0, p99 = 0, opened = 0] = printed[second - 1] ?? [];
    return [
      figure('a second: answers/s', [done.length, REQUESTS], rate),
      figure('a second: latency p50', [percentile(values, 50), MS], p50),
      figure('a second: latency p99', [percentile(values, 99), MS], p99),
      figure('a second: open at its end', [open.length, REQUESTS], opened),
    ];
  });
  return [0, 1, 2, 3].map((at) => furthestOff(figures.map((of) => of[at] as Figure)));
}

const off = ({ expected, printed, within }: Figure): number => Math.abs(printed - expected) / within;
const furthestOff = (figures: readonly Figure[]): Figure =>
  figures.reduce((worst, one) => (off(one) > off(worst) ? one : worst));

/** The server's own rate as --admin tells it, which the report draws. The last look comes at once after the end: it has no second. */
function looksOf({ log }: FaultyServer, { server, startedAt }: RunDocument): Figure {
  const from = Date.parse(startedAt);
  const counted = log
    .filter(({ drawn }) => COUNTED.includes(drawn))
    .map(({ answeredAt = 0 }) => answeredAt - from);
  return furthestOff(
    (server?.looks ?? []).slice(0, -1).map(({ second, values }) => {
      const [begun, ended] = [1000 * (second - 0.5), 1000 * (second + 0.5)];
      const count = counted.filter((ms) => ms >= begun && ms < ended).length;
      return figure("the server's accepted/s in a second", [count, REQUESTS], values['accepted/s'] ?? 0);
    }),
  );
}

function figure(name: string, [expected, least]: readonly [number, number], printed: number): Figure {
  const within = least === EXACT ? EXACT : Math.max(SHARE * expected, least);
  return { name, expected, printed, within, perMs: least === MS ? 1 : PER_MS };
}

/**
 * Each value that the terminal shows, and the server's own count of what it accepted as `--admin` tells it.
 * @param isStrict the bounds hold as they are; else they are wider by what the machine was late meanwhile
 */
export function figuresOf(
  server: FaultyServer,
  ran: Ran,
  document: RunDocument,
  isStrict: boolean,
): Figure[] {
  const all = requestsOf(server, document);
  const printed = printedIn(ran.out);
  const figures = [...expectedOf(all, server)].map(([name, expected]) =>
    figure(name, expected, printed.get(name) ?? Number.NaN),
  );
  const lagMs = isStrict ? 0 : server.lagMs + 2 * document.generator.lateP99Ms;
  const widened = (one: Figure): Figure =>
    one.within === EXACT ? one : { ...one, within: one.within + lagMs * one.perMs };
  const usage = server.log.filter(({ drawn }) => COUNTED.includes(drawn)).length;
  return [
    ...figures,
    ...secondsOf(all, ran),
    looksOf(server, document),
    figure("the server's count of accepted", exactly(usage), document.server?.outcomes.accepted ?? 0),
  ].map(widened);
}

export const isOff = ({ expected, printed, within }: Figure): boolean =>
  !(Math.abs(printed - expected) <= within);

/** A column for each fault, a row for each value. */
export function tableText(columns: ReadonlyMap<string, readonly Figure[]>): string {
  const shown = (one: number): string => `${Number(one.toFixed(one >= 100 ? 0 : 1))}`;
  const [first = []] = columns.values();
  const row = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;
  const rows = first.map(({ name, within }, at) =>
    row([
      name,
      within === EXACT ? 'exact' : '2 %',
      ...[...columns.values()].map((of) => {
        const { expected, printed } = of[at] as Figure;
        return `${shown(expected)} / ${shown(printed)}`;
      }),
    ]),
  );
  const heads = ['expected / printed', 'bound', ...columns.keys()];
  return [row(heads), row(heads.map(() => '---')), ...rows, ''].join('\n');
}
