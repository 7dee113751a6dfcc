/** Output of commands: JSON for programs, aligned text for people. */
import { setting } from '../config.ts';

/**
 * Characters that steer a terminal or reorder the text on it: control characters except tab and
 * line feed, and format characters (such as those for bidirectional text) except U+200C and U+200D,
 * which scripts need between letters. Such characters are escaped as in JSON, so JSON keeps its
 * meaning.
 */
const STEERING = /[^\P{Cc}\n\t]|[^\P{Cf}\u200c\u200d]|[\u2028\u2029]|\p{Cs}/gu;

const escaped = (text: string): string =>
  Array.from(
    { length: text.length },
    (_, at) => `\\u${text.charCodeAt(at).toString(16).padStart(4, '0')}`,
  ).join('');

/** Escapes characters that would steer the terminal. Line breaks stay. */
export const harmless = (text: string): string => text.replace(STEERING, escaped);

/** Does the same as {@link harmless}, and puts the text into one line, for a cell or a value. */
export const inOneLine = (text: string): string =>
  harmless(text).replaceAll('\n', '\\n').replaceAll('\t', '\\t');

/**
 * Array elements per write. A whole array may not fit one write: a million dead letters come near
 * the longest possible string (2^29 characters). One write for each element would be slow.
 */
const ELEMENTS_PER_WRITE = 1_000;

/** Prints JSON. A long array is written in pieces, which make the same text as one write. */
export function printJson(value: unknown): void {
  if (!Array.isArray(value) || value.length <= ELEMENTS_PER_WRITE)
    return printLine(JSON.stringify(value, null, 2));
  for (let at = 0; at < value.length; at += ELEMENTS_PER_WRITE) {
    const lines = JSON.stringify(value.slice(at, at + ELEMENTS_PER_WRITE), null, 2);
    process.stdout.write(harmless(`${at === 0 ? '[' : ','}${lines.slice(1, -'\n]'.length)}`));
  }
  printLine('\n]');
}

/** Prints a line, in which characters that steer a terminal are escaped. */
export const printLine = (line: string): void => {
  process.stdout.write(`${harmless(line)}\n`);
};

/** Foreground colours of words that tell a state (ECMA-48). */
const COLOURS: Readonly<Record<string, number>> = {
  ok: 32,
  enabled: 32,
  warn: 33,
  'no key': 33,
  fail: 31,
  disabled: 31,
};
const DEFAULT_COLOUR = 39;

/** Whether the output is a terminal whose user has not set NO_COLOR (no-color.org). */
const hasColours = (): boolean =>
  process.stdout.isTTY && setting('NO_COLOR') === undefined && setting('TERM') !== 'dumb';

/**
 * Prints lines, in which a terminal shows states in colour. The colours are added after the
 * escaping, so text of a client cannot bring any colour.
 * @param states matches the beginning of a line up to its state, which is the group `state`
 */
export function printStates(lines: string, states: RegExp): void {
  const text = harmless(lines);
  const painted = text.replace(states, (...parts) => {
    const [found, { state }] = [`${parts[0]}`, parts.at(-1) as { state: string }];
    const before = found.slice(0, found.length - state.length);
    return `${before}\u001b[${COLOURS[state]}m${state}\u001b[${DEFAULT_COLOUR}m`;
  });
  process.stdout.write(`${hasColours() ? painted : text}\n`);
}

/** Length of the longest text. Math.max could take at most some 125,000 texts. */
function longest(texts: readonly string[]): number {
  let length = 0;
  for (const text of texts) length = Math.max(length, text.length);
  return length;
}

/** Makes a table. A column is as wide as its widest cell; `right` names columns of numbers. */
export function table(
  header: readonly string[],
  rows: readonly (readonly string[])[],
  right: readonly string[] = [],
): string {
  const shown = rows.map((row) => row.map(inOneLine));
  const widths = header.map((title, at) => longest([title, ...shown.map((row) => row[at] ?? '')]));
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, at) => {
        const width = widths[at] ?? 0;
        return right.includes(header[at] ?? '') ? cell.padStart(width) : cell.padEnd(width);
      })
      .join('  ')
      .trimEnd();
  return [line(header), ...shown.map(line)].join('\n');
}

/** Makes one line for each pair that has a value, with the names aligned. */
export function record(pairs: readonly (readonly [name: string, value: unknown])[]): string {
  const known = pairs.filter(([, value]) => value !== undefined);
  const width = longest(known.map(([name]) => name));
  return known.map(([name, value]) => `${name.padEnd(width)}  ${inOneLine(`${value}`)}`.trimEnd()).join('\n');
}
