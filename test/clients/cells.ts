/** The table of the matrix: what every SDK is told to do, and what must be stored afterwards. */
import { expect } from 'vitest';
import type { StoredRecord } from '../support/system.ts';
import type { Answer, FLUSH, Step } from './client.ts';

export type Cell = {
  readonly title: string;
  /** In milliseconds, between two steps. */
  readonly silence?: number;
  readonly steps: readonly Act[];
  /** The SDK is flushed after so many steps, where its client allows it; 1 unless it is said. */
  readonly atOnce?: number;
};
export type Act = Exclude<Step, typeof FLUSH>;

/** 72,000 characters in four lengths of UTF-8, with what JSON must escape. */
export const LONG_TEXT = [...'Größe → "ok"\n\t\\ 🚰 '.repeat(4_000)].slice(0, 72_000).join('');

const message = (text: string): Act => ({ do: 'message', text });
const afterSilence = (seconds: number): Cell => ({
  title: `loses no event before and after ${seconds} s of silence`,
  silence: seconds * 1_000,
  steps: [message(`before ${seconds} s`), message(`after ${seconds} s`)],
});

export const CELLS: readonly Cell[] = [
  { title: 'reports an exception', steps: [{ do: 'exception', text: 'cart is undefined' }] },
  { title: 'reports a message of 72,000 characters', steps: [message(LONG_TEXT)] },
  { title: 'reports a trace', steps: [{ do: 'trace', name: 'GET /checkout', child: 'select cart' }] },
  { title: 'reports a log', steps: [{ do: 'log', text: 'order placed für 42 €' }] },
  {
    title: 'loses none of 100 events',
    atOnce: 10,
    steps: Array.from({ length: 100 }, (_, at) => message(`one of many: ${at}`)),
  },
  afterSilence(15),
  afterSilence(65),
];
/** From the answer to the SDK until the processor has written it. */
const STORED_MS_MAX = 20_000;

export const RESTART_CELL: Cell = {
  title: 'goes on after a restart of the server',
  steps: [message('before the restart'), message('after the restart')],
};

type Value = { value: string };
type Values = Value[];
type Payload = {
  // Of an event: SDKs put its text in three places.
  message?: string | { formatted: string };
  logentry?: { message?: string; formatted?: string };
  exception?: Values | { values: Values } | Value;
  // Of a transaction.
  transaction?: string;
  contexts?: { trace?: { trace_id: string } };
  spans?: { description: string }[];
  // Of a container of logs or spans.
  items?: { body?: string; name?: string; trace_id: string }[];
};

/** What an event says. */
export function textOf(record: StoredRecord): string | undefined {
  const { message, logentry, exception } = record.payload as Payload;
  if (exception && 'value' in exception) return exception.value;
  if (exception) return (Array.isArray(exception) ? exception : exception.values).at(-1)?.value;
  if (typeof message === 'object') return message.formatted;
  return message ?? logentry?.formatted ?? logentry?.message;
}

/** What a record holds of what the step made: texts of events and logs, names of spans. */
function heldBy(record: StoredRecord, step: Act, answer: Answer): (string | undefined)[] {
  const { transaction, contexts, spans = [], items = [] } = record.payload as Payload;
  if (step.do === 'log')
    return record.type === 'log' ? items.map(({ body }) => body).filter((body) => body === step.text) : [];
  if (step.do !== 'trace')
    return record.type === 'event' && record.event_id === answer.id ? [textOf(record)] : [];
  if (record.type === 'span')
    return items.filter(({ trace_id }) => trace_id === answer.trace).map(({ name }) => name);
  if (record.type !== 'transaction' || contexts?.trace?.trace_id !== answer.trace) return [];
  return [transaction, ...spans.map(({ description }) => description)];
}

const madeBy = (step: Act, ownSpans: readonly string[]): string[] =>
  step.do === 'trace' ? [step.name, step.child, ...ownSpans].sort() : [step.text];

type Said = {
  answers: readonly Answer[];
  traces: 'span' | 'transaction';
  ownSpans: readonly string[] | undefined;
};

/** Everything that the cell's steps made is stored once and unchanged. */
export async function expectStored(
  records: () => StoredRecord[],
  { steps }: Cell,
  { answers, traces, ownSpans = [] }: Said,
): Promise<void> {
  expect(answers).toHaveLength(steps.length);
  const held = (record: StoredRecord, at: number) => heldBy(record, steps[at] as Act, answers[at] as Answer);
  const stored = () => {
    const all = records();
    return steps.map((_, at) => all.flatMap((record) => held(record, at)).sort());
  };
  await expect.poll(stored, { timeout: STORED_MS_MAX }).toEqual(steps.map((step) => madeBy(step, ownSpans)));
  const found = records().filter((record) => steps.some((_, at) => held(record, at).length > 0));
  for (const { type, item_header, payload } of found) {
    if (steps[0]?.do === 'trace') expect(type).toBe(traces);
    if ('items' in payload) expect(item_header.item_count).toBe((payload as Payload).items?.length);
  }
}
