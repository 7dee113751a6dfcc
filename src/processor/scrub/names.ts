/**
 * Decides by a member's name whether its value is a secret. Names are compared word by word. A word
 * ends where the case changes, at a digit, and at any character that is no letter: `csrfToken` and
 * `X-Auth-Token` contain the word `token`, and `max_tokens` does not.
 */

/** Names whose values `--scrub keys` removes; docs/privacy.md has the same list. */
export const SECRET_NAMES = [
  'password',
  'passwords',
  'passwd',
  'pwd',
  'passphrase',
  'passcode',
  'passwordhash',
  'pass',
  'auth',
  'secret',
  'secrets',
  'token',
  'tokens',
  'jwt',
  'bearer',
  'api_key',
  'api_keys',
  'apikey',
  'apikeys',
  'access_key',
  'accesskey',
  'secretkey',
  'private_key',
  'privatekey',
  'authorization',
  'credential',
  'credentials',
  'cookie',
  'cookies',
  'session',
  'sessionid',
  'sessid',
  'phpsessid',
  'jsessionid',
  'csrf',
  'csrftoken',
  'csrfmiddlewaretoken',
  'xsrf',
  'accesstoken',
  'authtoken',
  'refreshtoken',
  'card_number',
  'cardnumber',
  'cvv',
  'cvc',
] as const;

/**
 * Words that name a secret only as the last word of a name: `db_pass` is one, `pass_rate` is none.
 */
const AT_THE_END: ReadonlySet<string> = new Set(['pass', 'auth']);
/**
 * Words that name a secret only as the whole name: `tokens` holds secrets, `max_tokens` counts
 * tokens.
 */
const ALONE: ReadonlySet<string> = new Set(['tokens']);

const WORD = /\p{Lu}+(?!\p{Ll})|\p{Lu}?[\p{Ll}\p{Lt}\p{Lm}\p{Lo}]+|\p{N}+/gu;
const wordsOf = (name: string): string[] => (name.match(WORD) ?? []).map((word) => word.toLowerCase());

const ENCODED_ASCII = /%[0-7][\da-f]/gi;
const ENCODED_LETTERS = /(?:%[89a-f][\da-f])+/gi;
const LETTER = /[a-z\d]/i;
/**
 * Decodes the percent-encoding of form fields: `user%5Bpassword%5D` is `user[password]`. An ASCII
 * sign becomes a blank, which separates words.
 */
const percentDecoded = (name: string): string =>
  name
    .replace(ENCODED_ASCII, (sign) => {
      const char = String.fromCharCode(Number.parseInt(sign.slice(1), 16));
      return LETTER.test(char) ? char : ' ';
    })
    .replace(ENCODED_LETTERS, (bytes) => Buffer.from(bytes.replaceAll('%', ''), 'hex').toString());

/** Characters of a name that are compared, at most. */
const NAME_CHARS_MAX = 200;
/**
 * Memory for remembered names, of all privacy settings together. Applications repeat a few hundred
 * names.
 */
const KEPT_BYTES_MAX = 16 * 1024 * 1024;
/** Estimated memory of a known name besides its characters, each of which may take two bytes. */
const KEPT_NAME_BYTES = 100;
/**
 * For each set of privacy settings, a map from names that were seen to whether they are secret. All
 * maps are emptied when they reach KEPT_BYTES_MAX together.
 */
const kept = { bytes: 0, maps: new Set<Map<string, boolean>>() };

function keep(known: Map<string, boolean>, name: string, found: boolean): void {
  const bytes = KEPT_NAME_BYTES + 2 * name.length;
  if (kept.bytes + bytes > KEPT_BYTES_MAX) {
    for (const map of kept.maps) map.clear();
    kept.maps.clear();
    kept.bytes = 0;
  }
  kept.bytes += bytes;
  kept.maps.add(known);
  // The name is copied: a slice of a text would keep the whole text in memory.
  known.set(Buffer.from(name).toString(), found);
}

export class SecretNames {
  /** Secret names, by their first word. */
  readonly #secrets = new Map<string, { words: string[]; isOwn: boolean }[]>();
  /**
   * Matches the first word of any secret name. Most names contain no such word, and are neither cut
   * into words nor remembered.
   */
  readonly #firstWords: RegExp;
  readonly #known = new Map<string, boolean>();

  /** @param own secret names that a project adds. They match anywhere in a member's name. */
  constructor(names: readonly string[], own: readonly string[] = []) {
    for (const name of [...names, ...own]) {
      const words = wordsOf(name);
      const [first = ''] = words;
      const secret = { words, isOwn: !names.includes(name) };
      this.#secrets.set(first, [...(this.#secrets.get(first) ?? []), secret]);
    }
    this.#firstWords = new RegExp([...this.#secrets.keys()].join('|'));
  }

  get none(): boolean {
    return this.#secrets.size === 0;
  }

  has(name: string): boolean {
    const compared = name.slice(0, NAME_CHARS_MAX);
    const isEncoded = compared.includes('%');
    if (!isEncoded && !this.#firstWords.test(compared.toLowerCase())) return false;
    const known = this.#known.get(name);
    if (known !== undefined) return known;
    const found = this.#find(compared) || (isEncoded && this.#find(percentDecoded(compared)));
    if (name.length <= NAME_CHARS_MAX) keep(this.#known, name, found);
    return found;
  }

  #find(name: string): boolean {
    if (!this.#firstWords.test(name.toLowerCase())) return false;
    const words = wordsOf(name);
    return words.some((word, at) =>
      this.#secrets
        .get(word)
        ?.some(
          ({ words: secret, isOwn }) =>
            secret.every((part, offset) => words[at + offset] === part) &&
            (isOwn || mayStand(word, at, words.length)),
        ),
    );
  }
}

function mayStand(word: string, at: number, count: number): boolean {
  if (ALONE.has(word)) return count === 1;
  return !AT_THE_END.has(word) || at === count - 1;
}
