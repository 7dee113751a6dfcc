/** Files that settings name: passwords, credentials, certificates. */
import { readFileSync } from 'node:fs';
import type { Log } from '../log.ts';

/** Text of a small file, without blanks at its ends; undefined when the file cannot be read. */
export function fileText(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return undefined;
  }
}

/** When NATS credentials expire, Unix seconds; undefined if never or if the file is unreadable. */
export function credsExpiry(file: string): number | undefined {
  try {
    const [, claims = ''] =
      /-BEGIN NATS USER JWT-+\s*[^.\s]+\.([^.\s]+)/.exec(readFileSync(file, 'utf8')) ?? [];
    const { exp } = JSON.parse(Buffer.from(claims, 'base64url').toString()) as { exp?: unknown };
    return typeof exp === 'number' && exp > 0 ? exp : undefined;
  } catch {
    return undefined;
  }
}

/**
 * A file that operators change while the process runs, such as a password file. The file is read at
 * each use. While it cannot be read or parsed, for example in the middle of a change, the last good
 * value is used.
 */
export class ChangingFile<T> {
  readonly #path: string;
  readonly #parse: (content: Buffer) => T;
  readonly #log: Log;
  #content: Buffer;
  #value: T;

  /**
   * @param parse throws when the content is invalid
   * @throws when the file cannot be read or is invalid at the start
   */
  constructor(path: string, parse: (content: Buffer) => T, log: Log) {
    this.#path = path;
    this.#parse = parse;
    this.#log = log;
    this.#content = readFileSync(path);
    this.#value = parse(this.#content);
  }

  /** Reads the value again. The same object is returned until the file changes. */
  read(): T {
    try {
      const content = readFileSync(this.#path);
      if (content.equals(this.#content)) return this.#value;
      this.#value = this.#parse(content);
      this.#content = content;
    } catch (error) {
      this.#log.warn({ err: error, file: this.#path }, 'file cannot be used, what it said before counts');
    }
    return this.#value;
  }
}
