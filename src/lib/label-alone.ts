/** `label=token`, or a token alone. */
export function splitToken(entry: string): { label: string | undefined; token: string } {
  const [, label, token] = /^([\w.@-]+)=(?!=*$)(.+)$/.exec(entry) ?? [];
  return label !== undefined && token !== undefined ? { label, token } : { label: undefined, token: entry };
}

/** Shorter tokens can be guessed. */
export const ADMIN_TOKEN_CHARS_MIN = 16;
export const isShortToken = (entry: string): boolean =>
  splitToken(entry).token.length < ADMIN_TOKEN_CHARS_MIN;

/**
 * Whether an entry of the admin tokens is a label without its token, as `deploy=$TOKEN` is without
 * the variable. A token alone may end with `=` as well: base64 with its padding is longer than a
 * label, has a length of four times something, and no dot or `@`.
 */
export const isLabelAlone = (entry: string): boolean =>
  /^[\w.@-]+=$/.test(entry) && (entry.length <= 16 || entry.length % 4 !== 0 || /[.@]/.test(entry));
