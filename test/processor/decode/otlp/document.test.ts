/** docs/otlp.md names every field that the processor decodes, and every name under which one is stored. */
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { MESSAGES } from '../../../../src/processor/decode/otlp/messages.ts';
import { COLUMNS } from '../../../../src/sink/columns.ts';
import { attributesOf, encoded, logsOf, parts, SPAN, tracesOf } from './requests.ts';

const DOCUMENT = readFileSync(new URL('../../../../docs/otlp.md', import.meta.url), 'utf8');
/** The cells of all table rows. */
const ROWS = DOCUMENT.split('\n')
  .filter((line) => line.startsWith('| `'))
  .map((line) => line.slice(2, -2).split(' | '));
const wordsIn = (cell = ''): string[] => [...cell.matchAll(/`([^`]+)`/g)].map(([, word = '']) => word);
const snake = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

const DOCUMENTED = [
  'Span',
  'Event',
  'Link',
  'Status',
  'LogRecord',
  'AnyValue',
  'Resource',
  'InstrumentationScope',
] as const;

it('names the fields of all messages that become rows, and no others', () => {
  const fields = DOCUMENTED.flatMap((message) =>
    Object.values(MESSAGES[message]).map((field: string) => `${message}.${snake(field.split(' ')[0] ?? '')}`),
  );
  const named = ROWS.flatMap(([first]) => wordsIn(first)).filter((word) => /^[A-Z]\w+\.\w+$/.test(word));
  expect(named.sort()).toEqual(fields.sort());
});

const counts = { droppedAttributesCount: 1, droppedEventsCount: 1, droppedLinksCount: 1 };
const common = { attributes: attributesOf({ a: 'b' }), flags: 0x301, traceState: 'a=1', ...counts };
const SPAN_OF_ALL = {
  ...SPAN,
  ...common,
  parentSpanId: 'eee19b7ec3c1b175',
  kind: 2,
  status: { code: 1, message: 'x' },
  events: [{ ...common, timeUnixNano: '1', name: 'e' }],
  links: [{ ...common, traceId: SPAN.traceId, spanId: SPAN.spanId }],
};
const LOG_OF_ALL = {
  ...common,
  timeUnixNano: '1',
  observedTimeUnixNano: '2',
  severityNumber: 9,
  severityText: 'x',
  body: { intValue: '1' },
  traceId: SPAN.traceId,
  spanId: SPAN.spanId,
  eventName: 'e',
};
const MORE = {
  resource: { attributes: attributesOf({ a: 'b' }), droppedAttributesCount: 1 },
  scope: { name: 's', version: '1', attributes: attributesOf({ a: 'b' }), droppedAttributesCount: 1 },
};

/** The names in an element: of its members, and of its attributes other than the clients' own. */
function namesIn(value: unknown, inAttributes = false): string[] {
  if (Array.isArray(value)) return value.flatMap((one) => namesIn(one));
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([name, of]) =>
    inAttributes ? name.replace(/\.a$/, '.<key>') : [name, ...namesIn(of, name === 'attributes')],
  );
}

it.each([
  ['otlp_traces', tracesOf([SPAN_OF_ALL], MORE), /^(Span|Event|Link|Status|Resource|InstrumentationScope)\./],
  ['otlp_logs', logsOf([LOG_OF_ALL], MORE), /^(LogRecord|Resource|InstrumentationScope)\./],
] as const)('names all under which %s are stored', async (type, request, fields) => {
  const [found] = await parts(type, encoded(type, request, 'protobuf'), 'protobuf');
  const stored = new Set(
    namesIn((JSON.parse(found?.text ?? '') as { items: unknown[] }).items).filter((name) => name !== 'a'),
  );
  const named = new Set(
    ROWS.filter(([first]) => fields.test(wordsIn(first)[0] ?? '')).flatMap(([, second]) => wordsIn(second)),
  );
  expect([...stored].filter((name) => !named.has(name))).toEqual([]);
});

it('names the attributes that fill the columns, in their order', () => {
  for (const name of ['service', 'environment', 'release'] as const) {
    const from = COLUMNS.spans.find((column) => column.name === name)?.from as readonly (readonly string[])[];
    const [, attributes] = ROWS.find(([first]) => first === `\`${name}\``) ?? [];
    expect(wordsIn(attributes)).toEqual(from.map(([, attribute]) => attribute));
  }
});
