/** The soak as text: what was told, and of every process whether its memory and its open files grow. */
import { markdown } from '../table.ts';
import type { SoakReport } from './soak.ts';
import { fitTrend, type Point, type Trend, verdict } from './trend.ts';
import type { Life, Look } from './watch.ts';

/** A leak of this many a minute would matter: 1.4 GiB a day; at 1,000 requests a second 17 bytes each. */
const RSS_MIB_PER_MINUTE = 1;
const FILES_PER_MINUTE = 0.5;
const LAG_SEC_PER_MINUTE = 0.1;
/** Younger processes are still finding their size. */
const SETTLED_MINUTES = 1;
/** Shorter series say nothing. */
const FITTED_MINUTES_MIN = 0.5;

type Line = { life: Life; rss: Trend; files: Trend };

const points = (looks: readonly Look[], of: (look: Look) => number): Point[] =>
  looks.map((look) => ({ x: look.minute, y: of(look) }));

/** What of a life is after everything has settled. */
function settled({ looks }: Life, fittedFrom: number): Look[] {
  const born = looks[0]?.minute ?? 0;
  const from = Math.max(fittedFrom, born + SETTLED_MINUTES);
  return looks.filter(({ minute }) => minute >= from);
}

function fitted({ lives, fittedFrom }: SoakReport): Line[] {
  return lives.flatMap((life) => {
    const looks = settled(life, fittedFrom);
    const rss = fitTrend(points(looks, ({ rssMib }) => rssMib));
    const files = fitTrend(points(looks, (look) => look.files));
    return rss && files && rss.minutes >= FITTED_MINUTES_MIN ? [{ life, rss, files }] : [];
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
  ];
  const lines = fitted(report).map(({ life, rss, files }) => [
    life.role,
    rss.minutes.toFixed(1),
    rss.mean.toFixed(0),
    slope(rss, 2),
    verdict(rss, RSS_MIB_PER_MINUTE),
    files.mean.toFixed(0),
    slope(files, 2),
    verdict(files, FILES_PER_MINUTE),
  ]);
  return markdown(heads, lines);
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
  ].join('\n');
}

/** Sentences about what of ours grows for certain. */
export function growing(report: SoakReport): string[] {
  const grown = fitted(report).flatMap(({ life, rss, files }) => [
    ...(verdict(rss, RSS_MIB_PER_MINUTE) === 'grows' ? [`${life.role} ${life.pid}: memory grows`] : []),
    ...(verdict(files, FILES_PER_MINUTE) === 'grows' ? [`${life.role} ${life.pid}: open files grow`] : []),
  ]);
  return grown.filter((sentence) => !/^(Redis|broker) /.test(sentence));
}
