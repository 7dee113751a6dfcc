/**
 * Which names of a payload's members say that the value is a secret. Names are compared word by
 * word. Words end where case changes, at digits, and at everything that is no letter: `token` is in
 * `csrfToken` and in `X-Auth-Token`, and not in `max_tokens`.
 */

/** What `--scrub keys` removes; docs/privacy.md has the same list. */
export const SECRET_NAMES = [
  'password',
  'passwords',
  'passwd',
  'pwd',
  'passphrase',
  'passcode',
  'secret',
  'secrets',
  'token',
  'jwt',
  'bearer',
  'api_key',
  'apikey',
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

const WORD = /\p{Lu}+(?!\p{Ll})|\p{Lu}?[\p{Ll}\p{Lt}\p{Lm}\p{Lo}]+|\p{N}+/gu;
const wordsOf = (name: string): string[] => (name.match(WORD) ?? []).map((word) => word.toLowerCase());

/** Longer names are compared by their beginning alone. */
const NAME_CHARS_MAX = 200;
/** Names seen; applications repeat a few hundred. */
const NAMES_KEPT_MAX = 10_000;

export class SecretNames {
  /** By first word. */
  readonly #secrets = new Map<string, string[][]>();
  readonly #known = new Map<string, boolean>();

  constructor(names: readonly string[]) {
    for (const words of names.map(wordsOf)) {
      const [first = ''] = words;
      this.#secrets.set(first, [...(this.#secrets.get(first) ?? []), words]);
    }
  }

  get none(): boolean {
    return this.#secrets.size === 0;
  }

  has(name: string): boolean {
    const known = this.#known.get(name);
    if (known !== undefined) return known;
    const found = this.#find(wordsOf(name.slice(0, NAME_CHARS_MAX)));
    if (name.length > NAME_CHARS_MAX) return found;
    if (this.#known.size === NAMES_KEPT_MAX) this.#known.clear();
    // A copy: what is cut out of a text keeps all of that text in memory.
    this.#known.set(Buffer.from(name).toString(), found);
    return found;
  }

  #find(words: readonly string[]): boolean {
    return words.some((word, at) =>
      this.#secrets.get(word)?.some((secret) => secret.every((part, offset) => words[at + offset] === part)),
    );
  }
}
