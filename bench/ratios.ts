/** Figures of one run beside each other, with the bounds that we hold ourselves to: ratios carry to other machines, rates do not. Pure. */
import type { PairSummary, Row, Summary, SystemSummary } from './summary.ts';

export type Ratio = {
  name: string;
  value: number;
  /** What we hold ourselves to, and what we hope for, as words: `≤ 2.5`. */
  bound: string;
  wish: string;
  /** What it was made from, with units. */
  raw: string;
};

const us = (value: number): string => `${value.toFixed(1)} µs`;
const median = (rows: readonly Row[], name: string, unit: string): number | undefined =>
  rows.find((row) => row.name === name)?.figures[unit]?.median;
const ingestUs = ({ costUs }: SystemSummary): number =>
  costUs.worker.median + costUs.redis.median + costUs.broker.median;

/** Empty where a part of what it compares was not run, or has no headline. */
export function ratiosOf(summary: Summary): Ratio[] {
  const scenario = (name: string): SystemSummary | undefined =>
    summary.system.find((one) => one.name === name && one.problems.length === 0);
  const single = scenario('single-event');
  const canonical = scenario('canonical');
  const always = scenario('sync-always');
  return [
    ...summary.pairs.filter(({ problems }) => problems.length === 0).map(sideBySide),
    ...(single ? singleEvent(summary, single) : []),
    ...(canonical && always ? [syncAlways(canonical, always)] : []),
    ...gzipOverZlib(summary),
  ];
}

/** Bounds and wishes of the pairs of plan.ts. */
const PAIR_BOUNDS: Readonly<Record<string, readonly [bound: string, wish: string]>> = {
  'worker ÷ bare handler': ['≤ 2.5', '2'],
  '2 workers ÷ 1': ['≤ 1.3', '1.1'],
  '10,000 projects ÷ 1': ['≤ 1.3', '1.1'],
};

function sideBySide({ name, ratio, firstUs, secondUs }: PairSummary): Ratio {
  const [bound = '', wish = ''] = PAIR_BOUNDS[name] ?? [];
  const rounds = ratio.raw.map((value) => value.toFixed(2)).join(', ');
  const raw = `${us(secondUs.median)} ÷ ${us(firstUs.median)}; rounds ${rounds}`;
  return { name: `cost, ${name}`, value: ratio.median, bound, wish, raw };
}

function singleEvent({ components, peers }: Summary, single: SystemSummary): Ratio[] {
  const { costUs } = single;
  const bare = median(components, 'bare uWebSockets.js, single-event', 'server µs');
  const peer = peers.find(({ name, problems }) => name === 'fastify, single-event' && problems.length === 0);
  const rate = single.acceptedPerSec.median;
  const ratios: Ratio[] = [];
  const add = (name: string, value: number, [bound, wish, raw]: readonly [string, string, string]): void => {
    ratios.push({ name, value, bound, wish, raw });
  };
  if (bare !== undefined) {
    const all = ingestUs(single);
    add('worker, Redis, broker ÷ bare', all / bare, ['≤ 3.5, or 45 µs', '3', us(all)]);
  }
  if (peer) {
    const other = peer.acceptedPerSec.median;
    add('accepted/s ÷ peer', rate / other, ['≥ 6', '8', `${Math.round(rate)} ÷ ${Math.round(other)}`]);
  }
  add('Redis calls per envelope', single.redisCalls.median, ['≤ 0.1', '0.03', '']);
  add('publishes per envelope', single.publishes.median, ['≤ 0.1', '0.03', '']);
  add('p99 ms at half load', single.p99Ms.median, ['≤ 10', '5', `${Math.round(single.openRate.median)}/s`]);
  const { worker, processor } = costUs;
  const costs = `${us(worker.median)} ÷ ${us(processor.median)}`;
  add('processor ÷ worker, items per core', worker.median / processor.median, ['≥ 1.5', '3', costs]);
  return ratios;
}

function syncAlways(canonical: SystemSummary, always: SystemSummary): Ratio {
  const [all, synced] = [canonical.acceptedPerSec.median, always.acceptedPerSec.median];
  return {
    name: 'accepted/s, sync always ÷ default',
    value: synced / all,
    bound: '≥ 0.5',
    wish: '0.8',
    raw: `${Math.round(synced)} ÷ ${Math.round(all)}`,
  };
}

/** A whole gzip body, parser and all, against what the bytes would cost by themselves. */
function gzipOverZlib({ micro }: Summary): Ratio[] {
  const body = median(micro, 'decompression: transaction of 4 KB, gzip', 'ns');
  const alone = median(micro, 'decompression: transaction of 4 KB, gunzipSync alone', 'ns');
  if (body === undefined || alone === undefined) return [];
  const raw = `${us(body / 1000)} ÷ ${us(alone / 1000)}`;
  return [{ name: 'gzip body ÷ zlib alone', value: body / alone, bound: '≤ 1.5', wish: '1.2', raw }];
}
