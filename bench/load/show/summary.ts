/** A run as Markdown, for the summary of a CI job. */
import type { RunDocument } from '../document.ts';
import { number } from './figures.ts';
import { kneeText } from './text.ts';

const row = (...cells: readonly string[]): string =>
  `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  return [row(...head), row(...head.map(() => '---')), ...rows.map((cells) => row(...cells))].join('\n');
}

export function summaryMarkdown(document: RunDocument): string {
  const { checks, missed, latencyMs: l, statuses, stages, generator, knee } = document;
  const verdict =
    missed.length === 0 ? '✅ everything holds' : `❌ ${missed.length} of ${checks.length} do not hold`;
  const parts = [
    `## sluice load: ${verdict}`,
    table(
      ['Check', 'Found', ''],
      checks.map(({ name, figure, missed: said }) => [
        name,
        figure,
        said === undefined ? '✅' : `❌ ${said}`,
      ]),
    ),
    table(
      ['Answered/s', 'p50 ms', 'p95 ms', 'p99 ms', 'p99.9 ms', 'max ms', 'Failed', 'Statuses'],
      [
        [
          number(document.ratePerSec),
          ...[l.p50, l.p95, l.p99, l.p999, l.max].map(number),
          `${document.failed}`,
          Object.entries(statuses)
            .map(([status, count]) => `${status}: ${count}`)
            .join(', '),
        ],
      ],
    ),
  ];
  if (stages.length > 1)
    parts.push(
      table(
        ['Stage', 'Answered', 'Failed', 'p50 ms', 'p99 ms'],
        stages.map(({ name, ok, failed, latencyMs: of }) => [
          name,
          `${ok}`,
          `${failed}`,
          number(of.p50),
          number(of.p99),
        ]),
      ),
    );
  if (knee) parts.push(kneeText(knee));
  for (const why of generator.bottleneck)
    parts.push(`⚠️ ${why}: the figures are the generator's, not the server's.`);
  return `${parts.join('\n\n')}\n`;
}
