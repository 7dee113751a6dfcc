/** What commands write to standard output: JSON for programs, aligned text for people. */

export const printJson = (value: unknown): void => printLine(JSON.stringify(value, null, 2));

export const printLine = (line: string): void => {
  process.stdout.write(`${line}\n`);
};

/** Columns as wide as their widest cell; `right` names the columns of figures. */
export function table(
  header: readonly string[],
  rows: readonly (readonly string[])[],
  right: readonly string[] = [],
): string {
  const widths = header.map((title, at) =>
    Math.max(title.length, ...rows.map((row) => row[at]?.length ?? 0)),
  );
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, at) => {
        const width = widths[at] ?? 0;
        return right.includes(header[at] ?? '') ? cell.padStart(width) : cell.padEnd(width);
      })
      .join('  ')
      .trimEnd();
  return [line(header), ...rows.map(line)].join('\n');
}

/** One line for each pair, the names aligned. */
export function record(pairs: readonly (readonly [name: string, value: string])[]): string {
  const width = Math.max(...pairs.map(([name]) => name.length));
  return pairs.map(([name, value]) => `${name.padEnd(width)}  ${value}`.trimEnd()).join('\n');
}
