/**
 * `npm run bench -- sim [--smoke] [--out FOLDER]`: what the length of a lease costs and saves at 500 workers that share one
 * project with a limit of 100,000 a minute. Pure: an injected clock, seeded demand, seconds of run time.
 *
 * A reserve may be as large as its lease is long (0.5 % of the limit per half second, 2 % while contended), and is asked for half a lease of demand.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { LEASE_SHAPE, type LeaseShape } from '../../src/ingest/limit/scope-cache.ts';
import { seededRandom, zipf } from '../random.ts';
import { linearTicks, linePlot, type Point } from '../svg.ts';
import { World, type WorldResult } from './world.ts';

const WAY_MS = 1;
/** Demand as a share of the limit: where refusals would be false, and where every unused token is a loss. */
const CALM = 0.9;
const OVER = 1.5;

export type Size = { workers: number; limit: number; measuredMs: number; leasesMs: readonly number[] };
export type Row = {
  leaseMs: number;
  /** Share of the limit that steady over-demand could not use. */
  unused: number;
  /** Share of requests refused although the demand is below the limit. */
  refusedCalm: number;
  /** Redis calls per second, and per request, of all workers. */
  callsOver: number;
  callsCalm: number;
  callsPerRequestCalm: number;
  /** The most admissions in any 60 seconds as a share of the limit; never above 1. */
  busiest: number;
};

const FULL: Size = {
  workers: 500,
  limit: 100_000,
  measuredMs: 180_000,
  leasesMs: [250, 500, 1_000, 2_000, 4_000],
};
const SMOKE: Size = { workers: 20, limit: 3_000, measuredMs: 5_000, leasesMs: [250, 500] };

const shapeOf = (leaseMs: number): LeaseShape => ({
  reserveMs: leaseMs,
  reserveShare: (LEASE_SHAPE.reserveShare * leaseMs) / LEASE_SHAPE.reserveMs,
  contendedShare: (LEASE_SHAPE.contendedShare * leaseMs) / LEASE_SHAPE.reserveMs,
});

export function simulate(size: Size, seed: number): Row[] {
  const { workers, limit, measuredMs, leasesMs } = size;
  const run = (leaseMs: number, share: number): WorldResult =>
    new World({
      workers,
      weights: zipf(workers),
      limit,
      demand: limit * share,
      begin: 'steady',
      shape: shapeOf(leaseMs),
      wayMs: WAY_MS,
      random: seededRandom(seed),
    }).run(measuredMs);
  return leasesMs.map((leaseMs) => {
    const over = run(leaseMs, OVER);
    const calm = run(leaseMs, CALM);
    return {
      leaseMs,
      unused: 1 - over.admitted / ((limit * measuredMs) / 60_000),
      // Those admitted first were asked for a moment before the measured time.
      refusedCalm: Math.max(0, 1 - calm.admitted / calm.requests),
      callsOver: (over.calls * 1000) / measuredMs,
      callsCalm: (calm.calls * 1000) / measuredMs,
      callsPerRequestCalm: calm.calls / calm.requests,
      busiest: Math.max(over.busiestWindow, calm.busiestWindow) / limit,
    };
  });
}

const percent = (share: number): string => `${(share * 100).toFixed(2)} %`;

export function tableText(rows: readonly Row[], size: Size): string {
  const head = ['lease', 'unused', 'refused', 'calls/s', 'calls/s', 'calls per', 'busiest 60 s'];
  const under = ['ms', 'at 1.5x', 'at 0.9x', 'at 1.5x', 'at 0.9x', 'request', 'of the limit'];
  const cells = rows.map((row) => [
    `${row.leaseMs}`,
    percent(row.unused),
    percent(row.refusedCalm),
    row.callsOver.toFixed(0),
    row.callsCalm.toFixed(0),
    row.callsPerRequestCalm.toFixed(3),
    percent(row.busiest),
  ]);
  const lines = [head, under, ...cells].map((line) => line.map((cell) => cell.padStart(14)).join(''));
  const title = `${size.workers} workers (Zipf), one project, limit ${size.limit} a minute; ${size.measuredMs / 1000} s after two minutes`;
  return [title, ...lines].join('\n');
}

export function plotSvg(rows: readonly Row[]): string {
  const points = (of: (row: Row) => number): Point[] => rows.map((row) => [row.leaseMs, of(row)]);
  const series = [
    { name: 'unused at 1.5x, %', points: points(({ unused }) => unused * 100) },
    { name: 'refused at 0.9x, %', points: points(({ refusedCalm }) => refusedCalm * 100) },
    { name: '100 calls/s at 1.5x', points: points(({ callsOver }) => callsOver / 100) },
    { name: '100 calls/s at 0.9x', points: points(({ callsCalm }) => callsCalm / 100) },
  ];
  const values = series.flatMap((one) => one.points.map(([, y]) => y));
  return linePlot({
    title: 'Error and Redis calls against lease length',
    x: {
      label: 'lease of the reserve, ms',
      ticks: rows.map(({ leaseMs }) => [leaseMs, `${leaseMs}`]),
      log: true,
    },
    y: { label: 'percent, and hundreds of calls a second over all workers', ticks: linearTicks(values) },
    series,
  }).replace('<svg ', '<svg xmlns="http://www.w3.org/2000/svg" ');
}

/** @returns exit status: 1 when a window held more than the limit */
export function simCommand(args: string[]): number {
  const { values } = parseArgs({
    args,
    options: {
      smoke: { type: 'boolean', default: false },
      out: { type: 'string' },
      seed: { type: 'string', default: '1' },
    },
  });
  const size = values.smoke ? SMOKE : FULL;
  const rows = simulate(size, Number(values.seed));
  const text = `${tableText(rows, size)}\nseed ${values.seed}\n`;
  process.stdout.write(text);
  if (values.out !== undefined) {
    mkdirSync(values.out, { recursive: true });
    writeFileSync(join(values.out, 'sim.txt'), text);
    writeFileSync(join(values.out, 'sim.svg'), plotSvg(rows));
  }
  return rows.every(({ busiest }) => busiest <= 1) ? 0 : 1;
}
