/** The soak as text: what was told, and of every process whether its memory and its open files grow. */
import { RECEIVED_DISORDER_MS_MAX, RESEND_WINDOW_MS } from '../../../src/limits.ts';
import { markdown } from '../table.ts';
import type { SoakReport } from './soak.ts';
import { fitTrend, mean, type Point, type Trend, type Verdict, verdict } from './trend.ts';
import { type Held, type Life, type Look, ROUNDS_PER_MINUTE } from './watch.ts';

/** All of one process. A leak of this many a minute would matter: 1.4 GiB a day; at 1,000 requests a second 17 bytes each. */
const RSS_MIB_PER_MINUTE = 1;
const FILES_PER_MINUTE = 0.5;
const LAG_SEC_PER_MINUTE = 0.1;
/** Slopes that would matter of what Redis and the broker hold. A stream's bytes go up and down with each frame. */
const HELD = [
  ['Redis keys', ({ redisKeys }) => redisKeys, 1],
  ["MiB of Redis's data", ({ redisMib }) => redisMib, 0.1],
  ['consumers', ({ consumers }) => consumers, 0.1],
  ['MiB in streams', ({ streamMib }) => streamMib, 1],
] as const satisfies readonly [what: string, of: (held: Held) => number, perMinute: number][];
/** Younger processes are still finding their size. */
const SETTLED_MINUTES = 1;
/** The processor's sink knows what it stored for so long; others forget sooner. */
const REMEMBERED_MINUTES = (RESEND_WINDOW_MS + RECEIVED_DISORDER_MS_MAX) / 60_000;
/** Its table doubles for the last time a quarter of that later (key-table.ts: FULL_SHARE / REBUILT_SHARE), or after the birth of a later process. */
const DOUBLED_MINUTES = REMEMBERED_MINUTES / 4;
/** Shorter series say nothing. */
const FITTED_MINUTES_MIN = 0.5;

type Line = {
  life: Life;
  rss: Trend;
  files: Trend;
  memory: Verdict;
  openFiles: Verdict;
  connections: number;
};

const points = (looks: readonly Look[], of: (look: Look) => number): Point[] =>
  looks.map((look) => ({ x: look.minute, y: of(look) }));

/** What of a life is after everything has settled; of a short soak, its second half. */
function settled({ looks }: Life, { fittedFrom }: SoakReport): Look[] {
  const born = looks[0]?.minute ?? 0;
  return looks.filter(({ minute }) => minute >= Math.max(fittedFrom, born + SETTLED_MINUTES));
}

/** The same for memory. */
function filled(life: Life, report: SoakReport): Look[] {
  const looks = settled(life, report);
  if (life.role !== 'processor') return looks;
  const born = life.looks[0]?.minute ?? 0;
  const from = Math.max(REMEMBERED_MINUTES, born) + DOUBLED_MINUTES;
  return report.minutes > from + FITTED_MINUTES_MIN ? looks.filter(({ minute }) => minute >= from) : looks;
}

/**
 * The workers as one: each has its share of the clients' connections, which moves when an idle one is closed and made again.
 * @returns looks at moments at which as many lived as ever did
 */
function workersTogether(lives: readonly Life[]): Life {
  const rounds = new Map<number, Look[]>();
  for (const { role, looks } of lives)
    for (const look of looks) {
      const round = Math.round(look.minute * ROUNDS_PER_MINUTE);
      if (role.startsWith('worker')) rounds.set(round, [...(rounds.get(round) ?? []), look]);
    }
  const most = Math.max(0, ...[...rounds.values()].map(({ length }) => length));
  const full = [...rounds.values()].filter(({ length }) => length === most);
  const sum = (looks: readonly Look[], of: (look: Look) => number): number =>
    looks.reduce((all, look) => all + of(look), 0);
  const looks = full.map((round) => ({
    minute: round[0]?.minute ?? 0,
    rssMib: sum(round, ({ rssMib }) => rssMib),
    files: sum(round, ({ files }) => files),
    connections: sum(round, ({ connections }) => connections),
  }));
  return {
    role: `${most} workers together`,
    pid: 0,
    processes: most,
    looks: looks.sort((a, b) => a.minute - b.minute),
  };
}

function fitted(report: SoakReport): Line[] {
  const together = workersTogether(report.lives);
  const lives = [...report.lives, ...((together.processes ?? 0) > 1 ? [together] : [])];
  return lives.flatMap((life) => {
    const rss = fitTrend(points(filled(life, report), ({ rssMib }) => rssMib));
    const files = fitTrend(points(settled(life, report), (look) => look.files));
    if (!rss || !files || rss.minutes < FITTED_MINUTES_MIN) return [];
    const { processes = 1 } = life;
    const memory = verdict(rss, processes * RSS_MIB_PER_MINUTE);
    const openFiles = verdict(files, processes * FILES_PER_MINUTE);
    const connections = mean(settled(life, report).map((look) => look.connections));
    return [{ life, rss, files, memory, openFiles, connections }];
  });
}

const slope = ({ slope: value, error }: Trend, digits: number): string =>
  `${value.toFixed(digits)} ± ${(2 * error).toFixed(digits)}`;

/** Slopes stand beside two standard errors. */
export function lifeTable(report: SoakReport): string {
  const heads = [
    'process',
    'minutes fitted',
    'RSS MiB',
    'MiB a minute',
    'memory',
    'files',
    'files a minute',
    'open files',
    'connections of clients',
  ];
  const lines = fitted(report).map(({ life, rss, files, memory, openFiles, connections }) => [
    life.role,
    rss.minutes.toFixed(1),
    rss.mean.toFixed(0),
    slope(rss, 2),
    memory,
    files.mean.toFixed(0),
    slope(files, 2),
    openFiles,
    connections > 0 ? connections.toFixed(1) : '',
  ]);
  return markdown(heads, lines);
}

type HeldLine = { what: string; trend: Trend; verdict: Verdict };

function fittedHeld({ held, fittedFrom }: SoakReport): HeldLine[] {
  const late = held.filter(({ minute }) => minute >= fittedFrom);
  return HELD.flatMap(([what, of, perMinute]) => {
    const trend = fitTrend(late.map((one) => ({ x: one.minute, y: of(one) })));
    return trend ? [{ what, trend, verdict: verdict(trend, perMinute) }] : [];
  });
}

/** As {@link lifeTable}, of what the servers hold. */
function heldTable(report: SoakReport): string {
  const lines = fittedHeld(report).map(({ what, trend, verdict }) => [
    what,
    trend.minutes.toFixed(1),
    trend.mean.toFixed(1),
    slope(trend, 3),
    verdict,
  ]);
  return markdown(['held', 'minutes fitted', 'mean', 'a minute', ''], lines);
}

export function lagLine({ lags, fittedFrom, drainedSec }: SoakReport): string {
  const late = lags.filter(({ minute }) => minute >= fittedFrom);
  const trend = fitTrend(late.map(({ minute, lagSec }) => ({ x: minute, y: lagSec })));
  const most = Math.max(...lags.map(({ pending }) => pending));
  const said = trend
    ? `${trend.mean.toFixed(2)} s, ${slope(trend, 3)} s a minute: ${verdict(trend, LAG_SEC_PER_MINUTE)}`
    : 'not sampled';
  return `lag ${said}; at most ${most} frames waited; all was stored ${drainedSec?.toFixed(1) ?? 'NEVER'} s after the end`;
}

const listed = (counts: Readonly<Record<string, number>>): string =>
  Object.entries(counts)
    .map(([name, count]) => `${count} × ${name}`)
    .join(', ');

export function soakText(report: SoakReport): string {
  const { minutes, seed, rate, capacity, answers, struck, told, stored, usage, deadLetters } = report;
  return [
    `${minutes} minutes, seed ${seed}, ${rate} requests/s (70 % of ${Math.round(capacity)}); p50 ${answers.p50Ms} ms, p99 ${answers.p99Ms} ms`,
    `struck: ${listed(struck)}`,
    `told: ${told.accepted} × 200, ${told.refused} refused, ${told.unknown} unknown (${listed(answers.byReason)})`,
    `stored: ${stored.envelopes} envelopes, ${stored.items} items, ${stored.double} double; usage ${usage}; ${deadLetters} dead letters`,
    lagLine(report),
    '',
    lifeTable(report),
    '',
    heldTable(report),
  ].join('\n');
}

/** Sentences about what of ours grows for certain. */
export function growing(report: SoakReport): string[] {
  const grown = fitted(report).flatMap(({ life, memory, openFiles }) => [
    ...(memory === 'grows' ? [`${life.role} ${life.pid}: memory grows`] : []),
    ...(openFiles === 'grows' ? [`${life.role} ${life.pid}: open files grow`] : []),
  ]);
  const ours = grown.filter((sentence) => !/^(Redis|broker) /.test(sentence));
  const held = fittedHeld(report).filter(({ verdict }) => verdict === 'grows');
  return [...ours, ...held.map(({ what }) => `${what}: more and more`)];
}
