/** A run as Markdown, for the summary of a CI job. */
import type { RunDocument } from '../document.ts';
import { number } from './figures.ts';
import { cautionsOf, counts, kneeText, saysNothingOfStores } from './text.ts';

const row = (...cells: readonly string[]): string =>
  `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  return [row(...head), row(...head.map(() => '---')), ...rows.map((cells) => row(...cells))].join('\n');
}

export function summaryMarkdown(document: RunDocument): string {
  const { checks, missed, latencyMs: l, statuses, stages, knee, waitMs: wait, serviceMs: service } = document;
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
      [
        ...['Answered/s', 'Late', 'p50 ms', 'p95 ms', 'p99 ms', 'p99.9 ms', 'max ms'],
        ...['Wait for a connection p99 ms', 'Service p99 ms', 'Failed', 'Told 200, not stored', 'Statuses'],
      ],
      [
        [
          number(document.ratePerSec),
          `${document.late}`,
          ...[l.p50, l.p95, l.p99, l.p999, l.max, wait.p99, service.p99].map(number),
          `${document.failed}`,
          saysNothingOfStores(document) ? 'the server does not say' : counts(document.unstored),
          counts(statuses),
        ],
      ],
    ),
  ];
  if (stages.length > 1)
    parts.push(
      table(
        ['Stage', 'Answered/s', 'Late', 'Failed', 'p50 ms', 'p99 ms'],
        stages.map(({ name, ratePerSec, late, failed, latencyMs: of }) => [
          name,
          number(ratePerSec),
          `${late}`,
          `${failed}`,
          number(of.p50),
          number(of.p99),
        ]),
      ),
    );
  if (knee) parts.push(kneeText(knee));
  for (const why of cautionsOf(document)) parts.push(`⚠️ ${why}.`);
  return `${parts.join('\n\n')}\n`;
}
