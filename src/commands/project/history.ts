/** `sluice project history`: the changes of a project, of which SLUICE_AUDIT has the records. */
import { type HistoryPage, readHistory } from '../../audit/audit-log.ts';
import type { RecordedChange } from '../../audit/change.ts';
import { UnknownNameError } from '../../projects/names.ts';
import { ProjectStore } from '../../projects/project-store.ts';
import type { NatsLink } from '../../stream/nats.ts';
import { table } from '../print.ts';

/**
 * By id or alias; of a project that was deleted, by id.
 * @throws UnknownNameError when there is neither a project nor a record of one
 */
export async function historyOf(
  link: NatsLink,
  idOrAlias: string,
  page?: HistoryPage,
): Promise<RecordedChange[]> {
  const store = await ProjectStore.open(link);
  const found = await store.get(idOrAlias).catch((error: unknown) => {
    if (error instanceof UnknownNameError) return error;
    throw error;
  });
  if (!(found instanceof Error)) return readHistory(link, found.id, page);
  const changes = await readHistory(link, idOrAlias, page);
  if (changes.length === 0) throw found;
  return changes;
}

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
