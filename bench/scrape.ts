/** Prometheus text as a map from sample (`name{labels}` as it stands there) to value. */
export type Samples = ReadonlyMap<string, number>;

export function parseSamples(text: string): Samples {
  const samples = new Map<string, number>();
  for (const line of text.split('\n')) {
    const space = line.lastIndexOf(' ');
    if (line.startsWith('#') || space < 0) continue;
    samples.set(line.slice(0, space), Number(line.slice(space + 1)));
  }
  return samples;
}

/** @throws when the page cannot be had */
export async function scrape(url: string): Promise<Samples> {
  const response = await fetch(url, { signal: AbortSignal.timeout(5_000) });
  if (!response.ok) throw new Error(`${url} answered ${response.status}`);
  return parseSamples(await response.text());
}

/** Sum of all samples of a metric whose labels contain `label`, such as `outcome="accepted"`. */
export function total(samples: Samples, name: string, label = ''): number {
  let sum = 0;
  for (const [sample, value] of samples)
    if ((sample === name || sample.startsWith(`${name}{`)) && sample.includes(label)) sum += value;
  return sum;
}

/** By the value of one label, how much a counter grew between two scrapes; what did not grow is left out. */
export function growth(
  before: Samples,
  after: Samples,
  { name, label }: { name: string; label: string },
): Record<string, number> {
  const grown: Record<string, number> = {};
  for (const [sample, value] of after) {
    if (!sample.startsWith(`${name}{`)) continue;
    const key = new RegExp(`[{,]${label}="([^"]*)"`).exec(sample)?.[1];
    const delta = value - (before.get(sample) ?? 0);
    if (key !== undefined && delta !== 0) grown[key] = (grown[key] ?? 0) + delta;
  }
  return grown;
}
