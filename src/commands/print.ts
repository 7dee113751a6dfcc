/** Output of commands: JSON for programs, aligned text for people. */

/**
 * Characters that steer a terminal or reorder what it shows: controls but tabs and line breaks, and
 * format characters (bidirectional text among them) but those that join letters. Escaped as in
 * JSON, so that JSON stays what it is.
 */
const STEERING = /[^\P{Cc}\n\t]|[^\P{Cf}\u200c\u200d]|[\u2028\u2029]|\p{Cs}/gu;

const escaped = (text: string): string =>
  Array.from(
    { length: text.length },
    (_, at) => `\\u${text.charCodeAt(at).toString(16).padStart(4, '0')}`,
  ).join('');

/** Text that a client or an operator wrote, which must not steer the terminal. Line breaks stay. */
export const harmless = (text: string): string => text.replace(STEERING, escaped);

/** The same in one line, for a cell or a value. */
export const inOneLine = (text: string): string =>
  harmless(text).replaceAll('\n', '\\n').replaceAll('\t', '\\t');

/**
 * A million dead letters come near what one string may hold (2^29 characters); a write for each
 * would be slow.
 */
const ELEMENTS_PER_WRITE = 1_000;

/** An array goes out in pieces, as the same text. */
export function printJson(value: unknown): void {
  if (!Array.isArray(value) || value.length <= ELEMENTS_PER_WRITE)
    return printLine(JSON.stringify(value, null, 2));
  for (let at = 0; at < value.length; at += ELEMENTS_PER_WRITE) {
    const lines = JSON.stringify(value.slice(at, at + ELEMENTS_PER_WRITE), null, 2);
    process.stdout.write(harmless(`${at === 0 ? '[' : ','}${lines.slice(1, -'\n]'.length)}`));
  }
  printLine('\n]');
}

/** Everything that commands print for people and programs goes through here. */
export const printLine = (line: string): void => {
  process.stdout.write(`${harmless(line)}\n`);
};

/**
 * Length of the longest text. There may be more texts than a call takes arguments, some 125,000.
 */
function longest(texts: readonly string[]): number {
  let length = 0;
  for (const text of texts) length = Math.max(length, text.length);
  return length;
}

/** Columns as wide as their widest cell; `right` names the columns of figures. */
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

/** One line for each pair that has a value, the names aligned. */
export function record(pairs: readonly (readonly [name: string, value: unknown])[]): string {
  const known = pairs.filter(([, value]) => value !== undefined);
  const width = longest(known.map(([name]) => name));
  return known.map(([name, value]) => `${name.padEnd(width)}  ${inOneLine(`${value}`)}`.trimEnd()).join('\n');
}
