import { readFileSync } from 'node:fs';

/** Text of a small file, without blanks at its ends; undefined when the file cannot be read. */
export function fileText(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return undefined;
  }
}
