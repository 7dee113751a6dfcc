/**
 * Makes the report: one page that contains its style, its script and the run's figures, so that it
 * can be opened offline.
 */
import { readFileSync } from 'node:fs';
import type { RunDocument } from '../document.ts';
import { histogramSteps, Recording } from '../recording.ts';
import { statusName } from '../result.ts';
import { cautionsOf, saysNothingOfStores } from './text.ts';

const part = (extension: string): string =>
  readFileSync(new URL(`./report-view.${extension}`, import.meta.url), 'utf8');

const BUCKETS_PER_DECADE = 12;

/**
 * Returns for each status how many latencies lie in each step. The steps are equally wide on a
 * logarithmic scale.
 */
function distributionOf({ histograms = [] }: RunDocument): Record<string, [ms: number, count: number][]> {
  const kinds = [...new Set(histograms.map(({ kind }) => kind))];
  const recording = Recording.from(kinds, histograms);
  const byStatus: Record<string, [number, number][]> = {};
  for (const status of recording.statuses().keys()) {
    const steps = new Map<number, number>();
    for (const [us, count] of histogramSteps(recording.sum((place) => place.status === status))) {
      const step = Math.ceil(Math.log10(Math.max(us, 1) / 1000) * BUCKETS_PER_DECADE);
      steps.set(step, (steps.get(step) ?? 0) + count);
    }
    byStatus[statusName(status)] = [...steps]
      .sort(([a], [b]) => a - b)
      .map(([step, count]) => [10 ** (step / BUCKETS_PER_DECADE), count]);
  }
  return byStatus;
}

/** Makes JSON for a script element. As `<` is escaped, no text in it can end the element. */
const inScript = (value: unknown): string => JSON.stringify(value).replaceAll('<', '\\u003c');

export function reportHtml(document: RunDocument): string {
  const { histograms: _, parts: _parts, perSecond, ...rest } = document;
  const data = {
    ...rest,
    cautions: cautionsOf(document),
    saysNothingOfStores: saysNothingOfStores(document),
    perSecond: perSecond.map(({ hdr: _hdr, ...second }) => second),
    distribution: distributionOf(document),
    stepsPerDecade: BUCKETS_PER_DECADE,
  };
  return part('html')
    .replace('<!-- style -->', () => `<style>${part('css')}</style>`)
    .replace('<!-- data -->', () => `<script type="application/json" id="data">${inScript(data)}</script>`)
    .replace('<!-- script -->', () => `<script>${part('js')}</script>`);
}
