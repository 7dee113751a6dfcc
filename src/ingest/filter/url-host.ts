/** Scheme and authority, as the WHATWG reads them: blanks may come first, slashes may lean back. */
const SITE = /^([\0- ]*[a-z][a-z\d+.-]*:[\\/]*)([^\\/?#]*)/i;
/** Longer than any name (253) with a port. */
const HOST_CHARS_MAX = 300;

/**
 * The part of a URL that says its host: no user info and nothing behind the host, which is cut
 * where no name goes on. Parsing a longer text takes time in the square of its length: a second for
 * 60 KB.
 * @returns '' for what is no URL
 */
function upToHost(url: string): string {
  const [, scheme = '', authority = ''] = SITE.exec(url) ?? [];
  const host = authority.slice(authority.lastIndexOf('@') + 1);
  return scheme + host.slice(0, HOST_CHARS_MAX);
}

const ASCII = /^[\0-\x7f]*$/;

/** A URL as far as its host, with its port; undefined for what is no URL. */
export function siteOf(url: string): URL | undefined {
  const site = upToHost(url);
  // Throwing costs much. On Node.js 20 canParse refuses `ü` once V8 has compiled the call.
  if (ASCII.test(site) && !URL.canParse(site)) return undefined;
  try {
    return new URL(site);
  } catch {
    return undefined;
  }
}
