import { readFileSync } from 'node:fs';

/** Of a small file, without blanks at its ends; undefined when it cannot be read. */
export function fileText(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return undefined;
  }
}
