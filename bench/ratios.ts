/** Figures of one run beside each other, with the bounds that we hold ourselves to: ratios carry to other machines, rates do not. Pure. */
import type { Row, Summary, SystemSummary } from './summary.ts';

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
  return [
    ...(single ? singleEvent(summary, single) : []),
    ...(canonical ? againstCanonical(scenario, canonical) : []),
    ...gzipOverZlib(summary),
  ];
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
    const worker = costUs.worker.median;
    add('worker ÷ bare handler, CPU', worker / bare, ['≤ 2.5', '2', `${us(worker)} ÷ ${us(bare)}`]);
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

function againstCanonical(
  scenario: (name: string) => SystemSummary | undefined,
  canonical: SystemSummary,
): Ratio[] {
  const two = scenario('two-workers');
  const one = scenario('hot-project');
  const many = scenario('ten-thousand-projects');
  const always = scenario('sync-always');
  const cost = (a: SystemSummary, b: SystemSummary): Pick<Ratio, 'value' | 'bound' | 'wish' | 'raw'> => ({
    value: a.costUs.worker.median / b.costUs.worker.median,
    bound: '≤ 1.3',
    wish: '1.1',
    raw: `${us(a.costUs.worker.median)} ÷ ${us(b.costUs.worker.median)}`,
  });
  const rate = (a: SystemSummary): number => a.acceptedPerSec.median;
  return [
    ...(two ? [{ name: 'cost, 2 workers ÷ 1', ...cost(two, canonical) }] : []),
    ...(many && one ? [{ name: 'cost, 10,000 projects ÷ 1', ...cost(many, one) }] : []),
    ...(always
      ? [
          {
            name: 'accepted/s, sync always ÷ default',
            value: rate(always) / rate(canonical),
            bound: '≥ 0.5',
            wish: '0.8',
            raw: `${Math.round(rate(always))} ÷ ${Math.round(rate(canonical))}`,
          },
        ]
      : []),
  ];
}

/** A whole gzip body, parser and all, against what the bytes would cost by themselves. */
function gzipOverZlib({ micro }: Summary): Ratio[] {
  const body = median(micro, 'decompression: transaction of 4 KB, gzip', 'ns');
  const alone = median(micro, 'decompression: transaction of 4 KB, gunzipSync alone', 'ns');
  if (body === undefined || alone === undefined) return [];
  const raw = `${us(body / 1000)} ÷ ${us(alone / 1000)}`;
  return [{ name: 'gzip body ÷ zlib alone', value: body / alone, bound: '≤ 1.5', wish: '1.2', raw }];
}
