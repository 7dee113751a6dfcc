/** Plots as inline SVG: no script, no font, nothing to fetch. Colours tell series apart in light and dark print alike. */

export type Point = readonly [x: number, y: number];
export type Series = { name: string; points: readonly Point[] };
export type Axis = { label: string; ticks: readonly (readonly [at: number, text: string])[]; log?: boolean };
export type PlotOptions = { title: string; x: Axis; y: Axis; series: readonly Series[] };

const COLOURS = [
  '#1668b8',
  '#d1600a',
  '#1b8a4b',
  '#a3328f',
  '#8a6d00',
  '#4d4d4d',
  '#c02a2a',
  '#0a8f9b',
  '#6b4fd8',
  '#7a3b1e',
];
const [WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM] = [720, 360, 70, 40, 20, 50];

export const escaped = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
const colour = (at: number): string => COLOURS[at % COLOURS.length] as string;
const round = (value: number): number => Math.round(value * 10) / 10;

type Scale = (value: number) => number;
function scaleOf({ ticks, log = false }: Axis, from: number, to: number): Scale {
  const place = (value: number): number => (log ? Math.log10(Math.max(value, 1e-9)) : value);
  const ends = ticks.map(([at]) => place(at));
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const span = high - low || 1;
  return (value) => from + ((Math.min(high, Math.max(low, place(value))) - low) / span) * (to - from);
}

/** Powers of ten, and 2 and 5 between them, around the values. */
export function logTicks(values: readonly number[]): [number, string][] {
  const positive = values.filter((value) => value > 0);
  const from = Math.floor(Math.log10(Math.min(...positive, 1)));
  const to = Math.ceil(Math.log10(Math.max(...positive, 1)));
  const ticks: [number, string][] = [];
  for (let power = from; power <= Math.max(to, from + 1); power++)
    ticks.push([10 ** power, `${Number((10 ** power).toPrecision(1))}`]);
  return ticks;
}

/** From 0 to above the largest value, in round steps. */
export function linearTicks(values: readonly number[]): [number, string][] {
  const largest = Math.max(...values, 1e-9);
  const rough = largest / 5;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5, 10].find((factor) => factor * unit >= rough) ?? 10) * unit;
  const count = Math.ceil(largest / step);
  return Array.from({ length: count + 1 }, (_, i) => [i * step, (i * step).toLocaleString('en-US')]);
}

function frame({ title, x, y }: PlotOptions, [scaleX, scaleY]: readonly [Scale, Scale]): string {
  const [right, bottom] = [WIDTH - RIGHT, HEIGHT - BOTTOM];
  const vertical = x.ticks.map(([at, text]) => {
    const place = round(scaleX(at));
    return `<line x1="${place}" y1="${TOP}" x2="${place}" y2="${bottom}" stroke="#e2e2e2"/><text x="${place}" y="${bottom + 16}" text-anchor="middle">${escaped(text)}</text>`;
  });
  const horizontal = y.ticks.map(([at, text]) => {
    const place = round(scaleY(at));
    return `<line x1="${LEFT}" y1="${place}" x2="${right}" y2="${place}" stroke="#e2e2e2"/><text x="${LEFT - 6}" y="${place + 4}" text-anchor="end">${escaped(text)}</text>`;
  });
  const labels = `<text x="${(LEFT + right) / 2}" y="${HEIGHT - 10}" text-anchor="middle">${escaped(x.label)}</text><text x="${LEFT}" y="${TOP - 22}" font-weight="bold">${escaped(title)}</text><text x="${LEFT}" y="${TOP - 8}">${escaped(y.label)}</text>`;
  return vertical.join('') + horizontal.join('') + labels;
}

const svg = (height: number, title: string, content: string): string =>
  `<svg viewBox="0 0 ${WIDTH} ${height}" role="img" font-family="sans-serif" font-size="12" fill="#333"><title>${escaped(title)}</title>${content}</svg>`;

const legend = (names: readonly string[], top: number): string =>
  names
    .map((name, at) => {
      const [x, y] = [LEFT + (at % 4) * 160, top + Math.floor(at / 4) * 18];
      return `<rect x="${x}" y="${y - 9}" width="10" height="10" fill="${colour(at)}"/><text x="${x + 15}" y="${y}">${escaped(name)}</text>`;
    })
    .join('');
const legendHeight = (names: readonly string[]): number => Math.ceil(names.length / 4) * 18 + 8;

export function linePlot(options: PlotOptions): string {
  const { x, y, series } = options;
  const scales = [scaleOf(x, LEFT, WIDTH - RIGHT), scaleOf(y, HEIGHT - BOTTOM, TOP)] as const;
  const lines = series.map(({ points }, at) => {
    const path = points.map(([px, py]) => `${round(scales[0](px))},${round(scales[1](py))}`).join(' ');
    return `<polyline fill="none" stroke="${colour(at)}" stroke-width="1.8" points="${path}"/>`;
  });
  const names = series.map(({ name }) => name);
  return svg(
    HEIGHT + legendHeight(names),
    options.title,
    frame(options, scales) + lines.join('') + legend(names, HEIGHT + 10),
  );
}

export type Bar = { name: string; parts: readonly number[] };

/** Horizontal bars, one per name, split by part. */
export function barPlot(title: string, parts: readonly string[], bars: readonly Bar[]): string {
  const [rowHeight, left] = [24, 190];
  const largest = Math.max(1e-9, ...bars.map((bar) => bar.parts.reduce((a, b) => a + b, 0)));
  const width = (value: number): number => (value / largest) * (WIDTH - left - 80);
  const rows = bars.map((bar, row) => {
    const y = TOP + row * rowHeight;
    let x = left;
    const pieces = bar.parts.map((value, at) => {
      const piece = `<rect x="${round(x)}" y="${y}" width="${round(width(value))}" height="16" fill="${colour(at)}"><title>${escaped(parts[at] ?? '')} ${round(value)}</title></rect>`;
      x += width(value);
      return piece;
    });
    const sum = bar.parts.reduce((a, b) => a + b, 0);
    return `<text x="${left - 8}" y="${y + 13}" text-anchor="end">${escaped(bar.name)}</text>${pieces.join('')}<text x="${round(x) + 6}" y="${y + 13}">${round(sum)}</text>`;
  });
  const bottom = TOP + bars.length * rowHeight + 14;
  const heading = `<text x="10" y="18" font-weight="bold">${escaped(title)}</text>`;
  return svg(bottom + legendHeight(parts), title, heading + rows.join('') + legend(parts, bottom));
}
