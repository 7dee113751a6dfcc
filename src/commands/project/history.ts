/** The changes of a project as they are printed. Pure. */
import type { RecordedChange } from '../../audit/change.ts';
import { table } from '../print.ts';

const valueText = (value: unknown): string => {
  if (value === undefined) return 'none';
  return typeof value === 'string' ? value : JSON.stringify(value);
};

function changeText({ action, from = {}, to = {} }: RecordedChange): string {
  const names = Object.keys({ ...from, ...to });
  const texts = names.map((name) => {
    if (action !== 'change') return `${name} ${valueText({ ...from, ...to }[name])}`;
    return `${name} ${valueText(from[name])} → ${valueText(to[name])}`;
  });
  return texts.join(', ');
}

export function historyText(changes: readonly RecordedChange[]): string {
  const rows = changes.map((change) => [change.at, change.by, change.action, changeText(change)]);
  return table(['WHEN', 'BY', 'ACTION', 'FIELDS'], rows);
}
