/**
 * Whether an entry of the admin tokens is a label without its token, as `deploy=$TOKEN` is without
 * the variable. A token alone may end with `=` as well: base64 with its padding is longer than a
 * label, has a length of four times something, and no dot or `@`.
 */
export const isLabelAlone = (entry: string): boolean =>
  /^[\w.@-]+=$/.test(entry) && (entry.length <= 16 || entry.length % 4 !== 0 || /[.@]/.test(entry));
