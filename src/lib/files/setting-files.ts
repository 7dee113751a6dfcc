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

/**
 * When the credentials for NATS in a file end, in Unix seconds; undefined where they do not, or
 * where the file cannot be read.
 */
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
 * A file that operators change under a running process, such as one with a password. It is read
 * at each use. While it cannot be read or makes no sense, as in the middle of a change, what it
 * said before counts.
 */
export class ChangingFile<T> {
  readonly #path: string;
  readonly #parse: (content: Buffer) => T;
  readonly #log: Log;
  #content: Buffer;
  #value: T;

  /**
   * @param parse throws when the content makes no sense
   * @throws when the file cannot be read or makes no sense
   */
  constructor(path: string, parse: (content: Buffer) => T, log: Log) {
    this.#path = path;
    this.#parse = parse;
    this.#log = log;
    this.#content = readFileSync(path);
    this.#value = parse(this.#content);
  }

  /** The same object until the file has changed. */
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
