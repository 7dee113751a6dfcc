/**
 * Which names of a payload's members say that the value is a secret. Names are compared word by
 * word. Words end where case changes, at digits, and at everything that is no letter: `token` is in
 * `csrfToken` and in `X-Auth-Token`, and not in `max_tokens`.
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

/** These are the last word of a secret's name, or all of it: `db_pass`, not `pass_rate`. */
const AT_THE_END: ReadonlySet<string> = new Set(['pass', 'auth']);
/** `tokens` holds some; `max_tokens` counts them. */
const ALONE: ReadonlySet<string> = new Set(['tokens']);

const WORD = /\p{Lu}+(?!\p{Ll})|\p{Lu}?[\p{Ll}\p{Lt}\p{Lm}\p{Lo}]+|\p{N}+/gu;
const wordsOf = (name: string): string[] => (name.match(WORD) ?? []).map((word) => word.toLowerCase());

const ENCODED_ASCII = /%[0-7][\da-f]/gi;
const ENCODED_LETTERS = /(?:%[89a-f][\da-f])+/gi;
const LETTER = /[a-z\d]/i;
/** As forms send `user[password]`: `user%5Bpassword%5D`. A sign in ASCII separates words. */
const percentDecoded = (name: string): string =>
  name
    .replace(ENCODED_ASCII, (sign) => {
      const char = String.fromCharCode(Number.parseInt(sign.slice(1), 16));
      return LETTER.test(char) ? char : ' ';
    })
    .replace(ENCODED_LETTERS, (bytes) => Buffer.from(bytes.replaceAll('%', ''), 'hex').toString());

/** Longer names are compared by their beginning alone. */
const NAME_CHARS_MAX = 200;
/**
 * Memory for the names that were seen, of all settings together; applications repeat a few hundred.
 */
const KEPT_BYTES_MAX = 16 * 1024 * 1024;
/** Beside its characters, each of which may take two bytes. */
const KEPT_NAME_BYTES = 100;
/** Whether a name is secret, by settings. All are emptied when they are full together. */
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
  // A copy: what is cut out of a text keeps all of that text in memory.
  known.set(Buffer.from(name).toString(), found);
}

export class SecretNames {
  /** Secret names by their first word. */
  readonly #secrets = new Map<string, { words: string[]; isOwn: boolean }[]>();
  /** Any first word: most names have none, and are neither cut into words nor kept. */
  readonly #firstWords: RegExp;
  readonly #known = new Map<string, boolean>();

  /** @param own names that a project adds: each counts as a word anywhere */
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
