/** Splits an entry `label=token`. An entry may also be a token without a label. */
export function splitToken(entry: string): { label: string | undefined; token: string } {
  const [, label, token] = /^([\w.@-]+)=(?!=*$)(.+)$/.exec(entry) ?? [];
  return label !== undefined && token !== undefined ? { label, token } : { label: undefined, token: entry };
}

/** Least length of an admin token; a shorter one could be guessed. */
export const ADMIN_TOKEN_CHARS_MIN = 16;
export const isShortToken = (entry: string): boolean =>
  splitToken(entry).token.length < ADMIN_TOKEN_CHARS_MIN;

/**
 * Whether an entry of the admin tokens is a label without a token. `deploy=$TOKEN` becomes such an
 * entry when the variable is not set.
 *
 * But a token without a label may end with `=`, too, as base64 does. So an entry counts as a token
 * when it looks like base64: it has more than 16 characters, a multiple of four, without a dot or
 * `@`.
 */
export const isLabelAlone = (entry: string): boolean =>
  /^[\w.@-]+=$/.test(entry) && (entry.length <= 16 || entry.length % 4 !== 0 || /[.@]/.test(entry));
