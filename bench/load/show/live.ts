/**
 * Shows a run while it goes on: one line a second, or on a terminal a small chart of the last
 * minute, which is redrawn in place.
 */
import type { Second } from '../result.ts';
import { number } from './figures.ts';

const BARS = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const SECONDS_SHOWN = 60;
const LABEL_CHARS = 22;
const LINES = 4;

/** Draws each value as a bar. The scale goes from 0 to the largest value. */
export function sparkline(values: readonly number[]): string {
  const largest = Math.max(...values, 0);
  return values
    .map((value) => {
      const step = largest === 0 ? 0 : Math.ceil((value / largest) * (BARS.length - 1));
      return BARS[Math.min(BARS.length - 1, step)];
    })
    .join('');
}

const refusals = ({ statuses }: Second): string =>
  Object.entries(statuses)
    .filter(([status]) => status !== '200')
    .map(([status, count]) => `${status}: ${count}`)
    .join('  ');

/**
 * Returns the rate of answers. After the end of the run it is the mere count, because nothing else
 * comes in that second.
 */
const rateOf = ({ ok, failed, ms, late }: Second): number =>
  (ok + failed) * (late || ms === 0 ? 1 : 1000 / ms);

/** Makes the line for a second: `  12 s      998/s  p50 2.10 ms  p99 8.40 ms  open 3  429: 3` */
export function secondLine(second: Second): string {
  const others = refusals(second);
  const unit = second.late ? ' after the end' : '/s';
  return `${String(second.second).padStart(4)} s  ${number(rateOf(second)).padStart(9)}${unit}  p50 ${number(second.p50Ms)} ms  p99 ${number(second.p99Ms)} ms  open ${second.open}${others && `  ${others}`}`;
}

export type Screen = {
  write(text: string): unknown;
  isTTY?: boolean | undefined;
  columns?: number | undefined;
};

export class LiveView {
  readonly #screen: Screen;
  readonly #seconds: Second[] = [];
  #isDrawn = false;

  constructor(screen: Screen) {
    this.#screen = screen;
  }

  show(second: Second): void {
    if (!this.#screen.isTTY) {
      this.#screen.write(`${secondLine(second)}\n`);
      return;
    }
    this.#seconds.push(second);
    if (this.#seconds.length > SECONDS_SHOWN) this.#seconds.shift();
    const up = this.#isDrawn ? `\x1b[${LINES}A` : '';
    // Each line is cleared to its end, because the line before may have been longer.
    this.#screen.write(
      `${up}${this.#lines(second)
        .map((line) => `\r${line}\x1b[K\n`)
        .join('')}`,
    );
    this.#isDrawn = true;
  }

  #lines(second: Second): string[] {
    const p99Of = ({ p99Ms }: Second): number => p99Ms ?? 0;
    const width = Math.max(10, (this.#screen.columns ?? 80) - LABEL_CHARS - 1);
    const last = this.#seconds.slice(-width);
    const chart = (label: string, of: (one: Second) => number): string =>
      `${label.padEnd(LABEL_CHARS)}${sparkline(last.map(of))}`;
    const most = (of: (one: Second) => number): string => number(Math.max(...last.map(of)));
    return [
      secondLine(second).slice(0, (this.#screen.columns ?? 80) - 1),
      chart(`rate, to ${most(rateOf)}/s`, rateOf),
      chart(`p99, to ${most(p99Of)} ms`, p99Of),
      chart(`failed, to ${most(({ failed }) => failed)}/s`, ({ failed }) => failed),
    ];
  }
}
