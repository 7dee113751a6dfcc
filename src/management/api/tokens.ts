/** The tokens that give access to the management API and to the page. */
import { createHash, timingSafeEqual } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import { ADMIN_TOKEN_CHARS_MIN, isLabelAlone, isShortToken, splitToken } from '../../lib/label-alone.ts';
import type { Log } from '../../lib/log.ts';

type AdminToken = { label: string; token: string };
/** Holder of a token. A viewer may only read. `by`: the holder's name in the audit. */
export type Holder = { by: string; role: 'editor' | 'viewer' };

const digest = (text: string): Buffer => createHash('sha256').update(text).digest();

/** Parses `label=token`, or a token alone, which gets a label made of its hash. */
function parseToken(entry: string): AdminToken {
  const { label, token } = splitToken(entry);
  if (label !== undefined) return { label, token };
  return { label: `token-${digest(entry).toString('hex').slice(0, 8)}`, token: entry };
}

/** First token of the setting, which commands send to the API; undefined when there is none. */
export const firstToken = (entries: readonly string[]): string | undefined =>
  entries[0] === undefined ? undefined : parseToken(entries[0].trim()).token;

const linesOf = (text: string): string[] =>
  text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '' && !line.startsWith('#'));

export type TokenSettings = {
  entries: readonly string[];
  /** Tokens of viewers. */
  viewers?: readonly string[];
  /** Path of a file with further tokens of editors. */
  file: string | undefined;
  log: Log;
};

export class AdminTokens {
  readonly #settings: TokenSettings;
  readonly #fixed: readonly AdminToken[];
  readonly #viewers: readonly AdminToken[];
  #ofFile: readonly AdminToken[] = [];
  /** Number of requests with an unknown token. */
  refused = 0;
  /** Size, time and inode of the file at the last reading. A change of the file changes them. */
  #seen = '';

  constructor(settings: TokenSettings) {
    this.#settings = settings;
    this.#fixed = settings.entries.map(parseToken);
    this.#viewers = (settings.viewers ?? []).map(parseToken);
  }

  /** Whether a setting names tokens or a file of tokens, even when that file is empty now. */
  get isSet(): boolean {
    return this.#fixed.length + this.#viewers.length > 0 || this.#settings.file !== undefined;
  }

  /**
   * Finds the holder of a token. Each comparison with a known token takes constant time.
   * @returns undefined for an unknown token, which is counted as refused
   */
  holderOf(presented: string): Holder | undefined {
    const wanted = digest(presented);
    const find = (tokens: readonly AdminToken[]): string | undefined =>
      tokens.filter(({ token }) => timingSafeEqual(digest(token), wanted))[0]?.label;
    const editor = find([...this.#fixed, ...this.#readFile()]);
    const by = editor ?? find(this.#viewers);
    if (by !== undefined) return { by, role: editor === undefined ? 'viewer' : 'editor' };
    this.refused++;
    return undefined;
  }

  /**
   * Returns the tokens of the file, and reads the file when it has changed. If the file cannot be
   * read, its tokens are no longer valid: removing the file also revokes its tokens.
   */
  #readFile(): readonly AdminToken[] {
    const { file, log } = this.#settings;
    if (file === undefined) return [];
    try {
      const { mtimeMs, size, ino } = statSync(file);
      const seen = `${mtimeMs} ${size} ${ino}`;
      if (seen !== this.#seen) this.#ofFile = this.#tokensOf(linesOf(readFileSync(file, 'utf8')));
      this.#seen = seen;
    } catch (error) {
      if (this.#seen !== 'away') log.error({ err: error, file }, 'admin: tokens cannot be read');
      this.#seen = 'away';
      this.#ofFile = [];
    }
    return this.#ofFile;
  }

  #tokensOf(lines: readonly string[]): readonly AdminToken[] {
    const { file, log } = this.#settings;
    const entries = lines.filter((line) => !isLabelAlone(line));
    const labels = lines.length - entries.length;
    if (labels > 0) log.error({ file, labels }, 'admin: labels without their tokens open nothing');
    const tokens = entries.filter((line) => !isShortToken(line));
    const short = entries.length - tokens.length;
    if (short > 0)
      log.error(
        { file, short },
        `admin: tokens of fewer than ${ADMIN_TOKEN_CHARS_MIN} characters open nothing`,
      );
    return tokens.map(parseToken);
  }
}
